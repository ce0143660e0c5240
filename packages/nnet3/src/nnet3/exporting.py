"""A network for other runtimes: as models of ONNX, or as C, for chunks, streams or utterances."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import nnet3_compiler
import nnet3_graph
import nnet3_optimizer
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors.editing import for_inference
from nnet3_runtime_cuda import RunError

from nnet3.errors import FROM_A_CLONE
from nnet3.model import Model, load

if TYPE_CHECKING:
    import nnet3_runtime_c
    import onnx
    from nnet3_computation import NnetComputation
    from nnet3_descriptors import Nnet

    _Program = tuple[Nnet, NnetComputation, dict[str, str]]
    """A network, its optimized computation (a loop for a stream), and metadata: how to use it."""

INPUT, IVECTOR, OUTPUT = "input", "ivector", "output"

ANY_NUMBER = "sequences"
"""The name of the leading axis of values, if it has no fixed size."""

OPSET = 21

ONNX = "nnet3_runtime_onnx", "models of ONNX", "'pip install onnx onnxruntime'"
"""The package that makes models of ONNX; see `_package`."""


def export_onnx(
    source: Any,
    *,
    frames: int | None = None,
    stream: bool = False,
    xvector: bool = False,
    sequences: int = 0,
    frame_subsampling_factor: int | None = None,
    extra_left_context: int = 0,
    extra_right_context: int = 0,
    opset: int = OPSET,
) -> tuple[onnx.ModelProto, ...]:
    """Returns a network as models of standard operators of ONNX, to be written by `onnx.save`.

    The input of a model is (sequences, frames with context, input_dim), an i-vector (sequences, 1,
    ivector_dim), and the output (sequences, rows, output_dim). The metadata say how a program uses
    a model. Batch-norm and dropout are in test mode.

    Args:
        source: A model, or what `load` takes.
        frames: Frames of a chunk, before subsampling and without context; rounded up to a multiple
            of frame_subsampling_factor and of the network's modulus. None: a model takes whole
            utterances of any number of frames, which only networks without recurrence can.
        stream: Whether to return two models: of the first chunks of a stream, and of all later
            ones. They need a number of frames.
        xvector: Whether to compute one vector for all frames, the output at t = 0.
        sequences: Number of sequences of the models; 0 for any number.
        frame_subsampling_factor: Number of input frames for each row of output. None: what the
            folder of the model says for chunks and streams; 1 for others.
        extra_left_context: Further context to the left, for recurrent networks.
        extra_right_context: Further context to the right.
        opset: The version of the operators, 18 to 21; the metadata say which versions of ONNX
            Runtime have it (nnet3.least_onnxruntime).

    Raises:
        RunError: nnet3-runtime-onnx is missing; options contradict each other; or the network reads
            features at a fixed time, which would be another frame in each chunk, or pools over
            whole utterances without `xvector`.
        ExportError: of nnet3-runtime-onnx: standard operators cannot express the network so.
        Nnet3Error: see `load`; or the network cannot be compiled (NotComputableError).
    """
    exporter = _package(*ONNX)
    form = _Form.of(
        source,
        frames=frames,
        stream=stream,
        xvector=xvector,
        subsampling=frame_subsampling_factor,
        left=extra_left_context,
        right=extra_right_context,
    )
    of_sequences = {"sequences": sequences or ANY_NUMBER, "opset": opset}
    if frames is None:
        time = 0 if xvector else None
        found = exporter.to_onnx_of_any_length(
            form.nnet, output_time=time, metadata=form.dims(), **of_sequences
        )
        return (found,)
    nnet, computation, metadata = form.program(stream=stream, xvector=xvector)
    to_onnx = partial(exporter.to_onnx, nnet, computation, metadata=metadata)
    if not stream:
        return (to_onnx(**of_sequences),)
    one_row = [IVECTOR] if form.has_ivector else []
    to_onnx = partial(to_onnx, one_row=one_row, **of_sequences)
    return to_onnx(part="start"), to_onnx(part="round")


def export_c(
    source: Any,
    *,
    frames: int,
    name: str = "network",
    stream: bool = False,
    xvector: bool = False,
    sequences: int = 1,
    weights_in_source: bool = True,
    int8: bool = False,
    frame_subsampling_factor: int | None = None,
    extra_left_context: int = 0,
    extra_right_context: int = 0,
) -> nnet3_runtime_c.CSource:
    """Returns a network as C source, whose `write` makes files of it.

    The header says which matrices a call takes and gives. A comment at the top says how many frames
    of context its input has, as for `export_onnx`. Batch-norm and dropout are in test mode.

    Args:
        source: A model, or what `load` takes.
        frames: Frames of a chunk, before subsampling and without context, rounded up as by
            `export_onnx`; with `xvector` the frames of the input.
        name: The prefix of all names in C.
        stream: Whether calls go on with the chunks of a stream; otherwise each is for itself.
        xvector: Whether to compute one vector for all frames, the output at t = 0.
        sequences: Number of sequences of a call; rows of one sequence follow one another.
        weights_in_source: Whether the source has the weights, or a file.
        int8: Whether the matrices of affine, linear and TDNN components become integers of 8 bits.
        frame_subsampling_factor: As for `export_onnx`.
        extra_left_context: Further context to the left, for recurrent networks.
        extra_right_context: Further context to the right.

    Raises:
        RunError: nnet3-runtime-c is missing; or as by `export_onnx`.
        ConversionError: of nnet3-runtime-c: the network cannot be expressed in C.
        Nnet3Error: see `load`; or the network cannot be compiled (NotComputableError).
    """
    converter = _package("nnet3_runtime_c", "C sources", "")
    form = _Form.of(
        source,
        frames=frames,
        stream=stream,
        xvector=xvector,
        subsampling=frame_subsampling_factor,
        left=extra_left_context,
        right=extra_right_context,
        sequences=sequences,
    )
    nnet, computation, metadata = form.program(stream=stream, xvector=xvector)
    found: nnet3_runtime_c.CSource = converter.to_c(
        nnet,
        computation,
        name=name,
        weights_in_source=weights_in_source,
        int8=int8,
        properties=metadata,
    )
    return found


def to_onnx(nnet: Nnet, computation: NnetComputation, **options: Any) -> onnx.ModelProto:
    """Returns the forward pass of one computation as a model; `export_onnx` makes whole models.

    Args:
        nnet: The network.
        computation: One of its computations.
        **options: Those of `to_onnx` of nnet3-runtime-onnx, which does it.

    Raises:
        RunError: nnet3-runtime-onnx is not installed.
        ExportError: of nnet3-runtime-onnx: standard operators cannot express the computation.
    """
    exporter = _package(*ONNX)
    model: onnx.ModelProto = exporter.to_onnx(nnet, computation, **options)
    return model


def _package(name: str, what: str, otherwise: str) -> Any:
    """Returns a package that may be missing.

    Args:
        name: Its name.
        what: What it makes.
        otherwise: How to install what it needs, if that is missing.

    Raises:
        RunError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        wheel = name.replace("_", "-")
        how = FROM_A_CLONE.format(wheel) if error.name == name else otherwise
        raise RunError(f"{what} need {wheel}, and {error.name} is not installed: {how}") from error


