"""to_onnx: from the commands of a computation to a model."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import numpy as np
import onnx
from nnet3_computation import NnetComputation, check_runnable
from nnet3_descriptors import ComponentNode, Nnet, OutputNode
from numpy.typing import NDArray

from nnet3_runtime_onnx.commands import Part, Translator, refusals
from nnet3_runtime_onnx.errors import ExportError
from nnet3_runtime_onnx.graph import OPSET, RUNTIMES

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
        ComputationError: the network lacks a node or component of the computation, or this cannot
            be run.
    """
    segments = parts_of(nnet, computation)
    check_form(sequences, metadata, opset)
    for name in one_row:
        if name not in {node.name for node in nnet.input_nodes}:
            raise ExportError(f"'one_row' must name input nodes; there is no '{name}'")
    chosen = _chosen(segments, computation.forward_segments[1], part)
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


def parts_of(nnet: Nnet, computation: NnetComputation) -> tuple[Part, ...]:
    """Returns the forward segments, with the rows of the state that commands read, sooner or later.

    Each segment is translated for a trial, with all matrices that exist before it as its state.

    Raises:
        ExportError: standard operators cannot express it; see `to_onnx`.
        ComputationError: the network lacks a node or component of the computation, or this cannot
            be run.
    """
    computation.check_network(nnet)
    check_runnable(nnet, computation)
    ranges, loop_start = computation.forward_segments
    reasons = list(refusals(nnet, computation, range(ranges[0].start, ranges[-1].stop)))
    if reasons:
        raise ExportError(f"ONNX cannot express this computation: {'; '.join(reasons)}")
    if len(ranges) == 1 and loop_start is None:
        return (Part(ranges[0], {}, {}),)
    heights = computation.matrices[:, 0].tolist()
    matters: list[Rows] = []
    origins: list[Mapping[int, NDArray[np.intp]]] = []
    for commands in ranges:
        existing = origins[-1] if origins else {}
        given = {matrix: np.arange(heights[matrix]) for matrix in existing}
        translator = Translator(nnet, computation, Part(commands, given, {}))
        matters.append(translator.matrices.watch(given))
        translator.run()
        origins.append(translator.matrices.origins())
    ends = [*range(1, len(ranges)), loop_start]
    changed = True
    while changed:
        changed = False
        for k, end in reversed(list(enumerate(ends))):
            before = {} if end is None else _before(matters[k], origins[k], matters[end])
            for matrix, rows in before.items():
                both = matters[k][matrix] | rows
                changed |= bool((both != matters[k][matrix]).any())
                matters[k][matrix] = both
    return tuple(
        Part(commands, _numbers(matters[k]), {} if end is None else _numbers(matters[end]))
        for k, (commands, end) in enumerate(zip(ranges, ends, strict=True))
    )


Rows = dict[int, NDArray[np.bool_]]
"""Whether a row is used, for each row of some matrices."""


def _before(given: Rows, origins: Mapping[int, NDArray[np.intp]], after: Rows) -> Rows:
    """Returns the rows that a segment copies to rows which are used afterwards."""
    found = {matrix: np.zeros_like(rows) for matrix, rows in given.items()}
    for matrix, rows in after.items():
        if matrix not in origins:  # freed in a round, which accepts or allocates it again
            continue
        needed = origins[matrix][rows[origins[matrix][:, 0]]]
        for source in found:
            found[source][needed[needed[:, 1] == source, 2]] = True
    return found


def _numbers(rows: Rows) -> dict[int, NDArray[np.intp]]:
    """Returns the numbers of rows that matter; none of a matrix whose rows are only copied."""
    return {matrix: np.flatnonzero(each) for matrix, each in rows.items()}


def _chosen(segments: Sequence[Part], loop_start: int | None, name: PartName) -> Part:
    """Returns the part of this name.

    Raises:
        ExportError: there is no such part.
    """
    if name not in ("whole", "start", "round"):
        raise ExportError(f"part must be 'whole', 'start' or 'round' (got {name!r})")
    if (loop_start is None) != (name == "whole"):
        expected = (
            "'whole' for a computation without a loop"
            if loop_start is None
            else "'start' or 'round' for a loop"
        )
        raise ExportError(f"part must be {expected} (got {name!r})")
    chosen = segments[:loop_start] if name == "start" else segments[loop_start:]
    if not chosen:
        raise ExportError("the loop has no start: its first command is the label")
    commands = range(chosen[0].commands.start, chosen[-1].commands.stop)
    return Part(commands, chosen[0].given, chosen[-1].handed_on)


def export(
    nnet: Nnet,
    computation: NnetComputation,
    part: Part,
    sequences: int | str | None,
    metadata: Mapping[str, str],
    one_row: Collection[str] = (),
    opset: int = OPSET,
) -> onnx.ModelProto:
    """Returns a part of a computation as a model; see `to_onnx` and `parts_of`."""
    translator = Translator(nnet, computation, part, sequences, one_row, opset)
    translator.run()
    translator.add_outputs()
    described = description(nnet, translator.input_sizes, translator.output_sizes)
    return translator.graph.model("nnet3", {**described, **metadata})


_MEANINGS = {"LogSoftmaxComponent": "log-probabilities", "SoftmaxComponent": "probabilities"}
"""The kind of output of each component type; the output of other types is not normalized."""


Sizes = Mapping[str, tuple[int | None, int]]
"""(rows, columns) by node; None for any number of rows."""


def description(nnet: Nnet, input_sizes: Sizes, output_sizes: Sizes) -> dict[str, str]:
    """Returns the properties that follow from the network and the request."""
    inputs = {name: {"rows": rows, "dim": dim} for name, (rows, dim) in input_sizes.items()}
    outputs = {
        name: {"rows": rows, "dim": dim, "values": _meaning(nnet, name)}
        for name, (rows, dim) in output_sizes.items()
    }
    return {
        "model_author": "nnet3-runtime-onnx",
        "nnet3.inputs": json.dumps(inputs),
        "nnet3.outputs": json.dumps(outputs),
    }


def _meaning(nnet: Nnet, name: str) -> str:
    """Returns the kind of the values of an output, according to its last component."""
    nodes = {node.name: node for node in nnet.nodes}
    node = nodes[name]
    if isinstance(node, OutputNode) and str(node.descriptor) in nodes:
        node = nodes[str(node.descriptor)]
    if isinstance(node, ComponentNode):
        return _MEANINGS.get(nnet.component(node.component).type, "not normalized")
    return "not normalized"
