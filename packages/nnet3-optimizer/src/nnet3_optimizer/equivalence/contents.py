"""The contents of matrices while a computation runs on hashes: a number for each row and part.

A matrix is split into parts, stretches of columns, where commands split it. A column of numbers,
one for each row, stands for a part. It counts columns from the begin of the part, so it stays the
same when the part is copied to other columns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable
from typing import final

import numpy as np
import numpy.typing as npt
from nnet3_computation.arrays import IntArray

from nnet3_optimizer.equivalence import hashes

Rows = npt.NDArray[np.integer] | slice
"""Some rows, by their numbers or as a range of them."""

SIGN = "sign"
"""The rounding of elements of which only the sign is kept."""


class Rectangle:
    """Some rows and columns of a matrix, as if they began at column 0.

    Attributes:
        splits: The columns at which parts begin, ascending from 0, and the number of columns.
        columns: (rows,) for each part. They may be views of a matrix: do not change them.
    """

    __slots__ = ("columns", "splits")

    def __init__(self, splits: list[int], columns: list[hashes.Hashes]) -> None:
        self.splits = splits
        self.columns = columns

    @classmethod
    def constant(cls, rows: int, cols: int, value: float) -> Rectangle:
        """Returns a rectangle with one value everywhere; each column is a part of its own."""
        if not value:
            return cls([0, cols], [np.zeros(rows, np.uint64)])
        return cls([*range(cols + 1)], [np.full(rows, hashes.factor(value))] * cols)

    def changed(self, change: Callable[[hashes.Hashes], hashes.Hashes]) -> Rectangle:
        """Applies a linear function to each column."""
        return Rectangle(self.splits, [change(column) for column in self.columns])

    def rows(self, place: int = 0) -> hashes.Hashes:
        """Returns a hash of each row, (rows,), which does not depend on the splits.

        Args:
            place: The place among the arguments of a function that the hashes are for.
        """
        columns, splits = self.columns, self.splits
        total = columns[0] * hashes.weight(0, splits[1], place)
        for each in range(1, len(columns)):
            total += columns[each] * hashes.weight(splits[each], splits[each + 1], place)
        return total

    def taken(self, rows: Rows) -> Rectangle:
        """Returns a copy of some rows; row -1 is a row of zeros."""
        if isinstance(rows, slice):
            return self.changed(lambda column: column[rows].copy())
        if rows.min(initial=0) >= 0:
            return self.changed(lambda column: column.take(rows))
        present = rows >= 0
        return self.changed(lambda column: column.take(rows, mode="clip") * present)

    def range_sums(self, begin: IntArray, end: IntArray) -> Rectangle:
        """Returns the sums of the rows begin <= r < end, for each of many ranges."""
        return self.changed(lambda column: hashes.sums_of_ranges(column, begin, end))

    def at(self, row: int, column: int) -> int:
        """Returns the number of a row from a column on, to the end of the part."""
        part = bisect_right(self.splits, column) - 1
        return int(self.columns[part][row] * hashes.shift(column - self.splits[part]))


@final
class Content(Rectangle):
    """The content of a matrix.

    Attributes:
        rounding: The kind of rounding by compression; None for none.
    """

    __slots__ = ("rounding",)

    def __init__(self, splits: list[int], columns: list[hashes.Hashes]) -> None:
        """Makes the content of these parts; the lists and their columns become part of it."""
        self.splits = splits
        self.columns = columns
        self.rounding: Hashable = None

    def read(
        self, row: int, rows: int, begin: int, cols: int, *, only_signs: bool = False
    ) -> Rectangle:
        """Returns a rectangle.

        Args:
            row: Its first row.
            rows: The number of its rows.
            begin: Its first column.
            cols: The number of its columns.
            only_signs: Whether the reader only needs to know which elements are positive, so that a
                matrix that keeps only signs is enough.
        """
        columns, splits = self.columns, self.splits
        if self.rounding is not None and not (only_signs and self.rounding == SIGN):
            columns = self._rounded()
        if len(columns) == 1:
            column = columns[0] if rows == len(columns[0]) else columns[0][row : row + rows]
            return Rectangle([0, cols], [column * hashes.shift(begin) if begin else column])
        skipped = 0
        if cols != splits[-1]:
            first, end = bisect_right(splits, begin) - 1, begin + cols
            last = bisect_left(splits, end)
            columns, splits = columns[first:last], splits[first : last + 1]
            skipped = begin - splits[0]
            splits = [0, *[split - begin for split in splits[1:-1]], cols]
        if rows != len(columns[0]):
            columns = [column[row : row + rows] for column in columns]
        if skipped:
            columns = [columns[0] * hashes.shift(skipped), *columns[1:]]
        return Rectangle(splits, columns)

    def write(
        self,
        row: int,
        begin: int,
        cols: int,
        given: Rectangle,
        *,
        adds: bool,
        places: Rows | None = None,
    ) -> None:
        """Sets or adds to the elements of a rectangle.

        Args:
            row: Its first row.
            begin: Its first column.
            cols: The number of its columns.
            given: The elements to write; no views of these elements themselves.
            adds: Whether to add.
            places: The row of the rectangle that each row is for; None for all in their order.
        """
        if self.rounding is not None:
            self.columns, self.rounding = self._rounded(), None
        columns, splits = given.columns, given.splits
        where: Rows
        if places is None:
            where = slice(row, row + len(columns[0]))
        elif isinstance(places, slice):
            where = slice(row + places.start, row + places.stop)
        else:
            where = places + row
        if splits == self.splits:
            for column, values in zip(self.columns, columns, strict=True):
                _put(column, where, values, adds=adds)
            return
        for split in splits:
            if begin + split not in self.splits:
                self._split(begin + split)
        first, last = self.splits.index(begin), self.splits.index(begin + cols)
        source = 0
        for part in range(first, last):
            offset = self.splits[part] - begin
            while offset >= splits[source + 1]:
                source += 1
            values = columns[source]
            if offset != splits[source]:
                values = values * hashes.shift(offset - splits[source])
            _put(self.columns[part], where, values, adds=adds)

    def _split(self, point: int) -> None:
        """Splits the columns at a point as well."""
        at = bisect_left(self.splits, point)
        self.columns.insert(at, self.columns[at - 1] * hashes.shift(point - self.splits[at - 1]))
        self.splits.insert(at, point)

    def _rounded(self) -> list[hashes.Hashes]:
        """Returns the columns with unknowns in place of rounded elements."""
        seed, columns = hashes.number(hashes.seed_of("rounded", self.rounding)), []
        # Rounding does not depend on where parts begin.
        for begin, column in zip(self.splits, self.columns, strict=False):
            columns.append(
                hashes.function(seed, column * hashes.shift(-begin)) * hashes.shift(begin)
            )
        return columns


def _put(column: hashes.Hashes, where: Rows, values: hashes.Hashes, *, adds: bool) -> None:
    """Sets or adds to some rows of a column."""
    if not adds:
        column[where] = values
    elif isinstance(where, slice):
        part = column[where]
        np.add(part, values, out=part)
    else:
        np.add.at(column, where, values)
