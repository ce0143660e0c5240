"""What the commands of a computation do to which part of which matrix."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence

import attrs
from nnet3_compiler import commands as c
from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.declaration import Access, Command, OperandKind

from .pending_zeros import Area

Place = tuple[int, Area]
"""A matrix and an area of it."""


@attrs.frozen
class Use:
    """A command touches an area of a matrix.

    Attributes:
        position: Of the command.
        area: The area.
        changes: Whether the command may change it; so do those that allocate and free the matrix.
    """

    position: int
    area: Area
    changes: bool


class Uses:
    """The uses of all matrices, in the order of the commands.

    Attributes:
        commands: All of them; a computation makes its commands anew each time that it is asked.
    """

    def __init__(self, computation: NnetComputation, begin: int = 0) -> None:
        """Collects the uses.

        Args:
            computation: The computation.
            begin: Position of the first command that is looked at.
        """
        self._indexes_multi = computation.indexes_multi
        self._submatrices = computation.submatrices.tolist()
        self._places: dict[int, Place] = {}
        self._uses: dict[int, list[Use]] = defaultdict(list)
        self.commands: list[Command] = list(computation.commands)
        for position, command in enumerate(self.commands[begin:], begin):
            for (matrix, area), changes in self.of(command):
                self._uses[matrix].append(Use(position, area, changes))

    def place(self, submatrix: int) -> Place:
        """The matrix of a submatrix and the area of it that it covers."""
        place = self._places.get(submatrix)
        if place is None:
            matrix, row, rows, column, columns = self._submatrices[submatrix]
            area = Area(row, row + rows, column, column + columns)
            place = self._places[submatrix] = matrix, area
        return place

    def of(self, command: Command) -> Iterator[tuple[Place, bool]]:
        """The places that a command touches, and whether it may change them."""
        for operand in command.OPERANDS:
            value = getattr(command, operand.name)
            changes = operand.access != Access.READ
            if operand.kind in (OperandKind.SUBMATRIX, OperandKind.WHOLE_MATRIX) and value:
                yield self.place(value), changes
            elif operand.kind == OperandKind.INDEXES_MULTI:
                pairs = self._indexes_multi[value]
                for submatrix in set(pairs[:, 0].tolist()) - {-1}:
                    yield self.place(submatrix), changes

    def between(self, matrix: int, after: int, before: int) -> Sequence[Use]:
        """What happens to a matrix after one position and before another."""
        uses = self._uses[matrix]
        first = bisect.bisect_right(uses, after, key=lambda use: use.position)
        last = bisect.bisect_left(uses, before, key=lambda use: use.position)
        return uses[first:last]

    def is_touched(self, place: Place, after: int, before: int, *, changes_only: bool) -> bool:
        """Whether commands between two positions touch a place, or change it."""
        matrix, area = place
        return any(
            (use.changes or not changes_only) and use.area.overlaps(area)
            for use in self.between(matrix, after, before)
        )

    def is_zeroed(self, matrix: int, before: int) -> bool:
        """Whether nothing happened to a matrix since it was zeroed, before a position."""
        uses = self.between(matrix, -1, before)
        return bool(uses) and isinstance(self.commands[uses[-1].position], c.AllocMatrixZeroed)


def is_end(command: Command) -> bool:
    """Whether a command gives a matrix memory or takes it away: what it held is gone."""
    return isinstance(command, c.AllocMatrixUndefined | c.AllocMatrixZeroed | c.DeallocMatrix)
