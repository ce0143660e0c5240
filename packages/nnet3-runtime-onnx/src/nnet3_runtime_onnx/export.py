"""to_onnx: from the commands of a computation to a model."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np
import onnx
from nnet3_computation import AcceptInput, NnetComputation, ProvideOutput
from nnet3_descriptors import ComponentNode, Nnet, OutputNode

from nnet3_runtime_onnx.commands import Translator, refusals
from nnet3_runtime_onnx.errors import ExportError
from nnet3_runtime_onnx.graph import OPSET, RUNTIMES, GraphBuilder, Tensor, concat
from nnet3_runtime_onnx.matrices import Matrices
from nnet3_runtime_onnx.parts import Part, Parts, RowUse, with_rows_that_matter

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


def parts_of(nnet: Nnet, computation: NnetComputation) -> Parts:
    """Returns the segments of a computation, with the rows of the state that are used.

    Raises:
        ExportError: standard operators cannot express it; see `to_onnx`.
        ComputationError: the network lacks a node or component of the computation.
    """
    computation.check_network(nnet)
    parts = Parts.of(computation)
    _refuse(nnet, computation, parts.joined(0, len(parts.segments)))

    def use_of(part: Part) -> RowUse:
        translator, _ = _begun(nnet, computation, part, None)
        used = translator.matrices.watch(part.given)
        translator.run(part.commands)
        return RowUse(used, {each: translator.matrices.origins(each) for each in part.handed_on})

    return with_rows_that_matter(parts, use_of)


def _refuse(nnet: Nnet, computation: NnetComputation, part: Part) -> None:
    """Raises an ExportError that names everything that cannot be expressed, if anything."""
    reasons = list(refusals(nnet, computation, part.commands))
    if reasons:
        raise ExportError(f"ONNX cannot express this computation: {'; '.join(reasons)}")


def _chosen(parts: Parts, name: PartName) -> Part:
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
    part: Part,
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
    part: Part,
    sequences: int | str | None,
    one_row: Collection[str] = (),
    opset: int = OPSET,
) -> tuple[Translator, Ports]:
    """Returns a translator that is ready to run the commands of a part, and its graph's ports."""
    graph = GraphBuilder(sequences, opset)
    ports = Ports(nnet, computation, graph, part, one_row)
    translator = Translator(nnet, computation, graph, ports)
    ports.take_state(translator.matrices)
    return translator, ports


STATE, NEXT_STATE = "state", "next_state"
"""The prefixes of the names of inputs and outputs that are state."""


class Ports:
    """The inputs and outputs of one part of a computation.

    Attributes:
        input_sizes: (rows, columns) by node, as the model takes them.
        output_sizes: (rows, columns) by node.
    """

    def __init__(
        self,
        nnet: Nnet,
        computation: NnetComputation,
        graph: GraphBuilder,
        part: Part,
        one_row: Collection[str] = (),
    ) -> None:
        """Adds the inputs to the graph, and keeps the names of the outputs.

        Args:
            nnet: The network.
            computation: One of its computations.
            graph: The graph of the part.
            part: Of the computation.
            one_row: Input nodes whose rows are all the same: the model takes one.

        Raises:
            ExportError: an input or output has a name like those of state.
        """
        self._graph = graph
        self._part = part
        commands = computation.commands[part.commands.start : part.commands.stop]

        def sizes(command_type: type[AcceptInput | ProvideOutput]) -> dict[str, tuple[int, int]]:
            found: dict[str, tuple[int, int]] = {}
            for command in commands:
                if isinstance(command, command_type):
                    name = nnet.nodes[command.node].name
                    rows, columns = computation.submatrices[command.matrix, [2, 4]].tolist()
                    found[name] = (found.get(name, (0, 0))[0] + rows, columns)
            return found

        self.input_sizes: Mapping[str, tuple[int, int]] = {
            name: (1 if name in one_row else rows, columns)
            for name, (rows, columns) in sizes(AcceptInput).items()
        }
        self.output_sizes: Mapping[str, tuple[int, int]] = sizes(ProvideOutput)
        for name in (*self.input_sizes, *self.output_sizes):
            if name.startswith((f"{STATE}.", f"{NEXT_STATE}.")):
                raise ExportError(
                    f"node '{name}': the names of inputs and outputs that are state begin like this"
                )
        names = state_names(nnet, computation)
        self._given, self._handed_on = (
            {matrix: f"{prefix}.{names[matrix]}" for matrix, rows in state.items() if len(rows)}
            for prefix, state in ((STATE, part.given), (NEXT_STATE, part.handed_on))
        )
        self._columns = computation.matrices[:, 1].tolist()
        self._inputs = {name: self._input(name, size) for name, size in self.input_sizes.items()}
        self._one_row = one_row
        self._rows_taken: dict[str, int] = defaultdict(int)
        self._provided: dict[str, list[Tensor]] = defaultdict(list)
        graph.reserve([*self.output_sizes, *self._handed_on.values()])

    def _input(self, name: str, size: tuple[int, int]) -> Tensor:
        leading = self._graph.leading
        lead = [] if leading is None else [leading]
        return Tensor(self._graph, self._graph.input(name, [*lead, *size]), size, bool(lead))

    def accept(self, node: str, shape: tuple[int, int]) -> Tensor:
        """Returns the next rows of an input."""
        if node in self._one_row:
            return self._inputs[node].take(np.zeros(shape[0], np.int64), axis=-2)
        begin = self._rows_taken[node]
        self._rows_taken[node] = end = begin + shape[0]
        return self._inputs[node].slice(range(begin, end), range(shape[1]))

    def provide(self, node: str, value: Tensor) -> None:
        """Takes the next rows of an output."""
        self._provided[node].append(value)

    def take_state(self, matrices: Matrices) -> None:
        """Sets the matrices that are given, those without rows that matter to zeros."""
        for matrix, rows in self._part.given.items():
            if matrix in self._given:
                tensor = self._input(self._given[matrix], (len(rows), self._columns[matrix]))
                matrices.set_matrix(matrix, tensor, rows)
            else:
                matrices.clear(matrix)

    def hand_on(self, matrices: Matrices) -> None:
        """Makes the outputs and the next state outputs of the graph."""
        for node, tensors in self._provided.items():
            self._output(node, concat(tensors, axis=-2))
        for matrix, name in self._handed_on.items():
            self._output(name, matrices.matrix_tensor(matrix, self._part.handed_on[matrix]))

    def _output(self, name: str, value: Tensor) -> None:
        leading = self._graph.leading
        lead = [] if leading is None else [leading]
        self._graph.output(name, value.name, [*lead, *value.shape])


def state_names(nnet: Nnet, computation: NnetComputation) -> list[str]:
    """Returns a name for each matrix: the name of its node, if it is known, and its number."""
    names = []
    for matrix in range(len(computation.matrices)):
        node = -1
        if computation.matrix_debug_info:
            node = computation.matrix_debug_info[matrix].node
        names.append(f"m{matrix}" if node < 0 else f"{nnet.nodes[node].name}.m{matrix}")
    return names


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
