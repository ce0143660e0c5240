"""export_onnx: a network as models of ONNX, for chunks, streams or whole utterances."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import nnet3_compiler
import nnet3_graph
import nnet3_optimizer
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors.editing import for_inference
from nnet3_runtime_cuda import RunError

from nnet3.errors import FROM_A_CLONE
from nnet3.model import Model, load

if TYPE_CHECKING:
    import onnx
    from nnet3_computation import NnetComputation
    from nnet3_descriptors import Nnet

PACKAGE = "nnet3_runtime_onnx"
"""The package that makes models; it may be missing."""

INPUT, IVECTOR, OUTPUT = "input", "ivector", "output"

ANY_NUMBER = "sequences"
"""The name of the leading axis of values, if it has no fixed size."""

OPSET = 21


def export_onnx(
    source: Any,
    *,
    frames: int | None = None,
    stream: bool = False,
    xvector: bool = False,
    sequences: int = 0,
    frame_subsampling_factor: int = 1,
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
        frame_subsampling_factor: Number of input frames for each row of output.
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
    exporter = _exporter()
    model = source if isinstance(source, Model) else load(source)
    nnet = for_inference(model.nnet)
    if stream and xvector:
        raise RunError("a stream and x-vectors cannot be asked for together")
    if model.pooling is not None and not xvector:
        raise RunError(
            f"node '{model.pooling}' pools over a whole utterance: export it with xvector "
            "(nnet3-to-onnx --xvector)"
        )
    export = _Export(
        exporter=exporter,
        nnet=nnet,
        frames=frames or 0,
        sequences=sequences or ANY_NUMBER,
        subsampling=frame_subsampling_factor,
        left=extra_left_context,
        right=extra_right_context,
        opset=opset,
    )
    if frames is None:
        if stream or frame_subsampling_factor > 1 or extra_left_context or extra_right_context:
            raise RunError(
                "a stream, a subsampling factor and further context need a number of frames"
            )
        return (export.any_length(0 if xvector else None),)
    if xvector:
        return (export.xvector(),)
    fixed = nnet3_graph.fixed_frame(nnet)
    if fixed is not None:
        raise RunError(f"{fixed}: such a network computes whole utterances only")
    if stream:
        _, chunk = nnet3_compiler.stream_network(
            nnet, frames, frame_subsampling_factor=frame_subsampling_factor
        )
        return attrs.evolve(export, frames=chunk).stream()
    chunk = nnet3_compiler.looped_chunk_size(nnet, frames, frame_subsampling_factor)
    return (attrs.evolve(export, frames=chunk).chunk(),)


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
    model: onnx.ModelProto = _exporter().to_onnx(nnet, computation, **options)
    return model


def _exporter() -> Any:
    """Returns the package that makes models.

    Raises:
        RunError: it is not installed.
    """
    try:
        return importlib.import_module(PACKAGE)
    except ModuleNotFoundError as error:
        if error.name == PACKAGE:
            how = FROM_A_CLONE.format("nnet3-runtime-onnx")
        else:
            how = "'pip install onnx onnxruntime'"
        raise RunError(
            f"models of ONNX need nnet3-runtime-onnx, and {error.name} is not installed: {how}"
        ) from error


@attrs.frozen(kw_only=True)
class _Export:
    """A network, and the form of its export.

    Attributes:
        exporter: The package that makes models.
        nnet: The network, in test mode.
        frames: Frames of a chunk, a multiple of the subsampling and of the modulus of the network;
            for x-vectors the number of input frames; 0 for any number.
        sequences: The size of the leading axis, or its name.
        subsampling: Number of frames from one output to the next.
        left: Extra frames before the ones that the network needs.
        right: Extra frames after the ones that the network needs.
        opset: The version of the operators.
    """

    exporter: Any
    nnet: Nnet
    frames: int
    sequences: int | str
    subsampling: int
    left: int
    right: int
    opset: int

    @property
    def has_ivector(self) -> bool:
        """Whether the network takes an i-vector."""
        return any(node.name == IVECTOR for node in self.nnet.input_nodes)

    def any_length(self, output_time: int | None) -> onnx.ModelProto:
        """Returns the model of whole utterances: outputs of all frames, or one at a time."""
        model: onnx.ModelProto = self.exporter.to_onnx_of_any_length(
            self.nnet,
            output_time=output_time,
            sequences=self.sequences,
            opset=self.opset,
            metadata=self._dims(),
        )
        return model

    def chunk(self) -> onnx.ModelProto:
        """Returns the model of a chunk: inputs with context, outputs of all its frames."""
        left, right = nnet3_graph.compute_context(self.nnet)
        last = self.frames - self.subsampling  # as in nnet3-compute, nothing after it is computed
        times = -left - self.left, last + right + self.right + 1
        return self._model(self._request(times, (0, self.frames)))

    def xvector(self) -> onnx.ModelProto:
        """Returns the model that computes one vector for a stretch of an utterance."""
        return self._model(self._request((0, self.frames), (0, 1)))

    def _request(self, given: tuple[int, int], wanted: tuple[int, int]) -> ComputationRequest:
        inputs = [IoSpecification.from_range(INPUT, *given)]
        if self.has_ivector:
            inputs.append(IoSpecification.from_range(IVECTOR, 0, 1))
        output = IoSpecification.from_range(OUTPUT, *wanted, t_step=self.subsampling)
        return ComputationRequest(inputs=inputs, outputs=[output])

    def _model(self, request: ComputationRequest) -> onnx.ModelProto:
        computation = nnet3_optimizer.optimize(
            self.nnet, nnet3_compiler.compile_computation(self.nnet, request)
        )
        model: onnx.ModelProto = self.exporter.to_onnx(
            self.nnet,
            computation,
            sequences=self.sequences,
            opset=self.opset,
            metadata=self._metadata(request),
        )
        return model

    def stream(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """Returns the models of the first chunks of a stream, and of a round of further ones."""
        nnet = nnet3_compiler.with_ivector_period(self.nnet, self.frames)
        first, computation = nnet3_compiler.with_least_context(
            self.nnet, nnet, partial(self._loop, nnet)
        )
        metadata = self._metadata(first)
        if self.has_ivector:
            metadata["nnet3.ivector_period"] = str(self.frames)
        to_onnx = partial(
            self.exporter.to_onnx,
            nnet,
            computation,
            sequences=self.sequences,
            one_row=[IVECTOR] if self.has_ivector else [],
            opset=self.opset,
            metadata=metadata,
        )
        return to_onnx(part="start"), to_onnx(part="round")

    def _loop(
        self, nnet: Nnet, context: tuple[int, int]
    ) -> tuple[ComputationRequest, NnetComputation]:
        """Returns the request of the first chunk of a stream with so much context, and its loop."""
        requests = nnet3_compiler.looped_requests(
            nnet,
            self.frames,
            frame_subsampling_factor=self.subsampling,
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
        [times] = [io.indexes[:, 1].tolist() for io in request.inputs if io.name == INPUT]
        numbers = {
            "left_context": -times[0],
            "right_context": times[-1] + 1 - self.frames,
            "frames_per_chunk": self.frames,
            "frame_subsampling_factor": self.subsampling,
        }
        return {f"nnet3.{name}": str(number) for name, number in numbers.items()} | self._dims()

    def _dims(self) -> dict[str, str]:
        return {
            "nnet3.input_dim": str(self.nnet.node_dim(INPUT)),
            "nnet3.ivector_dim": str(self.nnet.node_dim(IVECTOR) if self.has_ivector else 0),
            "nnet3.output_dim": str(self.nnet.node_dim(OUTPUT)),
        }
