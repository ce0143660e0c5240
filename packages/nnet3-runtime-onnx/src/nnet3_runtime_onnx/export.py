"""to_onnx: from the commands of a computation to a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import onnx
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet

from nnet3_runtime_onnx import program
from nnet3_runtime_onnx.errors import ExportError
from nnet3_runtime_onnx.graph import OPSET, RUNTIMES, GraphBuilder
from nnet3_runtime_onnx.ports import Ports, description

MOST_SEQUENCES = (1 << 63) - 1
"""The largest size of an axis in ONNX."""

PartName = Literal["whole", "start", "round"]


def to_onnx(
    nnet: Nnet,
    computation: NnetComputation,
    *,
    part: PartName = "whole",
    sequences: int | str | None = None,
    one_row: Collection[str] = (),
    opset: int = OPSET,
    metadata: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """Returns the forward pass of a computation as a model of standard operators.

    Inputs and outputs have the names of their nodes, constants begin with the name of their
    component. Where several segments accept the same node, its input has their rows one below the
    other; likewise outputs.

    A loop has two models: "start" has the segments before the repetition, "round" the repeated
    segments. Both have an output "next_state.NAME" for each matrix of the state, and "round" an
    input "state.NAME" of the same shape: an output of one call is the input of the next one.

    Args:
        nnet: The network, in test mode where it has components that draw random numbers.
        computation: One of its computations.
        part: "whole", or "start" or "round" of a loop.
        sequences: None for values of (rows, columns), with the rows of the request. Otherwise
            all values have a leading axis, and the model runs the computation for each of its
            entries: a number, or a name, such as "sequences", for any number. The entries are
            sequences if the request has one sequence.
        one_row: Input nodes, such as "ivector", whose rows are all the same: the input of the
            model has one row for them.
        opset: The version of the operators, 18 to 21. The property "nnet3.least_onnxruntime" is
            the oldest version of ONNX Runtime that has them.
        metadata: Properties of the model, beside "model_author" and those that describe its inputs
            and outputs.

    Raises:
        ExportError: standard operators cannot express it; the message names the components and
            commands that prevent it. Or there is no such part, or it is too large for one file; or
            the name of an input or output node begins with "state." or "next_state."; or
            `sequences`, `opset` or `metadata` is of another kind; or `one_row` names no input node.
        ComputationError: the network lacks a node or component of the computation.
    """
    parts = parts_of(nnet, computation)
    check_form(sequences, metadata, opset)
    for name in one_row:
        if name not in {node.name for node in nnet.input_nodes}:
            raise ExportError(f"'one_row' must name input nodes; there is no '{name}'")
    chosen = _chosen(parts, part)
    return export(nnet, computation, chosen, sequences, metadata or {}, one_row, opset)


def check_form(sequences: object, metadata: object, opset: object) -> None:
    """Raises an ExportError if an argument of `to_onnx` is not of its kind."""
    if opset not in RUNTIMES:
        known = f"{min(RUNTIMES)} to {max(RUNTIMES)}"
        raise ExportError(f"'opset' must be a version of the operators, {known} (got {opset!r})")
    is_number = (
        isinstance(sequences, int)
        and not isinstance(sequences, bool)
        and 1 <= sequences <= MOST_SEQUENCES
    )
    is_name = isinstance(sequences, str) and bool(sequences) and _is_unicode(sequences)
    if sequences is not None and not is_number and not is_name:
        raise ExportError(
            f"'sequences' must be a number >= 1 of 63 bits, a name for any number, or None (got "
            f"{sequences!r})"
        )
    if metadata is None:
        return
    if not isinstance(metadata, Mapping):
        found = type(metadata).__name__
        raise ExportError(f"'metadata' must be a mapping from names to texts, found {found}")
    for name, text in metadata.items():
        if not all(isinstance(each, str) and _is_unicode(each) for each in (name, text)):
            raise ExportError(f"'metadata' must map names to texts, found {name!r}: {text!r}")


def _is_unicode(text: str) -> bool:
    """Whether a model can hold a text: files have UTF-8, which lacks single surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def parts_of(nnet: Nnet, computation: NnetComputation) -> program.Parts:
    """Returns the segments of a computation, with the rows of the state that are used.

    Raises:
        ExportError: standard operators cannot express it; see `to_onnx`.
        ComputationError: the network lacks a node or component of the computation.
    """
    computation.check_network(nnet)
    parts = program.Parts.of(computation)
    _refuse(nnet, computation, parts.joined(0, len(parts.segments)))

    def use_of(part: program.Part) -> program.RowUse:
        translator, _ = _begun(nnet, computation, part, None)
        used = translator.matrices.watch(part.given)
        translator.run(part.commands)
        return program.RowUse(
            used, {each: translator.matrices.origins(each) for each in part.handed_on}
        )

    return program.with_rows_that_matter(parts, use_of)


def _refuse(nnet: Nnet, computation: NnetComputation, part: program.Part) -> None:
    """Raises an ExportError that names everything that cannot be expressed, if anything."""
    reasons = list(program.refusals(nnet, computation, part.commands))
    if reasons:
        raise ExportError(f"ONNX cannot express this computation: {'; '.join(reasons)}")


def _chosen(parts: program.Parts, name: PartName) -> program.Part:
    """Returns the part of this name.

    Raises:
        ExportError: there is no such part.
    """
    is_loop = parts.loop_start is not None
    if name not in ("whole", "start", "round"):
        raise ExportError(f"part must be 'whole', 'start' or 'round' (got {name!r})")
    if is_loop != (name != "whole"):
        expected = (
            "'start' or 'round' for a loop"
            if is_loop
            else "'whole' for a computation without a loop"
        )
        raise ExportError(f"part must be {expected} (got {name!r})")
    count = len(parts.segments)
    first = parts.loop_start or 0
    return parts.joined(0, first) if name == "start" else parts.joined(first, count)


def export(
    nnet: Nnet,
    computation: NnetComputation,
    part: program.Part,
    sequences: int | str | None,
    metadata: Mapping[str, str],
    one_row: Collection[str] = (),
    opset: int = OPSET,
) -> onnx.ModelProto:
    """Returns a part of a computation as a model; see `to_onnx` and `parts_of`."""
    translator, ports = _begun(nnet, computation, part, sequences, one_row, opset)
    translator.run(part.commands)
    ports.hand_on(translator.matrices)
    described = description(nnet, ports.input_sizes, ports.output_sizes)
    return translator.graph.model("nnet3", {**described, **metadata})


def _begun(
    nnet: Nnet,
    computation: NnetComputation,
    part: program.Part,
    sequences: int | str | None,
    one_row: Collection[str] = (),
    opset: int = OPSET,
) -> tuple[program.Translator, Ports]:
    """Returns a translator that is ready to run the commands of a part, and its graph's ports."""
    graph = GraphBuilder(sequences, opset)
    ports = Ports(nnet, computation, graph, part, one_row)
    translator = program.Translator(nnet, computation, graph, ports)
    ports.take_state(translator.matrices)
    return translator, ports
