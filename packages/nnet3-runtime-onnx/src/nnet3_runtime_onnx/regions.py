"""Regions: rows and columns of a matrix, and where each of their elements comes from.

Commands write parts of a matrix, but a graph makes a tensor only as a whole. So a matrix is a set
of strips of columns, side by side. A strip has for each row the tensor, the row in it, and the
first column in it. Writes change these numbers and copies copy them; neither makes a node. Only the
input of an operator has to become a tensor: see `Matrices`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int32]
"""(rows, 3): number of a source, row in it, column in it. Sources from 1 on are tensors; others are
values that all elements have, wherever they are."""

SOURCE, ROW, COLUMN = range(3)

ZERO = 0
"""The source of zeros, and of undefined elements."""


@attrs.frozen(eq=False)
class Strip:
    """Columns of a region.

    Attributes:
        width: Number of columns.
        places: Where the first element of each row is; the others follow it.
    """

    width: int
    places: Places

    @property
    def is_zero(self) -> bool:
        """Whether all its elements are zeros."""
        return bool((self.places[:, SOURCE] == ZERO).all())

    @property
    def is_of_one_source(self) -> bool:
        """Whether all its rows are of one source, from the same column on."""
        of_source = self.places[:, [SOURCE, COLUMN]]
        return bool((of_source == of_source[:1]).all())

    def normalized(self) -> Strip:
        """Returns the same elements, with equal numbers for equal elements."""
        places = self.places.copy()
        places[places[:, SOURCE] <= ZERO, ROW:] = 0
        return Strip(self.width, places)

    def cut(self, begin: int, end: int) -> Strip:
        """Returns columns of the strip."""
        if (begin, end) == (0, self.width):
            return self
        places = self.places.copy()
        places[:, COLUMN] += begin
        return Strip(end - begin, places)


@attrs.frozen(eq=False)
class Region:
    """Strips side by side, all with the same number of rows.

    Attributes:
        strips: The strips; a region without columns has one strip without columns.
    """

    strips: tuple[Strip, ...]

    @classmethod
    def of_source(cls, number: int, rows: int, columns: int) -> Region:
        """The whole of a source; or a part of a source whose elements are all the same."""
        places = np.zeros((rows, 3), np.int32)
        places[:, SOURCE] = number
        places[:, ROW] = np.arange(rows)
        return cls((Strip(columns, places),))

    @classmethod
    def side_by_side(cls, regions: Sequence[Region]) -> Region:
        """Regions of equal height, side by side."""
        return cls(tuple(strip for region in regions for strip in region.strips))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.strips[0].places)

    @property
    def columns(self) -> int:
        """Number of columns."""
        return sum(strip.width for strip in self.strips)

    @property
    def is_zero(self) -> NDArray[np.bool_]:
        """Which rows are zeros in all columns, (rows,)."""
        is_zero = np.ones(self.rows, np.bool_)
        for strip in self.strips:
            is_zero &= strip.places[:, SOURCE] == ZERO
        return is_zero

    def take(self, rows: NDArray[np.integer]) -> Region:
        """Returns rows by number; zeros for -1."""
        strips = []
        for strip in self.strips:
            places = strip.places[rows]
            places[rows < 0] = ZERO
            strips.append(Strip(strip.width, places))
        return Region(tuple(strips))

    def between(self, begin: int, end: int) -> Region:
        """Returns columns from `begin` to before `end`."""
        strips = []
        for first, strip in zip(self.starts(), self.strips, strict=True):
            low, high = max(begin - first, 0), min(end - first, strip.width)
            if low < high:
                strips.append(strip.cut(low, high))
        return Region(tuple(strips)) if strips else Region((self.strips[0].cut(0, 0),))

    def starts(self) -> list[int]:
        """Returns the first column of each strip."""
        return [0, *itertools.accumulate(strip.width for strip in self.strips[:-1])]

    def split(self, columns: Sequence[int]) -> Region:
        """Returns the region with a border between strips before each of these columns."""
        borders = sorted({*self.starts(), self.columns, *columns} - {0})
        begins = [0, *borders[:-1]]
        parts = [self.between(*both) for both in zip(begins, borders, strict=True)]
        return Region.side_by_side(parts)

    def with_rows(self, rows: NDArray[np.integer] | slice, other: Region) -> Region:
        """Returns the region with some rows replaced by rows of another region of equal width."""
        mine, theirs = self.split(other.starts()), other.split(self.starts())
        strips = []
        for old, new in zip(mine.strips, theirs.strips, strict=True):
            places = old.places.copy()
            places[rows] = new.places
            strips.append(Strip(old.width, places))
        return Region(tuple(strips))

    def merged(self) -> Region:
        """Returns the region with as few strips as possible."""
        strips = [self.strips[0]]
        for strip in self.strips[1:]:
            last = strips[-1]
            distance = strip.places - last.places
            goes_on = (distance == (0, 0, last.width)).all(axis=1)
            same = (distance[:, SOURCE] == 0) & (strip.places[:, SOURCE] <= ZERO)
            if (goes_on | same).all():
                strips[-1] = Strip(last.width + strip.width, last.places)
            else:
                strips.append(strip)
        return Region(tuple(strips))
