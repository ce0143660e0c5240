"""Ports: the inputs, outputs and properties of a model, and its state from call to call."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping

import numpy as np
from nnet3_computation import AcceptInput, NnetComputation, ProvideOutput
from nnet3_descriptors import ComponentNode, Nnet, OutputNode

from nnet3_runtime_onnx.errors import ExportError
from nnet3_runtime_onnx.graph import GraphBuilder, Tensor, concat
from nnet3_runtime_onnx.matrices import Matrices
from nnet3_runtime_onnx.program.parts import Part

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
