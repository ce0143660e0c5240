"""The commands, and the nodes that each adds to the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from nnet3_computation import (
    AcceptInput,
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    Command,
    CompressMatrix,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    DeallocMatrix,
    GotoLabel,
    MatrixAdd,
    MatrixCopy,
    NnetComputation,
    NoOperation,
    NoOperationLabel,
    NoOperationMarker,
    Propagate,
    ProvideOutput,
    SetConst,
    StoreStats,
    SwapMatrix,
)
from nnet3_descriptors import ComponentProperties, Nnet

from nnet3_runtime_onnx.components import Call, translate, why_not
from nnet3_runtime_onnx.graph import GraphBuilder, Tensor
from nnet3_runtime_onnx.matrices import Matrices, sums_of_ranges
from nnet3_runtime_onnx.regions import Region


class Exchange(Protocol):
    """The exchange of inputs and outputs between a model and its user."""

    def accept(self, node: str, shape: tuple[int, int]) -> Tensor:
        """Returns the next rows of an input."""
        ...

    def provide(self, node: str, value: Tensor) -> None:
        """Takes the next rows of an output."""
        ...


class Translator:
    """Adds the nodes of commands to a graph, one command after the other.

    Attributes:
        nnet: The network.
        computation: The computation.
        graph: The graph.
        matrices: The matrices of the commands.
        exchange: The source of inputs, and the target of outputs.
        times: Number of commands that propagate each component, by number of the component.
    """

    def __init__(
        self, nnet: Nnet, computation: NnetComputation, graph: GraphBuilder, exchange: Exchange
    ) -> None:
        """Begins without any matrix."""
        self.nnet = nnet
        self.computation = computation
        self.graph = graph
        self.matrices = Matrices(graph, computation)
        self.exchange = exchange
        self.times = Counter[int]()

    def run(self, commands: range) -> None:
        """Adds the nodes of the commands at these positions."""
        chosen = self.computation.commands[commands.start : commands.stop]
        self.times.update(c.component for c in chosen if isinstance(c, Propagate))
        for command in chosen:
            _TRANSLATIONS[type(command)](command, self)


_TRANSLATIONS: dict[type[Command], Callable[[Any, Translator], None]] = {}


def _translates(
    *types: type[Command],
) -> Callable[[Callable[[Any, Translator], None]], Callable[[Any, Translator], None]]:
    """Registers the function that translates commands of these types."""

    def register(function: Callable[[Any, Translator], None]) -> Callable[[Any, Translator], None]:
        _TRANSLATIONS.update(dict.fromkeys(types, function))
        return function

    return register


def refusals(nnet: Nnet, computation: NnetComputation, commands: range) -> Iterator[str]:
    """Yields the reason for each component and type of command that cannot be expressed."""
    seen: set[object] = set()
    for position, command in enumerate(
        computation.commands[commands.start : commands.stop], commands.start
    ):
        name = type(command).__name__
        if type(command) not in _TRANSLATIONS and name not in seen:
            seen.add(name)
            yield f"the command {name} at {position} is no forward command"
        if isinstance(command, Propagate) and command.component not in seen:
            seen.add(command.component)
            component = nnet.components[command.component]
            reason = why_not(component)
            if reason:
                component_name = nnet.component_names[command.component]
                yield f"component '{component_name}' of type {component.type} {reason}"


# -- memory ----------------------------------------------------------------------------------------


@_translates(AllocMatrixUndefined, AllocMatrixZeroed)
def _allocate(c: AllocMatrixUndefined | AllocMatrixZeroed, to: Translator) -> None:
    to.matrices.allocate(c.matrix)


@_translates(DeallocMatrix)
def _free(c: DeallocMatrix, to: Translator) -> None:
    to.matrices.free(c.matrix)


@_translates(SwapMatrix)
def _swap(c: SwapMatrix, to: Translator) -> None:
    to.matrices.move(c.source, c.destination)


# -- components ------------------------------------------------------------------------------------


@_translates(Propagate)
def _propagate(c: Propagate, to: Translator) -> None:
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


@_translates(SetConst)
def _set_const(c: SetConst, to: Translator) -> None:
    to.matrices.write(c.output, to.matrices.filled(c.alpha, to.matrices.shape(c.output)))


def _set(output: int, value: Region, alpha: float, to: Translator) -> None:
    to.matrices.write(output, to.matrices.scaled(value, alpha))


def _add(output: int, value: Region, alpha: float, to: Translator) -> None:
    to.matrices.write(output, to.matrices.sum(to.matrices.read(output), value, alpha))


@_translates(MatrixCopy)
def _matrix_copy(c: MatrixCopy, to: Translator) -> None:
    _set(c.output, to.matrices.read(c.input), c.alpha, to)


@_translates(MatrixAdd)
def _matrix_add(c: MatrixAdd, to: Translator) -> None:
    _add(c.output, to.matrices.read(c.input), c.alpha, to)


def _rows(c: CopyRows | AddRows, to: Translator) -> Region:
    return to.matrices.read(c.input).take(to.computation.indexes[c.indexes])


@_translates(CopyRows)
def _copy_rows(c: CopyRows, to: Translator) -> None:
    _set(c.output, _rows(c, to), c.alpha, to)


@_translates(AddRows)
def _add_rows(c: AddRows, to: Translator) -> None:
    _add(c.output, _rows(c, to), c.alpha, to)


def _rows_multi(c: CopyRowsMulti | AddRowsMulti, to: Translator) -> Region:
    places = to.computation.indexes_multi[c.indexes_multi]
    return to.matrices.read_rows(places, to.matrices.shape(c.output)[1])


@_translates(CopyRowsMulti)
def _copy_rows_multi(c: CopyRowsMulti, to: Translator) -> None:
    _set(c.output, _rows_multi(c, to), c.alpha, to)


@_translates(AddRowsMulti)
def _add_rows_multi(c: AddRowsMulti, to: Translator) -> None:
    _add(c.output, _rows_multi(c, to), c.alpha, to)


@_translates(CopyToRowsMulti)
def _copy_to_rows_multi(c: CopyToRowsMulti, to: Translator) -> None:
    places = to.computation.indexes_multi[c.indexes_multi]
    to.matrices.write_rows(places, to.matrices.scaled(to.matrices.read(c.input), c.alpha))


@_translates(AddToRowsMulti)
def _add_to_rows_multi(c: AddToRowsMulti, to: Translator) -> None:
    places = to.computation.indexes_multi[c.indexes_multi]
    value = to.matrices.read(c.input)
    before = to.matrices.read_rows(places, value.columns)
    to.matrices.write_rows(places, to.matrices.sum(before, value, c.alpha))


@_translates(AddRowRanges)
def _add_row_ranges(c: AddRowRanges, to: Translator) -> None:
    ranges = to.computation.indexes_ranges[c.indexes_ranges]
    value = sums_of_ranges(to.matrices, to.matrices.read(c.input), np.maximum(ranges, 0))
    _add(c.output, value, c.alpha, to)


# -- inputs, outputs, and commands without effect -------------------------------------------------


@_translates(AcceptInput)
def _accept_input(c: AcceptInput, to: Translator) -> None:
    value = to.exchange.accept(to.nnet.nodes[c.node].name, to.matrices.shape(c.matrix))
    to.matrices.set_matrix(to.matrices.matrix_of(c.matrix), value)


@_translates(ProvideOutput)
def _provide_output(c: ProvideOutput, to: Translator) -> None:
    value = to.matrices.tensor(to.matrices.read(c.matrix))
    to.exchange.provide(to.nnet.nodes[c.node].name, value)


@_translates(
    CompressMatrix, GotoLabel, NoOperation, NoOperationLabel, NoOperationMarker, StoreStats
)
def _nothing(c: Command, to: Translator) -> None:
    """Adds nothing: statistics belong to training, compression to the backward part."""
