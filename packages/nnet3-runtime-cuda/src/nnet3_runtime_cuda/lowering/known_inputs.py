"""Finds the part of a recurrent layer's input that is known before the recurrence.

An LSTM's gates are an affine map of its input at a frame and its own output some frames before.
Compiled, every step copies a few rows of the input into a matrix, beside the recurrent part, and
multiplies that by the parameters. The input's part of the products can be had for many steps at
once, in one product with many rows, and then a step reads only the recurrent parameters:

    m1(:, 0:1023) = m7(8:15, :)                y(8:135, :) = m7(8:135, :) A(:, 0:1023)^T + b
    m1(:, 1024:1279) = m4               =>     ...
    m2 = gates.propagate(m1)                   m2 = m4 A(:, 1024:1279)^T + y(8:15, :)

The copies are left in place, as backward commands may need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
from nnet3_compiler import commands as c
from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.declaration import Access, Command, OperandKind

from .pending_zeros import Area

ROWS_AT_ONCE = 256
"""The input's part is computed for so many rows at a time: enough for the product to be fast."""

CHANGING_ROWS_AT_ONCE = 640
"""The same with parameters that may change, which the library copies for each product."""

MOST_ROWS = 48
"""A step with more rows than this is left as it is: its own product is fast."""

FEWEST_STEPS = 3


@attrs.frozen(kw_only=True)
class KnownStep:
    """A Propagate command whose first input columns were copied from another matrix.

    Attributes:
        position: Of the command.
        component: Number of the component.
        output_dim: Number of columns of its output.
        source: Number of the matrix that they were copied from.
        version: How often that matrix had been written to.
        area: Where in it they were.
        is_freed: Whether that matrix is gone by then, so that only an earlier step can read it.
    """

    position: int
    component: int
    output_dim: int
    source: int
    version: int
    area: Area
    is_freed: bool = False

    def follows(self, other: KnownStep) -> bool:
        """Whether this one's rows lie directly before or behind the other's, in the same matrix."""
        kind, other_kind = (
            (s.component, s.source, s.version, s.area.column, s.area.column_end)
            for s in (self, other)
        )
        touches = self.area.row == other.area.row_end or self.area.row_end == other.area.row
        return kind == other_kind and touches


@attrs.frozen(kw_only=True)
class KnownSteps:
    """Steps whose known part is computed in one product, before the first of them.

    Attributes:
        steps: In the order of the commands.
        area: The rows and columns of the source that they need together.
    """

    steps: tuple[KnownStep, ...]
    area: Area

    def rows_at(self, position: int) -> slice:
        """The rows, of those of the product, that belong to the command at a position."""
        step = next(step for step in self.steps if step.position == position)
        return slice(step.area.row - self.area.row, step.area.row_end - self.area.row)


def plan_known_inputs(
    computation: NnetComputation,
    can_split: Callable[[int], bool],
    rows_at_once: Callable[[int], int] = lambda _: ROWS_AT_ONCE,
) -> dict[int, KnownSteps]:
    """Finds all steps whose input is partly known before the recurrence.

    Args:
        computation: The computation; only its forward commands are looked at.
        can_split: Whether the component of a number is an affine map, which can be computed for
            some columns of its input at a time.
        rows_at_once: Of about how many rows the component's input part is to be computed at a time.

    Returns:
        For the position of each such Propagate, the steps that it is computed with.
    """
    plan: dict[int, KnownSteps] = {}
    series: dict[tuple[int, int], list[KnownStep]] = {}
    for step in _Trace(computation, can_split).steps():
        series.setdefault((step.component, step.source), []).append(step)
    for (component, _), steps in series.items():
        for chunk in _chunks(steps, rows_at_once(component)):
            if len(chunk.steps) >= FEWEST_STEPS:
                plan.update((step.position, chunk) for step in chunk.steps)
    return plan


def _chunks(steps: Sequence[KnownStep], rows_at_once: int) -> Iterator[KnownSteps]:
    """Consecutive steps that follow one another in the source, about so many rows at a time."""
    chunk: list[KnownStep] = []
    for step in steps:
        rows = sum(s.area.row_end - s.area.row for s in chunk)
        if chunk and (rows >= rows_at_once or not _continues(chunk, step)):
            yield _joined(chunk)
            chunk = []
        if chunk or not step.is_freed:
            chunk.append(step)
    if chunk:
        yield _joined(chunk)


