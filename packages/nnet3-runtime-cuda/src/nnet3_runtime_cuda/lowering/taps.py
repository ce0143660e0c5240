"""Rows of a matrix at several offsets, side by side: what an affine map of several frames sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from nnet3_compiler import commands as c

from .known_inputs import MOST_ROWS
from .pending_zeros import Area
from .uses import Place

FEWEST_ROWS = MOST_ROWS + 1
"""Inputs with fewer rows are left alone: they may be steps of a recurrence."""


@attrs.frozen(kw_only=True)
class Taps:
    """Blocks of rows of a matrix, each as far below the one before.

    Attributes:
        matrix: Number of the matrix.
        area: All rows of the blocks.
        count: How many blocks.
        distance: Of the first rows of two blocks.
        is_packed: The rows lie one after another in the memory of the matrix, whatever its number
            of columns.
    """

    matrix: int
    area: Area
    count: int
    distance: int
    is_packed: bool = False

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.area.row_end - self.area.row - (self.count - 1) * self.distance

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first row of each block in the area."""
        return tuple(number * self.distance for number in range(self.count))

    @classmethod
    def of(cls, blocks: Sequence[Place]) -> Taps | None:
        """The taps that are these blocks, in order; None if they are not regular."""
        (matrix, first), (_, second) = blocks[:2]
        distance = second.row - first.row
        if distance <= 0:
            return None
        for number, block in enumerate(blocks):
            shift = number * distance
            expected = attrs.evolve(first, row=first.row + shift, row_end=first.row_end + shift)
            if block != (matrix, expected):
                return None
        area = attrs.evolve(first, row_end=blocks[-1][1].row_end)
        return cls(matrix=matrix, area=area, count=len(blocks), distance=distance)


GainsByTaps = Callable[[int, Taps], bool]
"""Whether the component of a number computes with taps rather than with blocks of columns."""


def input_of(command: c.Propagate | c.Backprop) -> int:
    """The submatrix that a command multiplies by parameters, or by a derivative."""
    return command.input if isinstance(command, c.Propagate) else command.input_value


def blocks_of(area: Area, width: int) -> list[Area]:
    """The blocks of so many columns that an area is made of; none if a part would be left."""
    columns = range(area.column, area.column_end, width)
    if (area.column_end - area.column) % width:
        return []
    return [attrs.evolve(area, column=column, column_end=column + width) for column in columns]
