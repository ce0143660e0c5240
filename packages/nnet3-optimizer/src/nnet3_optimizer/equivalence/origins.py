"""The commands that computed a difference: for messages, only when two computations differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import attrs
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    AllocMatrixZeroed,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    MatrixAdd,
    MatrixCopy,
)
from nnet3_computation.computation import NnetComputation

from nnet3_optimizer.equivalence.differences import first_column
from nnet3_optimizer.equivalence.execution.components import COMPONENT_CALLS
from nnet3_optimizer.equivalence.execution.execution import execute
from nnet3_optimizer.equivalence.execution.symbolic_state import SymbolicState
from nnet3_optimizer.equivalence.pattern import Pattern
from nnet3_optimizer.equivalence.symbols.keys import rows_of
from nnet3_optimizer.equivalence.symbols.stretches import Stretches
from nnet3_optimizer.equivalence.symbols.unknowns import Unknowns

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

Commands = tuple[tuple[int, ...], tuple[int, ...]]
"""Positions of commands, in the first and in the second computation."""

_WHOLE = MatrixCopy.OPCODE, MatrixAdd.OPCODE
_ROWS = CopyRows.OPCODE, AddRows.OPCODE
_GATHERED = CopyRowsMulti.OPCODE, AddRowsMulti.OPCODE
_SCATTERED = CopyToRowsMulti.OPCODE, AddToRowsMulti.OPCODE


@attrs.frozen
class _Element:
    """An element of a matrix just before some step of a run."""

    step: int
    matrix: int
    row: int
    column: int


@attrs.frozen(eq=False)
class _Write:
    """A write of a command.

    Attributes:
        command: Its position.
        submatrix: The submatrix that it wrote to.
        adds: Whether it added.
        places: The rows that it wrote to, None for all.
        reads: The submatrices that it read before, and their content.
    """

    command: int
    submatrix: int
    adds: bool
    places: list[int] | None
    reads: tuple[tuple[int, Stretches], ...]


@attrs.frozen
class _Source:
    """The command that computed an element, or a term added to it.

    Attributes:
        step: The number of the write.
        row: The row of the matrix that was written.
        commands: The position of the command, after those of the copies that took it from there.
    """

    step: int
    row: int
    commands: tuple[int, ...]


class _Recorder(SymbolicState):
    """A state that remembers what each command read and wrote."""

    def __init__(self, nnet: Nnet, computation: NnetComputation, unknowns: Unknowns) -> None:
        super().__init__(nnet, computation, unknowns, Pattern(computation, 1), thorough=True)
        self.row_blocks = [0] * len(self.row_blocks)  # so that the methods below see all accesses
        self.writes: list[_Write] = []
        self._reads: list[tuple[int, Stretches]] = []
        self._reader = -1

    def read(self, submatrix: int, *, only_signs: bool = False, padded: bool = False) -> Stretches:
        found = super().read(submatrix, only_signs=only_signs, padded=padded)
        if self._reader != self.command:
            self._reader, self._reads = self.command, []
        self._reads.append((submatrix, found.copy()))
        return found

    def allocate_zeroed(self, submatrix: int) -> None:
        self.allocate(submatrix, [0] * self.size(submatrix))

    def allocate(self, submatrix: int, column: list[int]) -> None:
        super().allocate(submatrix, column)
        self._record(submatrix, adds=False, places=None)

    def write(
        self, submatrix: int, given: Stretches, *, adds: bool, places: list[int] | None = None
    ) -> None:
        super().write(submatrix, given, adds=adds, places=places)
        self._record(submatrix, adds=adds, places=places)

    def write_listed(
        self, submatrix: int, given: Stretches, *, adds: bool, places: list[int] | None = None
    ) -> None:
        super().write_listed(submatrix, given, adds=adds, places=places)
        self._record(submatrix, adds=adds, places=places)

    def _record(self, submatrix: int, *, adds: bool, places: list[int] | None) -> None:
        reads = tuple(self._reads) if self._reader == self.command else ()
        self.writes.append(_Write(self.command, submatrix, adds, places, reads))

    # -- back from an element ------------------------------------------------------------------

    def sources(self, element: _Element, copies: tuple[int, ...] = ()) -> Iterator[_Source]:
        """Yields the origins that set and added to an element, the last first; follows copies.

        Args:
            element: The element.
            copies: The positions of the copies that were followed to get there.
        """
        for step in range(element.step - 1, -1, -1):
            write = self.writes[step]
            matrix, row, rows, column, columns = self._submatrices[write.submatrix]
            here = _Element(step, matrix, element.row - row, element.column - column)
            is_inside = 0 <= here.row < rows and 0 <= here.column < columns
            if matrix != element.matrix or not is_inside:
                continue
            if write.places is not None and here.row not in write.places:
                continue
            copied = self._copied(write, here)
            if copied is None:
                yield _Source(step, here.row, (*copies, write.command))
            elif copied.row >= 0:
                yield from self.sources(copied, (*copies, write.command))
            if not write.adds:
                return

    def _copied(self, write: _Write, here: _Element) -> _Element | None:
        """Returns the element that a copy took it from, row -1 for none; None for no copy."""
        table = self.computation.command_table[write.command].tolist()
        opcode, operands = table[OPCODE_COLUMN], table[FIRST_OPERAND_COLUMN:]
        if opcode in _WHOLE:
            return self._element(operands[1], here.row, here)
        if opcode in _ROWS:
            row = int(self.computation.indexes[operands[2]][here.row])
            return self._element(operands[1], row, here)
        if opcode in _GATHERED:
            submatrix, row = self.computation.indexes_multi[operands[1]][here.row].tolist()
            return self._element(submatrix, row if write.places else -1, here)
        if opcode in _SCATTERED:
            pairs = self.computation.indexes_multi[operands[1]].tolist()
            return self._element(operands[0], pairs.index([write.submatrix, here.row]), here)
        return None

    def _element(self, submatrix: int, row: int, here: _Element) -> _Element:
        """Returns an element of a submatrix before a step, in the same column of it."""
        matrix, first, _, column, _ = self._submatrices[submatrix]
        return _Element(here.step, matrix, first + row if row >= 0 else -1, column + here.column)

    def element_read(self, step: int, number: int, row: int, column: int) -> _Element:
        """Returns an element of what the command of a write read."""
        submatrix = self.writes[step].reads[number][0]
        return self._element(submatrix, row, _Element(step, 0, 0, column))


def commands_behind(
    nnet: Nnet,
    computations: tuple[NnetComputation, NnetComputation],
    segments: int | None,
    provided: tuple[int, int],
    place: tuple[int, int],
) -> Commands:
    """Returns the commands, in either computation, where the difference begins.

    The search goes back from an element that differs to the command that computed it. While both
    computations call a component there with arguments that differ, it goes on to the first such
    argument.

    Args:
        nnet: The network.
        computations: Two computations that differ.
        segments: See `execute`.
        provided: Segment and node of a matrix that differs.
        place: Row and column of an element that differs.
    """
    unknowns = Unknowns()
    runs = [_Recorder(nnet, each, unknowns) for each in computations]
    for run in runs:
        execute(run, segments)
    elements = []
    for run in runs:
        submatrix = int(
            run.computation.command_table[
                run.behaviour.provided[provided].command, FIRST_OPERAND_COLUMN
            ]
        )
        matrix, row, _, column, _ = run.pattern.submatrices[submatrix]
        elements.append(_Element(len(run.writes), matrix, row + place[0], column + place[1]))
    return _descend(runs, elements)


def _descend(runs: list[_Recorder], elements: list[_Element]) -> Commands:
    while True:
        found = [_without_zeros(run, each) for run, each in zip(runs, elements, strict=True)]
        one, other = (tuple(sorted({c for s in each for c in s.commands})) for each in found)
        difference = _first_of(runs, *found)
        if difference is None:
            return one, other
        steps, number, rows, column = difference
        elements = [
            run.element_read(step, number, row, column)
            for run, step, row in zip(runs, steps, rows, strict=True)
        ]


def _first_of(
    runs: list[_Recorder], one: list[_Source], other: list[_Source]
) -> tuple[tuple[int, int], int, tuple[int, int], int] | None:
    """Returns the first calls of a component that differ in an argument, and the argument.

    Calls with the same arguments in both computations are left out. None if no call is left: then
    copies and sums make the difference.
    """
    left, differing = list(other), []
    for mine in one:
        found = None
        for its in left:
            calls = [runs[0].writes[mine.step], runs[1].writes[its.step]]
            if _is_same_call(runs, calls):
                found = _first_difference(runs, calls, (mine.row, its.row))
                if found is None:
                    left.remove(its)
                    break
        else:
            if found is not None:
                differing.append(mine)
    for mine, its in product(differing, left):
        calls = [runs[0].writes[mine.step], runs[1].writes[its.step]]
        if _is_same_call(runs, calls):
            found = _first_difference(runs, calls, (mine.row, its.row))
            if found is not None:
                return (mine.step, its.step), *found
    return None


def _is_same_call(runs: list[_Recorder], calls: list[_Write]) -> bool:
    """Whether two commands call the same component in the same way."""
    one, other = (
        run.computation.command_table[call.command, [OPCODE_COLUMN, FIRST_OPERAND_COLUMN]].tolist()
        for run, call in zip(runs, calls, strict=True)
    )
    return one[0] in COMPONENT_CALLS and one == other


def _without_zeros(run: _Recorder, element: _Element) -> list[_Source]:
    """Returns the origins of an element, without zeros to which something was added."""
    sources = list(run.sources(element))
    opcodes = run.computation.command_table[:, OPCODE_COLUMN]
    others = [s for s in sources if opcodes[s.commands[-1]] != AllocMatrixZeroed.OPCODE]
    return others or sources


def _first_difference(
    runs: list[_Recorder], calls: list[_Write], rows: tuple[int, int]
) -> tuple[int, tuple[int, int], int] | None:
    """Returns operand, rows and column of the first argument that differs, None if none does.

    Args:
        runs: The runs of the two computations.
        calls: Calls of the same component that wrote an element that differs, in each.
        rows: The row of the element, in each.
    """
    table = runs[0].computation.command_table
    component = int(table[calls[0].command, FIRST_OPERAND_COLUMN])
    for number, (mine, its) in enumerate(zip(*(call.reads for call in calls), strict=False)):
        keys, others = (list(rows_of(each[1].keys())) for each in (mine, its))
        pairs = [rows]
        if not runs[0].components[component].works_by_rows:
            pairs += [(row, row) for row in range(min(len(keys), len(others)))]
        for row, its_row in pairs:
            if row < len(keys) and its_row < len(others) and keys[row] != others[its_row]:
                column = first_column(mine[1], its[1], row, its_row)
                return number, (row, its_row), column
    return None