def _continues(chunk: list[KnownStep], step: KnownStep) -> bool:
    """Whether a step follows the last of a chunk without lying on another one of it."""
    return step.follows(chunk[-1]) and not any(step.area.overlaps(other.area) for other in chunk)


def _joined(chunk: Sequence[KnownStep]) -> KnownSteps:
    first = chunk[0].area
    area = attrs.evolve(
        first,
        row=min(step.area.row for step in chunk),
        row_end=max(step.area.row_end for step in chunk),
    )
    return KnownSteps(steps=tuple(chunk), area=area)


class _Trace:
    """Follows the forward commands, and knows what copies the matrices hold."""

    def __init__(self, computation: NnetComputation, can_split: Callable[[int], bool]) -> None:
        self._computation = computation
        self._can_split = can_split
        self._submatrices = computation.submatrices.tolist()
        self._versions = [0] * len(computation.matrices)
        self._freed: set[int] = set()
        # For each matrix the areas that are copies, with source, its version, and the area there.
        self._copies: dict[int, list[tuple[Area, int, int, Area]]] = {}

    def steps(self) -> Iterator[KnownStep]:
        """The steps whose input is partly known, in the order of the commands."""
        commands = self._computation.commands
        for position in range(self._computation.forward_end):
            command = commands[position]
            if isinstance(command, c.Propagate) and self._can_split(command.component):
                step = self._known_step(position, command)
                if step is not None:
                    yield step
            if isinstance(command, c.DeallocMatrix):
                # What was copied from it before may still be computed from an earlier step on.
                self._freed.add(self._area(command.matrix)[0])
                continue
            for matrix, area in self._written(command):
                self._note_write(matrix, area)
            if isinstance(command, c.MatrixCopy) and command.alpha == 1.0:
                self._note_copy(command)
            elif isinstance(command, c.NoOperationLabel):
                # What a loop holds when it begins anew is another matter.
                self._copies.clear()

    def _area(self, submatrix: int) -> tuple[int, Area]:
        matrix, row, rows, column, columns = self._submatrices[submatrix]
        return matrix, Area(row, row + rows, column, column + columns)

    def _known_step(self, position: int, command: c.Propagate) -> KnownStep | None:
        matrix, area = self._area(command.input)
        if area.row_end - area.row > MOST_ROWS:
            return None
        for copy, source, version, origin in self._copies.get(matrix, ()):
            rows = (copy.row, copy.row_end) == (area.row, area.row_end)
            prefix = copy.column == area.column and copy.column_end < area.column_end
            if rows and prefix and version == self._versions[source]:
                return KnownStep(
                    position=position,
                    component=command.component,
                    output_dim=self._submatrices[command.output][4],
                    source=source,
                    version=version,
                    area=origin,
                    is_freed=source in self._freed,
                )
        return None

    def _written(self, command: Command) -> Iterable[tuple[int, Area]]:
        """What a command writes to, or allocates or swaps: matrices and areas."""
        for operand in command.OPERANDS:
            value = getattr(command, operand.name)
            writes = bool(operand.access & Access.WRITE)
            if operand.kind == OperandKind.WHOLE_MATRIX or (
                operand.kind == OperandKind.SUBMATRIX and writes
            ):
                yield self._area(value)
            elif operand.kind == OperandKind.INDEXES_MULTI and writes:
                pairs = self._computation.indexes_multi[value]
                for submatrix in set(pairs[:, 0].tolist()) - {-1}:
                    yield self._area(submatrix)

    def _note_write(self, matrix: int, area: Area) -> None:
        self._versions[matrix] += 1
        self._freed.discard(matrix)
        copies = self._copies.get(matrix)
        if copies:
            self._copies[matrix] = [copy for copy in copies if not copy[0].overlaps(area)]

    def _note_copy(self, command: c.MatrixCopy) -> None:
        matrix, area = self._area(command.output)
        source, origin = self._area(command.input)
        if source != matrix:
            copy = (area, source, self._versions[source], origin)
            self._copies.setdefault(matrix, []).append(copy)
