"""Commands as statements of C."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

import numpy as np
from nnet3_computation import NnetComputation, commands, plan_memory
from nnet3_computation.commands import origins
from nnet3_descriptors import ComponentProperties, Nnet
from nnet3_descriptors.components import Component
from numpy.typing import NDArray

from nnet3_runtime_c.calls import Call, Place, Resources
from nnet3_runtime_c.components import joined, statements, why_not

Rows = NDArray[np.int64]

_ALIGNMENT = 64
_FLOAT = 4
_NOTHING = Place(0, 0, 0, 0)


def c_name(node: str) -> str:
    """The name of a node in C, behind `in_` or `out_`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", node)


def in_comment(text: str) -> str:
    """A name for a comment, which it cannot end."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", text)


class Converter:
    """Converts commands one after the other.

    Attributes:
        computation: The computation.
        resources: The constants and the memory so far.
    """

    def __init__(
        self, nnet: Nnet, computation: NnetComputation, name: str, *, int8: bool = False
    ) -> None:
        """Begins without constants; the arguments are those of `to_c`."""
        plan = plan_memory(computation, alignment=_ALIGNMENT)
        self._nnet = nnet
        self.computation = computation
        self._submatrices: list[list[int]] = computation.submatrices.tolist()
        self._columns: list[int] = computation.matrices[:, 1].tolist()
        self._offsets: list[int] = (plan.offsets // _FLOAT).tolist()
        self.resources = Resources(name, -(-plan.arena_bytes // _FLOAT), int8=int8)

    def place(self, submatrix: int) -> Place:
        """Where a submatrix lies; an empty place for 0."""
        if not submatrix:
            return _NOTHING
        matrix, row, rows, column, columns = self._submatrices[submatrix]
        stride = self._columns[matrix]
        return Place(self._offsets[matrix] + row * stride + column, rows, columns, stride)

    def lines(self, program: Sequence[commands.Command], first: int) -> Iterator[str]:
        """The statements of commands, with a comment before those of each component.

        Args:
            program: The commands.
            first: The number of the first of them.
        """
        swaps: list[commands.SwapMatrix] = []
        done = 0
        for number, command in enumerate(program):
            if number < done:
                continue
            if isinstance(command, commands.SwapMatrix):
                swaps.append(command)
                continue
            yield from self._moves(swaps)
            swaps = []
            if isinstance(command, commands.Propagate):
                call, done = self._propagation(program, number)
                for each, joint in enumerate(program[number:done], first + number):
                    if isinstance(joint, commands.Propagate):
                        component, name = self._component(joint)
                        yield f"/* c{each}: {in_comment(name)}, {component.type} */"
                yield from statements(call)
            else:
                yield from convert(command, self)
            self.resources.clear()
        yield from self._moves(swaps)

    def _propagation(self, program: Sequence[commands.Command], number: int) -> tuple[Call, int]:
        """The call of a component with those behind it that it is joined with.

        Returns:
            The call, and the number of the first command that is not part of it.
        """
        command = program[number]
        assert isinstance(command, commands.Propagate)
        component, name = self._component(command)
        call = Call(
            component=component,
            name=name,
            x=self.place(command.input),
            y=self.place(command.output),
            indexes=self.computation.precomputed_indexes[command.precomputed_indexes],
            adds=bool(component.properties & ComponentProperties.PROPAGATE_ADDS)
            and command.input != command.output,
            resources=self.resources,
        )
        done = number + 1
        for following in range(done, len(program)):
            other = program[following]
            if isinstance(other, NothingToDo):
                continue
            if not isinstance(other, commands.Propagate) or not (
                other.input == other.output == command.output
            ):
                break
            both = joined(call, *self._component(other))
            if both is None:
                break
            call, done = both, following + 1
        return call, done

    def _component(self, c: commands.Propagate) -> tuple[Component, str]:
        """A component and its name."""
        return self._nnet.components[c.component], self._nnet.component_names[c.component]

    def _moves(self, swaps: Sequence[commands.SwapMatrix]) -> Iterator[str]:
        """Hands matrices over, as if all at once.

        A matrix has one place for ever here, so its content moves, unless the places are the same.
        """
        pairs = [(self.place(source), self.place(to)) for to, source in origins(swaps).items()]
        pairs = [(source, to) for source, to in pairs if source.first != to.first]
        sources = []
        for number, (source, _) in enumerate(pairs):
            if any(_overlap(source, other) for _, other in pairs[: number + 1]):
                kept = self.resources.new(source.rows, source.columns)
                yield _move(source, kept)
                source = kept
            sources.append(source)
        for source, (_, to) in zip(sources, pairs, strict=True):
            yield _move(source, to)
        self.resources.clear()

    def rows_of(self, places: NDArray[np.int32]) -> Rows:
        """The first element of each row that pairs (submatrix, row) name; -1 for none."""
        chosen = [self.place(max(number, 0)) for number in range(len(self._submatrices))]
        first = np.array([each.first for each in chosen], np.int64)
        stride = np.array([each.stride for each in chosen], np.int64)
        number, row = places[:, 0], places[:, 1]
        return np.where(row < 0, -1, first[number] + row * stride[number])

    def node(self, number: int) -> str:
        """The name of a node in C."""
        return c_name(self._nnet.nodes[number].name)


def _overlap(one: Place, other: Place) -> bool:
    ends = one.first + one.rows * one.stride, other.first + other.rows * other.stride
    return one.first < ends[1] and other.first < ends[0]


def _move(source: Place, to: Place) -> str:
    size = source.rows * source.columns
    return f"memcpy(m + {to.first}, m + {source.first}, {size} * sizeof *m);"


@functools.singledispatch
def convert(command: commands.Command, to: Converter) -> Iterator[str]:
    """Yields the statements of a command other than Propagate and SwapMatrix."""
    raise NotImplementedError


def refusals(nnet: Nnet, program: Sequence[commands.Command]) -> Iterator[str]:
    """Yields the reason for each kind of command and component that cannot be expressed."""
    seen: set[object] = {commands.SwapMatrix, commands.Propagate}
    for position, command in enumerate(program):
        kind = type(command)
        if convert.dispatch(kind) is convert.dispatch(commands.Command) and kind not in seen:
            seen.add(kind)
            yield f"the command {kind.__name__} at {position} is no forward command"
        if isinstance(command, commands.Propagate) and command.component not in seen:
            seen.add(command.component)
            component: Component = nnet.components[command.component]
            if why := why_not(component):
                name = nnet.component_names[command.component]
                yield f"component '{name}' of type {component.type} {why}"


@convert.register
def _zeros(c: commands.AllocMatrixZeroed, to: Converter) -> Iterator[str]:
    place = to.place(c.matrix)
    yield f"memset(m + {place.first}, 0, {place.rows * place.columns} * sizeof *m);"


NothingToDo = (
    commands.AllocMatrixUndefined
    | commands.CompressMatrix
    | commands.DeallocMatrix
    | commands.GotoLabel
    | commands.NoOperation
    | commands.NoOperationLabel
    | commands.NoOperationMarker
    | commands.StoreStats
)
"""Places are fixed; statistics and compression belong to training."""


@convert.register
def _nothing(c: NothingToDo, to: Converter) -> Iterator[str]:
    yield from ()


@convert.register
def _accept(c: commands.AcceptInput, to: Converter) -> Iterator[str]:
    place = to.place(c.matrix)
    size = place.rows * place.columns
    yield f"memcpy(m + {place.first}, in_{to.node(c.node)}, {size} * sizeof *m);"


@convert.register
def _provide(c: commands.ProvideOutput, to: Converter) -> Iterator[str]:
    place = to.place(c.matrix)
    size = place.rows * place.columns
    yield f"memcpy(out_{to.node(c.node)}, m + {place.first}, {size} * sizeof *m);"


@convert.register
def _set_const(c: commands.SetConst, to: Converter) -> Iterator[str]:
    y = to.place(c.output)
    yield to.resources.call("fill", y.rows, y.columns, float(c.alpha), y)


@convert.register
def _matrix(c: commands.MatrixCopy | commands.MatrixAdd, to: Converter) -> Iterator[str]:
    x, y = to.place(c.input), to.place(c.output)
    kernel = "copy" if isinstance(c, commands.MatrixCopy) else "add"
    yield to.resources.call(kernel, y.rows, y.columns, float(c.alpha), x, y)


def _gathered(to: Converter, first: Rows, y: Place, alpha: float, *, adds: bool) -> str:
    """Rows that lie anywhere; a copy with a stride where all are equally far apart."""
    steps = np.diff(first)
    is_regular = (first >= 0).all() and (steps >= 0).all() and len(set(steps.tolist())) <= 1
    if is_regular and len(first):
        stride = int(steps[0]) if len(steps) else 0
        kernel = "add" if adds else "copy"
        return to.resources.call(kernel, y.rows, y.columns, alpha, f"m + {first[0]}, {stride}", y)
    table = to.resources.table(first)
    return to.resources.call("gather", y.rows, y.columns, alpha, "m", table, y, adds)


@convert.register
def _rows(c: commands.CopyRows | commands.AddRows, to: Converter) -> Iterator[str]:
    x, rows = to.place(c.input), np.asarray(to.computation.indexes[c.indexes], np.int64)
    first = np.where(rows < 0, -1, x.first + rows * x.stride)
    is_sum = isinstance(c, commands.AddRows)
    yield _gathered(to, first, to.place(c.output), float(c.alpha), adds=is_sum)


@convert.register
def _rows_multi(c: commands.CopyRowsMulti | commands.AddRowsMulti, to: Converter) -> Iterator[str]:
    first = to.rows_of(to.computation.indexes_multi[c.indexes_multi])
    is_sum = isinstance(c, commands.AddRowsMulti)
    yield _gathered(to, first, to.place(c.output), float(c.alpha), adds=is_sum)


@convert.register
def _to_rows_multi(
    c: commands.CopyToRowsMulti | commands.AddToRowsMulti, to: Converter
) -> Iterator[str]:
    x = to.place(c.input)
    table = to.resources.table(to.rows_of(to.computation.indexes_multi[c.indexes_multi]))
    adds = isinstance(c, commands.AddToRowsMulti)
    yield to.resources.call("scatter", x.rows, x.columns, float(c.alpha), x, "m", table, adds)


@convert.register
def _row_ranges(c: commands.AddRowRanges, to: Converter) -> Iterator[str]:
    x, y = to.place(c.input), to.place(c.output)
    table = to.resources.table(np.maximum(to.computation.indexes_ranges[c.indexes_ranges], 0))
    yield to.resources.call("add_ranges", y.rows, y.columns, float(c.alpha), x, table, y)
