"""The symbolic content of matrices.

Each row of a matrix is a function of the column: a sum of scaled unknown rows, each shifted by some
columns. An unknown row with the random element g, shifted by d columns to the left, has the
fingerprint g * w**d with a random w. Hence the fingerprint of a stretch of columns

- does not change when the stretch is split, so that it does not matter where a program splits;
- is multiplied by a power of w when the stretch is copied to other columns;
- is linear, so that sums and scales are those of the field.

Constants (SetConst) are the same in all columns, whatever the shift; they are kept apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np

from nnet3_optimizer.equivalence.field import PRIME, Elements, add, combine, mix, power, times

OMEGA = 1_234_567_890_123_456_789 % PRIME
"""The fingerprint of a shift by one column."""

_UNKNOWN, _CONSTANT = 11, 12


class Content:
    """What a matrix holds.

    Attributes:
        splits: Columns at which stretches begin, and the number of columns.
        values: (rows, stretches) elements: the sums of unknown rows.
        constants: (rows, stretches) elements: the constants added to them; None for zeros.
        rounding: Identifies what the elements lost by compression; 0 if nothing.
    """

    __slots__ = ("constants", "rounding", "splits", "values")

    def __init__(self, rows: int, cols: int) -> None:
        self.splits = [0, cols]
        self.values: Elements = np.zeros((rows, 1), dtype=np.uint64)
        self.constants: Elements | None = None
        self.rounding = 0

    def refine(self, points: Iterable[int]) -> None:
        """Splits the columns at these points as well."""
        new = set(points).difference(self.splits)
        if not new:
            return
        splits = sorted(new.union(self.splits))
        stretch = np.searchsorted(self.splits, splits[:-1], side="right") - 1
        self.splits = splits
        self.values = self.values[:, stretch]
        if self.constants is not None:
            self.constants = self.constants[:, stretch]

    def stretches(self, begin: int, end: int) -> slice:
        """Returns the stretches between two columns at which it is split."""
        return slice(bisect_left(self.splits, begin), bisect_left(self.splits, end))


class Region:
    """A rectangle of a matrix: what a submatrix names."""

    __slots__ = ("begin", "cols", "content", "row", "rows")

    def __init__(self, content: Content, row: int, rows: int, begin: int, cols: int) -> None:
        self.content = content
        self.row, self.rows = row, rows
        self.begin, self.cols = begin, cols

    def points(self) -> list[int]:
        """Returns where it is split, counted from its first column."""
        end = self.begin + self.cols
        return [p - self.begin for p in self.content.splits if self.begin <= p <= end]

    def refine(self, points: Iterable[int]) -> None:
        """Splits it, at columns counted from its first."""
        self.content.refine(self.begin + point for point in points)

    def stretches(self) -> slice:
        """Returns its stretches; it has to be split at its ends."""
        return self.content.stretches(self.begin, self.begin + self.cols)

    # -- reading -------------------------------------------------------------------------------

    def read(self) -> tuple[Elements, Elements | None]:
        """Returns values and constants, as if it began at column 0; (rows, stretches) each."""
        self.refine((0, self.cols))
        place = slice(self.row, self.row + self.rows), self.stretches()
        values = times(self.content.values[place], power(OMEGA, self.begin))
        if self.content.rounding:
            # Rounded elements are unknowns of their own.
            values = combine(values, self.content.rounding) % np.uint64(PRIME)
        constants = self.content.constants
        return values, None if constants is None else constants[place]

    def row_hashes(self, *, ignore_rounding: bool = False) -> Elements:
        """Returns a hash of each row, (rows,), that does not depend on how columns are split."""
        rounding, self.content.rounding = self.content.rounding, 0
        if rounding and not ignore_rounding:
            self.content.rounding = rounding
        values, constants = self.read()
        self.content.rounding = rounding
        starts = np.array(self.points()[:-1], dtype=np.uint64)
        result = _change_hashes(values, starts, _UNKNOWN)
        if constants is not None:
            result += _change_hashes(constants, starts, _CONSTANT)
        return mix(result)

    # -- writing -------------------------------------------------------------------------------

    def write(
        self,
        values: Elements,
        constants: Elements | None,
        points: Iterable[int],
        *,
        adds: bool,
        rows: np.ndarray | None = None,
    ) -> None:
        """Sets or adds to elements.

        Args:
            values: As `read` returns them.
            constants: As `read` returns them.
            points: Where their stretches are split, from 0 to the number of columns.
            adds: Whether to add.
            rows: The rows of the region to write to; None for all.
        """
        content = self.content
        wanted = list(points)
        source_splits = sorted({*wanted, *self.points()})
        self.refine(source_splits)
        if len(source_splits) != len(wanted):
            stretch = np.searchsorted(wanted, source_splits[:-1], side="right") - 1
            values = values[:, stretch]
            constants = None if constants is None else constants[:, stretch]
        values = times(values, power(OMEGA, -self.begin))
        where = slice(self.row, self.row + self.rows) if rows is None else self.row + rows
        place = where, self.stretches()
        if content.rounding:
            self._forget_rounding()
        content.values[place] = add(content.values[place], values) if adds else values
        if constants is not None and content.constants is None:
            content.constants = np.zeros_like(content.values)
        if content.constants is not None:
            new = np.zeros_like(values) if constants is None else constants
            content.constants[place] = add(content.constants[place], new) if adds else new

    def _forget_rounding(self) -> None:
        content = self.content
        content.values = combine(content.values, content.rounding) % np.uint64(PRIME)
        content.rounding = 0


def _change_hashes(values: Elements, starts: Elements, kind: int) -> Elements:
    """Sums over the stretches at which the value changes a hash of value and column."""
    key = mix(starts * np.uint64(8) + np.uint64(kind))
    if values.shape[1] == 1:
        hashes = mix(values[:, 0] ^ key[0])
        single: Elements = hashes * (values[:, 0] != 0)
        return single
    changes = np.empty(values.shape, dtype=np.bool_)
    changes[:, 0] = values[:, 0] != 0
    np.not_equal(values[:, 1:], values[:, :-1], out=changes[:, 1:])
    result: Elements = (mix(values ^ key) * changes).sum(axis=1, dtype=np.uint64)
    return result