class _Form(NamedTuple):
    """A network, and the form in which it is exported.

    Attributes:
        nnet: The network, in test mode.
        frames: Frames of a chunk, a multiple of the subsampling and of the modulus of the network;
            for x-vectors the number of input frames; 0 for any number.
        subsampling: Number of frames from one output to the next.
        left: Extra frames before the ones that the network needs.
        right: Extra frames after the ones that the network needs.
        sequences: Number of sequences.
    """

    nnet: Nnet
    frames: int
    subsampling: int
    left: int
    right: int
    sequences: int = 1

    @classmethod
    def of(
        cls,
        source: Any,
        *,
        frames: int | None,
        stream: bool,
        xvector: bool,
        subsampling: int | None,
        **options: int,
    ) -> _Form:
        """Loads a network and checks the options.

        Raises:
            RunError: options contradict each other or the network; see `export_onnx`.
        """
        model = source if isinstance(source, Model) else load(source)
        if subsampling is None:
            folder = None if frames is None or xvector else model.folder
            subsampling = 1 if folder is None else folder.options.frame_subsampling_factor
        form = cls(
            nnet=for_inference(model.nnet), frames=frames or 0, subsampling=subsampling, **options
        )
        if stream and xvector:
            raise RunError("a stream and x-vectors cannot be asked for together")
        if model.pooling is not None and not xvector:
            raise RunError(
                f"node '{model.pooling}' pools over a whole utterance: export it with xvector "
                "(nnet3-to-onnx --xvector)"
            )
        if xvector:
            model.check_xvector()
        if frames is None and (stream or form.subsampling > 1 or form.left or form.right):
            raise RunError(
                "a stream, a subsampling factor and further context need a number of frames "
                "(--frames)"
            )
        if frames is None or xvector:
            return form
        fixed = nnet3_graph.fixed_frame(form.nnet)
        if fixed is not None:
            raise RunError(f"{fixed}: such a network computes whole utterances only")
        if stream:
            _, chunk = nnet3_compiler.stream_network(
                form.nnet, frames, frame_subsampling_factor=form.subsampling
            )
        else:
            chunk = nnet3_compiler.looped_chunk_size(form.nnet, frames, form.subsampling)
        return form._replace(frames=chunk)

    @property
    def has_ivector(self) -> bool:
        """Whether the network takes an i-vector."""
        return any(node.name == IVECTOR for node in self.nnet.input_nodes)

    def program(self, *, stream: bool, xvector: bool) -> _Program:
        """Returns that of a stream, of one vector, or of a chunk with its context."""
        if stream:
            return self._stream()
        if xvector:
            return self._computation(self._request((0, self.frames), (0, 1)))
        left, right = nnet3_graph.compute_context(self.nnet)
        last = self.frames - self.subsampling  # as in nnet3-compute, nothing after it is computed
        times = -left - self.left, last + right + self.right + 1
        return self._computation(self._request(times, (0, self.frames)))

    def _request(self, given: tuple[int, int], wanted: tuple[int, int]) -> ComputationRequest:
        rows = partial(IoSpecification.from_range, n=self.sequences)
        inputs = [rows(INPUT, *given)]
        if self.has_ivector:
            inputs.append(rows(IVECTOR, 0, 1))
        output = rows(OUTPUT, *wanted, t_step=self.subsampling)
        return ComputationRequest(inputs=inputs, outputs=[output])

    def _computation(self, request: ComputationRequest) -> _Program:
        compiled = nnet3_compiler.compile_computation(self.nnet, request)
        optimized = nnet3_optimizer.optimize(self.nnet, compiled)
        return self.nnet, optimized, self._metadata(request)

    def _stream(self) -> _Program:
        """Returns the loop of a stream, whose first segments are for its first chunks."""
        nnet = nnet3_compiler.with_ivector_period(self.nnet, self.frames)
        first, computation = nnet3_compiler.with_least_context(
            self.nnet, nnet, partial(self._loop, nnet)
        )
        metadata = self._metadata(first)
        if self.has_ivector:
            metadata["nnet3.ivector_period"] = str(self.frames)
        return nnet, computation, metadata

    def _loop(
        self, nnet: Nnet, context: tuple[int, int]
    ) -> tuple[ComputationRequest, NnetComputation]:
        """Returns the request of the first chunk of a stream with so much context, and its loop."""
        requests = nnet3_compiler.looped_requests(
            nnet,
            self.frames,
            frame_subsampling_factor=self.subsampling,
            num_sequences=self.sequences,
            extra_left_context=self.left,
            extra_right_context=self.right,
            context=context,
        )
        return requests[0], nnet3_compiler.compile_looped(
            nnet,
            requests,
            nnet3_compiler.CompilerOptions(output_debug_info=True),
            optimize=lambda compiled: nnet3_optimizer.optimize(nnet, compiled),
        )

    def _metadata(self, request: ComputationRequest) -> dict[str, str]:
        """The metadata, which says how to use a model, from the request of its first chunk."""
        [times] = [io.indexes[:, 1] for io in request.inputs if io.name == INPUT]
        numbers = {
            "left_context": -int(times.min()),
            "right_context": int(times.max()) + 1 - self.frames,
            "frames_per_chunk": self.frames,
            "frame_subsampling_factor": self.subsampling,
        }
        return {f"nnet3.{name}": str(number) for name, number in numbers.items()} | self.dims()

    def dims(self) -> dict[str, str]:
        """The numbers of columns, as metadata."""
        return {
            "nnet3.input_dim": str(self.nnet.node_dim(INPUT)),
            "nnet3.ivector_dim": str(self.nnet.node_dim(IVECTOR) if self.has_ivector else 0),
            "nnet3.output_dim": str(self.nnet.node_dim(OUTPUT)),
        }
