"""nnet3-to-onnx: writes a network as an ONNX model for chunks of a fixed number of frames."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3
import nnet3_compiler
import nnet3_computation
import nnet3_descriptors
import nnet3_graph
import nnet3_optimizer

from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, log, run_tool
from nnet3_tools.streams import readable

if TYPE_CHECKING:
    from nnet3_computation import ComputationRequest, NnetComputation
    from nnet3_descriptors import Nnet

NAME = "nnet3-to-onnx"

EXTRA = "nnet3-runtime-onnx"
"""The package that makes models; an extra of this one."""

INPUT, IVECTOR, OUTPUT = "input", "ivector", "output"
ANY_NUMBER = "sequences"
"""The name of the leading axis of values, if it has no fixed size."""


@attrs.frozen(kw_only=True)
class Export:
    """A network, and the form of its export.

    Attributes:
        nnet: The network, in test mode.
        frames: Frames of a chunk, a multiple of the subsampling and of the modulus of the network;
            for x-vectors the number of input frames.
        sequences: The size of the leading axis, or its name.
        subsampling: Number of frames from one output to the next.
        left: Extra frames before the ones that the network needs.
        right: Extra frames after the ones that the network needs.
    """

    nnet: Nnet
    frames: int
    sequences: int | str
    subsampling: int
    left: int
    right: int

    @property
    def has_ivector(self) -> bool:
        """Whether the network takes an i-vector."""
        return any(node.name == IVECTOR for node in self.nnet.input_nodes)

    def chunk(self) -> Any:
        """Returns the model of a chunk: inputs with context, outputs of all its frames."""
        left, right = nnet3_graph.compute_context(self.nnet)
        last = self.frames - self.subsampling  # as in nnet3-compute, nothing after it is computed
        times = -left - self.left, last + right + self.right + 1
        return self._model(self._request(times, (0, self.frames)))

    def xvector(self) -> Any:
        """Returns the model that computes one vector for a stretch of an utterance."""
        return self._model(self._request((0, self.frames), (0, 1)))

    def _request(self, given: tuple[int, int], wanted: tuple[int, int]) -> ComputationRequest:
        inputs = [nnet3_computation.IoSpecification.from_range(INPUT, *given)]
        if self.has_ivector:
            inputs.append(nnet3_computation.IoSpecification.from_range(IVECTOR, 0, 1))
        output = nnet3_computation.IoSpecification.from_range(
            OUTPUT, *wanted, t_step=self.subsampling
        )
        return nnet3_computation.ComputationRequest(inputs=inputs, outputs=[output])

    def _model(self, request: ComputationRequest) -> Any:
        computation = nnet3_optimizer.optimize(
            self.nnet, nnet3_compiler.compile_computation(self.nnet, request)
        )
        return _exporter().to_onnx(
            self.nnet, computation, sequences=self.sequences, metadata=self._metadata(request)
        )

    def stream(self) -> tuple[Any, Any]:
        """Returns the models of the first chunks of a stream, and of a round of further ones."""
        nnet = nnet3_compiler.with_ivector_period(self.nnet, self.frames)
        first, computation = nnet3_compiler.with_least_context(
            self.nnet, nnet, partial(self._loop, nnet)
        )
        metadata = self._metadata(first)
        if self.has_ivector:
            metadata["nnet3.ivector_period"] = str(self.frames)
        to_onnx = partial(
            _exporter().to_onnx,
            nnet,
            computation,
            sequences=self.sequences,
            one_row=[IVECTOR] if self.has_ivector else [],
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
            "input_dim": self.nnet.node_dim(INPUT),
            "ivector_dim": self.nnet.node_dim(IVECTOR) if self.has_ivector else 0,
            "output_dim": self.nnet.node_dim(OUTPUT),
        }
        return {f"nnet3.{name}": str(number) for name, number in numbers.items()}


def _exporter() -> Any:
    """Returns the package that makes models.

    Raises:
        click.ClickException: it is not installed.
    """
    try:
        return importlib.import_module(EXTRA.replace("-", "_"))
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"this tool needs {EXTRA}, and {error.name} is not installed: "
            "pip install 'nnet3-tools[onnx]'"
        ) from error


def start_path(path: Path) -> Path:
    """The path of the model of a stream's first chunks, beside that of the other chunks."""
    return path.with_name(f"{path.stem}.start{path.suffix}")


