"""Areas of matrices: the rows and columns that submatrices cover, and what commands do with them.

`PendingZeros` are the areas still to be zeroed; `MatrixUses` has the accesses of all commands,
for all rules of the plan.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nnet3_computation import NnetComputation
from nnet3_computation import commands as c
from nnet3_computation.commands import Access, Command, OperandKind


class Area(NamedTuple):
    """Rows row <= r < row_end and columns column <= c < column_end of a matrix; not empty.

    Attributes:
        matrix: Number of the matrix.
        row: The first row.
        row_end: Behind the last row.
        column: The first column.
        column_end: Behind the last column.
    """

    matrix: int
    row: int
    row_end: int
    column: int
    column_end: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.row_end - self.row

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.column_end - self.column

    def contains(self, other: Area) -> bool:
        """Whether all of the other lies within this one."""
        return (
            self.matrix == other.matrix
            and self.row <= other.row
            and other.row_end <= self.row_end
            and self.column <= other.column
            and other.column_end <= self.column_end
        )

    def overlaps(self, other: Area) -> bool:
        """Whether the two have elements in common."""
        return (
            self.matrix == other.matrix
            and self.row < other.row_end
            and other.row < self.row_end
            and self.column < other.column_end
            and other.column < self.column_end
        )

    def without(self, other: Area) -> list[Area]:
        """The rest of this area when another one, which lies within it, is cut out."""
        rest = []
        if self.row < other.row:
            rest.append(self._replace(row_end=other.row))
        if other.row_end < self.row_end:
            rest.append(self._replace(row=other.row_end))
        if self.column < other.column:
            rest.append(other._replace(column=self.column, column_end=other.column))
        if other.column_end < self.column_end:
            rest.append(other._replace(column=other.column_end, column_end=self.column_end))
        return rest


def areas_of(computation: NnetComputation) -> list[Area]:
    """The area of each submatrix of a computation."""
    return [
        Area(matrix, row, row + rows, column, column + columns)
        for matrix, row, rows, column, columns in computation.submatrices.tolist()
    ]


def wholes_of(computation: NnetComputation) -> list[Area]:
    """All of each matrix of a computation."""
    return [
        Area(matrix, 0, rows, 0, columns)
        for matrix, (rows, columns) in enumerate(computation.matrices.tolist())
    ]


class PendingZeros:
    """The areas of each matrix whose zeroing is postponed until it is needed; often it never is.

    If commands only add to a zeroed matrix, it need not be zeroed: the first sum can replace the
    values. So zeroed areas are only noted. If an area is still pending as a whole, a command that
    adds to it sets it instead. Before any other command, the pending areas that it accesses are
    zeroed.
    """

    def __init__(self) -> None:
        self._areas: dict[int, list[Area]] = {}

    def note(self, area: Area) -> None:
        """Notes that an area must be zero; this covers pending areas within it."""
        kept = [old for old in self._areas.get(area.matrix, []) if not area.contains(old)]
        self._areas[area.matrix] = [*kept, area]

    def forget(self, matrix: int) -> None:
        """Notes that the contents of a matrix no longer matter."""
        self._areas.pop(matrix, None)

    def take(self, area: Area) -> bool:
        """Whether all of an area is pending; if so it no longer is, and must now be set."""
        areas = self._areas.get(area.matrix, [])
        for number, old in enumerate(areas):
            if old.contains(area) and not any(
                other.overlaps(area) for other in areas if other is not old
            ):
                areas[number : number + 1] = old.without(area)
                return True
        return False

    def touching(self, area: Area) -> list[Area]:
        """Removes and returns the pending areas that overlap an area: they must be zeroed now."""
        areas = self._areas.get(area.matrix)
        if not areas:
            return []
        touched = [old for old in areas if old.overlaps(area)]
        if touched:
            self._areas[area.matrix] = [old for old in areas if not old.overlaps(area)]
        return touched

    def all(self) -> list[Area]:
        """Removes and returns everything that is pending."""
        everything = [area for areas in self._areas.values() for area in areas]
        self._areas.clear()
        return everything


# ---- the accesses of commands ----


class Use(NamedTuple):
    """A command touches an area of a matrix.

    Attributes:
        position: Of the command.
        area: The area.
        changes: Whether the command may change it; so do those that allocate and free the matrix.
    """

    position: int
    area: Area
    changes: bool


class MatrixUses:
    """The uses of all matrices, in the order of the commands.

    Attributes:
        computation: The computation.
        commands: All commands.
        areas: The areas of its submatrices.
        wholes: All of each matrix.
        label: Position of the label that a loop goes back to; None without a loop.
    """

    def __init__(self, computation: NnetComputation) -> None:
        """Collects the uses."""
        self.computation = computation
        self.commands: list[Command] = list(computation.commands)
        self.areas, self.wholes = areas_of(computation), wholes_of(computation)
        self.label: int | None = None
        self._uses: dict[int, list[Use]] = defaultdict(list)
        for position, command in enumerate(self.commands):
            if isinstance(command, c.GotoLabel):
                self.label = command.label
            for area, changes in self._touched(command):
                self._uses[area.matrix].append(Use(position, area, changes))

    def _touched(self, command: Command) -> Iterator[tuple[Area, bool]]:
        """The areas that a command touches, and whether it may change them."""
        for operand in command.OPERANDS:
            value = getattr(command, operand.name)
            changes = operand.access != Access.READ
            if operand.kind in (OperandKind.SUBMATRIX, OperandKind.WHOLE_MATRIX) and value:
                yield self.areas[value], changes
            elif operand.kind == OperandKind.INDEXES_MULTI:
                pairs = self.computation.indexes_multi[value]
                for submatrix in set(pairs[:, 0].tolist()) - {-1}:
                    yield self.areas[submatrix], changes

    def between(self, matrix: int, after: int, before: int) -> Sequence[Use]:
        """The uses of a matrix after one position and before another."""
        uses = self._uses[matrix]
        first = bisect.bisect_right(uses, after, key=lambda use: use.position)
        last = bisect.bisect_left(uses, before, key=lambda use: use.position)
        return uses[first:last]

    def changes_before(self, matrix: int, before: int) -> Iterator[Use]:
        """The changes of a matrix before a position, the last change first."""
        uses = self._uses[matrix]
        last = bisect.bisect_left(uses, before, key=lambda use: use.position)
        return (uses[number] for number in range(last - 1, -1, -1) if uses[number].changes)

    def is_touched(self, area: Area, after: int, before: int, *, changes_only: bool) -> bool:
        """Whether commands between two positions touch an area, or change it."""
        return any(
            (use.changes or not changes_only) and use.area.overlaps(area)
            for use in self.between(area.matrix, after, before)
        )

    def is_rewritten(self, matrix: int, after: int, before: int) -> bool:
        """Whether commands between two positions change a matrix otherwise than by freeing it."""
        return any(
            use.changes and not isinstance(self.commands[use.position], c.DeallocMatrix)
            for use in self.between(matrix, after, before)
        )

    def is_freed(self, matrix: int, before: int) -> bool:
        """Whether the last change of a matrix before a position was to free it."""
        last = next(self.changes_before(matrix, before), None)
        return last is not None and isinstance(self.commands[last.position], c.DeallocMatrix)

    def is_zeroed(self, matrix: int, before: int) -> bool:
        """Whether, before a position, no command has used a matrix since it was zeroed."""
        uses = self.between(matrix, -1, before)
        return bool(uses) and isinstance(self.commands[uses[-1].position], c.AllocMatrixZeroed)

    def is_one_round(self, first: int, last: int) -> bool:
        """Whether two positions are both before a loop, or both in the same round of it."""
        return self.label is None or (first < self.label) == (last < self.label)


def is_end(command: Command) -> bool:
    """Whether a command gives a matrix memory or takes it away: the content is lost."""
    return isinstance(command, c.AllocMatrixUndefined | c.AllocMatrixZeroed | c.DeallocMatrix)
