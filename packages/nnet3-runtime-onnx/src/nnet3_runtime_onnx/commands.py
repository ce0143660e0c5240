"""A part of a computation as a graph: inputs, the nodes that each command adds, and outputs."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
from nnet3_computation import NnetComputation, commands
from nnet3_descriptors import ComponentProperties, Nnet
from numpy.typing import NDArray

from nnet3_runtime_onnx.components import Call, translate, why_not
from nnet3_runtime_onnx.errors import ExportError
from nnet3_runtime_onnx.graph import OPSET, GraphBuilder, Tensor, concat
from nnet3_runtime_onnx.matrices import Matrices, Region, sums_of_ranges

STATE, NEXT_STATE = "state", "next_state"
"""The prefixes of the names of inputs and outputs that are state."""

State = Mapping[int, NDArray[np.intp]]
"""Matrices, ascending, and for each the rows that matter, ascending; maybe none."""


@attrs.frozen(eq=False)
class Part:
    """Commands that one model runs.

    Attributes:
        commands: Their positions.
        given: The matrices that exist before them, with the rows that these or later commands use.
        handed_on: The results and given matrices of these commands that later ones use.
    """

    commands: range
    given: State
    handed_on: State


def state_names(nnet: Nnet, computation: NnetComputation) -> list[str]:
    """Returns a name for each matrix: the name of its node, if it is known, and its number."""
    names = []
    for matrix in range(len(computation.matrices)):
        node = -1
        if computation.matrix_debug_info:
            node = computation.matrix_debug_info[matrix].node
        names.append(f"m{matrix}" if node < 0 else f"{nnet.nodes[node].name}.m{matrix}")
    return names


class Translator:
    """Adds a part of a computation to a graph: its inputs, its commands, and its outputs.

    Attributes:
        nnet: The network.
        computation: The computation.
        graph: The graph.
        matrices: The matrices of the commands.
        times: Number of commands that propagate each component, by number of the component.
        input_sizes: (rows, columns) by node, as the model takes them.
        output_sizes: (rows, columns) by node.
    """

    def __init__(
        self,
        nnet: Nnet,
        computation: NnetComputation,
        part: Part,
        sequences: int | str | None = None,
        one_row: Collection[str] = (),
        opset: int = OPSET,
    ) -> None:
        """Adds the inputs to a new graph, and keeps the names of the outputs.

        Args:
            nnet: The network.
            computation: One of its computations.
            part: Of the computation.
            sequences: The size or name of the leading axis, if any.
            one_row: Input nodes whose rows are all the same: the model takes one.
            opset: The version of the operators.

        Raises:
            ExportError: an input or output has a name like those of state.
        """
        self.nnet = nnet
        self.computation = computation
        self.graph = GraphBuilder(sequences, opset)
        self.matrices = Matrices(self.graph, computation)
        self._lead = [] if sequences is None else [sequences]
        self._part = part
        self._one_row = one_row
        self._commands = computation.commands[part.commands.start : part.commands.stop]
        self.times = Counter(
            c.component for c in self._commands if isinstance(c, commands.Propagate)
        )
        self.input_sizes = {
            name: (1 if name in one_row else rows, columns)
            for name, (rows, columns) in self._sizes(commands.AcceptInput).items()
        }
        self.output_sizes = self._sizes(commands.ProvideOutput)
        for name in (*self.input_sizes, *self.output_sizes):
            if name.startswith((f"{STATE}.", f"{NEXT_STATE}.")):
                raise ExportError(
                    f"node '{name}': the names of inputs and outputs that are state begin like this"
                )
        names = state_names(nnet, computation)
        given, self._handed_on = (
            {matrix: f"{prefix}.{names[matrix]}" for matrix, rows in state.items() if len(rows)}
            for prefix, state in ((STATE, part.given), (NEXT_STATE, part.handed_on))
        )
        self._inputs = {name: self._input(name, size) for name, size in self.input_sizes.items()}
        self._rows_taken: dict[str, int] = defaultdict(int)
        self._provided: dict[str, list[Tensor]] = defaultdict(list)
        self.graph.reserve([*self.output_sizes, *self._handed_on.values()])
        for matrix, rows in part.given.items():
            if matrix in given:
                size = len(rows), int(computation.matrices[matrix, 1])
                self.matrices.set_matrix(matrix, self._input(given[matrix], size), rows)
            else:  # no row matters
                self.matrices.clear(matrix)

    def _sizes(
        self, command_type: type[commands.AcceptInput | commands.ProvideOutput]
    ) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for command in self._commands:
            if isinstance(command, command_type):
                name = self.nnet.nodes[command.node].name
                rows, columns = self.matrices.shape(command.matrix)
                found[name] = (found.get(name, (0, 0))[0] + rows, columns)
        return found

    def _input(self, name: str, size: tuple[int, int]) -> Tensor:
        value = self.graph.input(name, [*self._lead, *size])
        return Tensor(self.graph, value, size, bool(self._lead))

    def run(self) -> None:
        """Adds the nodes of the commands."""
        for command in self._commands:
            translate_command(command, self)

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

    def add_outputs(self) -> None:
        """Makes the outputs and the next state outputs of the graph."""
        values = {node: concat(tensors, axis=-2) for node, tensors in self._provided.items()}
        for matrix, name in self._handed_on.items():
            rows = self._part.handed_on[matrix]
            values[name] = self.matrices.matrix_tensor(matrix, rows)
        for name, value in values.items():
            self.graph.output(name, value.name, [*self._lead, *value.shape])


@functools.singledispatch
def translate_command(command: commands.Command, to: Translator) -> None:
    """Adds the nodes of a command."""
    raise NotImplementedError


def refusals(nnet: Nnet, computation: NnetComputation, positions: range) -> Iterator[str]:
    """Yields the reason for each component and type of command that cannot be expressed."""
    seen: set[object] = set()
    unknown = translate_command.dispatch(commands.Command)
    program = computation.commands[positions.start : positions.stop]
    for position, command in enumerate(program, positions.start):
        kind = type(command)
        if translate_command.dispatch(kind) is unknown and kind not in seen:
            seen.add(kind)
            yield f"the command {kind.__name__} at {position} is no forward command"
        if isinstance(command, commands.Propagate) and command.component not in seen:
            seen.add(command.component)
            component = nnet.components[command.component]
            if reason := why_not(component):
                name = nnet.component_names[command.component]
                yield f"component '{name}' of type {component.type} {reason}"


# -- memory ----------------------------------------------------------------------------------------


@translate_command.register
def _allocate(
    c: commands.AllocMatrixUndefined | commands.AllocMatrixZeroed, to: Translator
) -> None:
    to.matrices.allocate(c.matrix)


@translate_command.register
def _free(c: commands.DeallocMatrix, to: Translator) -> None:
    to.matrices.free(c.matrix)


@translate_command.register
def _swap(c: commands.SwapMatrix, to: Translator) -> None:
    to.matrices.move(c.source, c.destination)


# -- components ------------------------------------------------------------------------------------


@translate_command.register
def _propagate(c: commands.Propagate, to: Translator) -> None:
    component = to.nnet.components[c.component]
    matrices = to.matrices
    region = matrices.read(c.input) if c.input else Region.of_source(0, 0, component.input_dim)
    call = Call(
        component=component,
        name=to.nnet.component_names[c.component],
        graph=to.graph,
        matrices=matrices,
        region=region,
        rows_out=matrices.shape(c.output)[0],
        times=to.times[c.component],
        indexes=to.computation.precomputed_indexes[c.precomputed_indexes],
    )
    with to.graph.named(call.name):
        value = translate(call)
        if component.properties & ComponentProperties.PROPAGATE_ADDS and c.input != c.output:
            value = matrices.sum(matrices.read(c.output), value)
    matrices.write(c.output, value)


# -- copies and sums -------------------------------------------------------------------------------


@translate_command.register
def _set_const(c: commands.SetConst, to: Translator) -> None:
    to.matrices.write(c.output, to.matrices.filled(c.alpha, to.matrices.shape(c.output)))


_ADDS = (commands.MatrixAdd, commands.AddRows, commands.AddRowsMulti, commands.AddRowRanges)


def _put(c: Any, value: Region, to: Translator) -> None:
    """Sets the output of a command to alpha times a value, or adds this to it."""
    if isinstance(c, _ADDS):
        value = to.matrices.sum(to.matrices.read(c.output), value, c.alpha)
    else:
        value = to.matrices.scaled(value, c.alpha)
    to.matrices.write(c.output, value)


@translate_command.register
def _matrix(c: commands.MatrixCopy | commands.MatrixAdd, to: Translator) -> None:
    _put(c, to.matrices.read(c.input), to)


@translate_command.register
def _rows(c: commands.CopyRows | commands.AddRows, to: Translator) -> None:
    _put(c, to.matrices.read(c.input).take(to.computation.indexes[c.indexes]), to)


@translate_command.register
def _rows_multi(c: commands.CopyRowsMulti | commands.AddRowsMulti, to: Translator) -> None:
    places = to.computation.indexes_multi[c.indexes_multi]
    _put(c, to.matrices.read_rows(places, to.matrices.shape(c.output)[1]), to)


@translate_command.register
def _row_ranges(c: commands.AddRowRanges, to: Translator) -> None:
    ranges = np.maximum(to.computation.indexes_ranges[c.indexes_ranges], 0)
    _put(c, sums_of_ranges(to.matrices, to.matrices.read(c.input), ranges), to)


@translate_command.register
def _to_rows_multi(c: commands.CopyToRowsMulti | commands.AddToRowsMulti, to: Translator) -> None:
    places = to.computation.indexes_multi[c.indexes_multi]
    value = to.matrices.read(c.input)
    if isinstance(c, commands.AddToRowsMulti):
        before = to.matrices.read_rows(places, value.columns)
        value = to.matrices.sum(before, value, c.alpha)
    else:
        value = to.matrices.scaled(value, c.alpha)
    to.matrices.write_rows(places, value)


# -- inputs, outputs, and commands without effect -------------------------------------------------


@translate_command.register
def _accept_input(c: commands.AcceptInput, to: Translator) -> None:
    value = to.accept(to.nnet.nodes[c.node].name, to.matrices.shape(c.matrix))
    to.matrices.set_matrix(to.matrices.matrix_of(c.matrix), value)


@translate_command.register
def _provide_output(c: commands.ProvideOutput, to: Translator) -> None:
    value = to.matrices.tensor(to.matrices.read(c.matrix))
    to.provide(to.nnet.nodes[c.node].name, value)


@translate_command.register
def _nothing(
    c: commands.CompressMatrix
    | commands.GotoLabel
    | commands.NoOperation
    | commands.NoOperationLabel
    | commands.NoOperationMarker
    | commands.StoreStats,
    to: Translator,
) -> None:
    """Adds nothing: statistics belong to training, compression to the backward part."""