def _write(model: Any, path: Path) -> None:
    from nnet3_descriptors.files import write_atomically

    write_atomically(path, [model.SerializeToString()])
    sizes = {
        value.name: [each.dim_param or each.dim_value for each in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    log(NAME, f"Wrote {path}, {len(model.graph.node)} nodes: {json.dumps(sizes)}")


def _number_option(
    name: str, text: str, *, least: int = 1, default: int | None = None, metavar: str = "FRAMES"
) -> Callable[[Any], Any]:
    """An option for a whole number, which must be given unless it has a default."""
    needed = {"required": True} if default is None else {"default": default, "show_default": True}
    kind = click.IntRange(min=least)
    return click.option(name, type=kind, metavar=metavar, help=text, **needed)


@click.command(cls=KaldiCommand)
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("onnx_out", metavar="ONNX-OUT")
@_number_option(
    "--frames",
    "Frames of a chunk, before subsampling and without context; rounded up to a multiple of "
    "--frame-subsampling-factor and of the network's modulus.",
)
@_number_option(
    "--sequences",
    "Number of sequences of the model; 0 for any number.",
    least=0,
    default=0,
    metavar="NUMBER",
)
@_number_option(
    "--frame-subsampling-factor", "Number of input frames for each row of output.", default=1
)
@_number_option(
    "--extra-left-context",
    "Further context to the left, for recurrent networks.",
    least=0,
    default=0,
)
@_number_option(
    "--extra-right-context",
    "Further context to the right, as --extra-left-context.",
    least=0,
    default=0,
)
@boolean_option("--ivector", help="Require that the network takes an i-vector.")
@boolean_option("--stream", help="Write two models: for the first chunks, and for all later ones.")
@boolean_option("--xvector", help="Compute one vector for all frames, the output at t = 0.")
def command(
    *,
    nnet_in: str,
    onnx_out: str,
    frames: int,
    sequences: int,
    frame_subsampling_factor: int,
    extra_left_context: int,
    extra_right_context: int,
    ivector: bool,
    stream: bool,
    xvector: bool,
) -> None:
    """Write the network in NNET-IN, .raw or .mdl, as a model of ONNX to ONNX-OUT.

    The input of the model is (sequences, frames with context, columns), its output (sequences,
    frames, columns). An i-vector is (sequences, 1, columns). Batch-norm and dropout are in test
    mode. With --stream, ONNX-OUT is for one chunk after the other, and NAME.start.onnx beside
    NAME.onnx is for the first chunks. The outputs next_state.* of a call are the inputs state.* of
    the next one.
    """
    from nnet3_descriptors.editing import collapse_model

    if stream and xvector:
        raise click.UsageError("--stream and --xvector cannot be given together")
    with readable(nnet_in) as source:
        model = nnet3.Model(
            nnet3_descriptors.read_nnet(source)
        )  # prepares the network as for nnet3-compute
    nnet = collapse_model(model.nnet)
    has_ivector = any(node.name == IVECTOR for node in nnet.input_nodes)
    if ivector and not has_ivector:
        raise click.ClickException(f"--ivector: {nnet_in} has no input node '{IVECTOR}'")
    if not xvector:
        fixed = nnet3_graph.fixed_frame(nnet)
        if fixed is not None:
            raise click.ClickException(
                f"{nnet_in}: {fixed}: such a network computes whole utterances only"
            )
        wanted, factor = frames, frame_subsampling_factor
        if stream:
            _, frames = nnet3_compiler.stream_network(nnet, wanted, frame_subsampling_factor=factor)
        else:
            frames = nnet3_compiler.looped_chunk_size(nnet, wanted, factor)
        if frames != wanted:
            log(
                NAME,
                f"Chunks have {frames} frames: --frames={wanted} is no multiple of "
                f"--frame-subsampling-factor={factor} and of the frames after which the network's "
                "reads repeat",
            )
    export = Export(
        nnet=nnet,
        frames=frames,
        sequences=sequences or ANY_NUMBER,
        subsampling=frame_subsampling_factor,
        left=extra_left_context,
        right=extra_right_context,
    )
    path = Path(os.fspath(onnx_out))
    if not stream:
        _write(export.xvector() if xvector else export.chunk(), path)
        return
    start, again = export.stream()
    _write(start, start_path(path))
    _write(again, path)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
