"""The symbolic content of matrices.

Each row of a matrix is a function of the column: a sum of scaled unknown rows, each shifted by some
columns. An unknown row with the random element g, shifted by d columns to the left, is written as
g * w**d with a random w. Hence what stands for a stretch of columns

- does not change when the stretch is split, so that it does not matter where a program splits;
- is multiplied by a power of w when the stretch is copied to other columns;
- is linear, so that sums and scales are those of the field.

Constants (SetConst) are the same in all columns, whatever the shift; they are kept apart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable
from itertools import repeat
from operator import eq

from nnet3_optimizer.equivalence.field import PRIME, added, scaled, shift
from nnet3_optimizer.equivalence.unknowns import Unknowns

Column = list[int]
"""An element for each row."""

SIGN = "sign"
"""The rounding of what is kept only as whether each element is positive."""

_ONE_STRETCH = [0]
"""Where stretches begin if there is only one."""


class Stretches:
    """Rows and columns of a matrix, as if they began at column 0.

    Attributes:
        starts: Columns at which stretches begin, ascending from 0.
        columns: For each stretch the sums of unknown rows, one element a row. May be the very list
            that a matrix holds: not to be changed, nor to be kept without a copy.
        constants: For each stretch the constants added to them; None for zeros.
    """

    __slots__ = ("columns", "constants", "starts")

    def __init__(
        self, starts: list[int], columns: list[Column], constants: list[Column] | None = None
    ) -> None:
        self.starts = starts
        self.columns = columns
        self.constants = constants

    def copy(self) -> Stretches:
        """Returns a copy that may be kept."""
        constants = self.constants
        return Stretches(
            self.starts,
            [list(column) for column in self.columns],
            None if constants is None else [list(column) for column in constants],
        )

    def is_same(self, other: Stretches) -> bool:
        """Returns whether the other is the same, split at the same columns."""
        mine, its = (self.starts, self.columns, self.constants), (other.starts, other.columns)
        return mine == (*its, other.constants)

    def at(self, row: int, column: int) -> tuple[int, int]:
        """Returns what stands for a row at a column: unknowns, and the constant."""
        stretch = bisect_right(self.starts, column) - 1
        constant = 0 if self.constants is None else self.constants[stretch][row]
        return self.columns[stretch][row], constant

    def keys(self) -> Iterable[Hashable]:
        """Returns a value for each row that is equal for equal rows only, however they are split.

        That is the element itself where a row is one stretch, else start, element, start, ... .
        """
        values = _merged(self.starts, self.columns)
        if self.constants is None:
            return values
        constants = _merged(self.starts, self.constants)
        pairs = zip(values, constants, strict=True)
        return [value if constant == 0 else (value, "+", constant) for value, constant in pairs]

    def taken(self, rows: list[int]) -> Stretches:
        """Returns some rows; row -1 is a row of zeros."""
        constants = self.constants
        return Stretches(
            self.starts,
            [_taken(column, rows) for column in self.columns],
            None if constants is None else [_taken(column, rows) for column in constants],
        )

    def scaled(self, factor: int) -> Stretches:
        """Returns all elements times a factor."""
        if factor == 1:
            return self
        constants = self.constants
        return Stretches(
            self.starts,
            [scaled(column, factor) for column in self.columns],
            None if constants is None else [scaled(column, factor) for column in constants],
        )

    def range_sums(self, ranges: list[tuple[int, int]]) -> Stretches:
        """Returns the sums of the rows begin <= r < end; zeros where begin is -1."""
        constants = self.constants
        return Stretches(
            self.starts,
            [_range_sums(column, ranges) for column in self.columns],
            None if constants is None else [_range_sums(column, ranges) for column in constants],
        )


def _taken(column: Column, rows: list[int]) -> Column:
    source = [*column, 0] if -1 in rows else column
    return [source[row] for row in rows]


def _range_sums(column: Column, ranges: list[tuple[int, int]]) -> Column:
    return [sum(column[begin:end]) % PRIME if begin >= 0 else 0 for begin, end in ranges]


def _merged(starts: list[int], columns: list[Column]) -> Iterable[Hashable]:
    """Returns for each row the element, or all starts and elements if there are several."""
    if len(columns) == 1:
        return columns[0]
    before = columns[0]
    if len(before) == 1:
        return [_merged_row(starts, tuple(column[0] for column in columns))]
    for column in columns[1:]:
        if any(map(eq, before, column)):
            rows = zip(*columns, strict=True)
            return [_merged_row(starts, row) for row in rows]
        before = column
    parts: list[Iterable[int]] = []
    for start, column in zip(starts, columns, strict=True):
        parts += [repeat(start), column]
    return zip(*parts, strict=False)


def _merged_row(starts: list[int], row: tuple[int, ...]) -> Hashable:
    """Returns the key of a row whose neighbouring stretches may be one."""
    key: list[int] = []
    before = None
    for start, value in zip(starts, row, strict=True):
        if value != before:
            key += [start, value]
            before = value
    return key[1] if len(key) == 2 else tuple(key)


class Content:
    """What a matrix holds.

    Attributes:
        splits: Columns at which stretches begin, and the number of columns.
        columns: For each stretch the sums of unknown rows, one element a row.
        constants: For each stretch the constants added to them; None for zeros.
        rounding: What the elements lost by compression; None if nothing.
    """

    __slots__ = ("_unknowns", "columns", "constants", "rounding", "splits")

    def __init__(self, unknowns: Unknowns, column: Column, cols: int) -> None:
        """Makes the content of a matrix of one stretch.

        Args:
            unknowns: Where rounded elements are remembered.
            column: An element for each row; it becomes part of this.
            cols: The number of columns.
        """
        self._unknowns = unknowns
        self.splits = [0, cols]
        self.columns = [column]
        self.constants: list[Column] | None = None
        self.rounding: Hashable = None

    # -- reading -------------------------------------------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether it is one stretch, without constants, that has lost nothing."""
        return len(self.columns) == 1 and self.constants is None and self.rounding is None

    def read(
        self, row: int, rows: int, begin: int, cols: int, *, only_signs: bool = False
    ) -> Stretches:
        """Returns a rectangle, as if it began at column 0.

        Args:
            row: Its first row.
            rows: The number of its rows.
            begin: Its first column.
            cols: The number of its columns.
            only_signs: Whether nothing is looked at but which elements are positive, so that it
                does not matter if no more was kept.
        """
        if self.rounding is not None and not (only_signs and self.rounding == SIGN):
            return self._rounded().read(row, rows, begin, cols)
        columns = self.columns
        if len(columns) == 1:
            first, last, starts = 0, 1, _ONE_STRETCH
        else:
            first = bisect_right(self.splits, begin) - 1
            last = bisect_left(self.splits, begin + cols)
            starts = [0, *(split - begin for split in self.splits[first + 1 : last])]
            columns = columns[first:last]
        if rows != len(columns[0]):
            columns = [column[row : row + rows] for column in columns]
        if begin:
            factor = shift(begin)
            columns = [[value * factor % PRIME for value in column] for column in columns]
        if self.constants is None:
            return Stretches(starts, columns)
        constants = [column[row : row + rows] for column in self.constants[first:last]]
        return Stretches(starts, columns, constants)

    def is_zero(self, rows: list[int], begin: int, cols: int) -> bool:
        """Returns whether these rows are zero between columns."""
        columns = [*self.columns, *(self.constants or ())]
        if self.rounding is not None or any(columns[0][row] for row in rows):
            columns = self.read(0, len(columns[0]), begin, cols).columns + (self.constants or [])
        return not any(column[row] for column in columns for row in rows)

    def _rounded(self) -> Content:
        """Returns it with unknowns in the place of rounded elements."""
        result = Content(self._unknowns, [], self.splits[-1])
        result.splits = self.splits
        constants = self.constants or [[0] * len(column) for column in self.columns]
        pairs = zip(self.columns, constants, strict=True)
        name = "rounded", self.rounding
        result.columns = [self._unknowns.values(name, zip(*pair, strict=True)) for pair in pairs]
        return result

    # -- writing -------------------------------------------------------------------------------

    def write_unknowns(
        self, row: int, begin: int, cols: int, column: Column, *, adds: bool
    ) -> None:
        """Sets or adds to a rectangle what is one stretch, without constants."""
        if self.rounding is not None or self.constants is not None:
            self.write(row, begin, cols, Stretches(_ONE_STRETCH, [column]), adds=adds)
            return
        if cols == self.splits[-1] and len(self.columns) == 1:
            _put(self.columns, 0, row, column, None, adds)
            return
        first, last = self._split(begin), self._split(begin + cols)
        if begin:
            column = scaled(column, shift(-begin))
        if last > first + 1 and not adds and len(column) == len(self.columns[0]):
            # What becomes one stretch is one.
            del self.columns[first + 1 : last], self.splits[first + 1 : last]
            last = first + 1
        for stretch in range(first, last):
            _put(self.columns, stretch, row, column, None, adds)

    def write(
        self,
        row: int,
        begin: int,
        cols: int,
        given: Stretches,
        *,
        adds: bool,
        places: list[int] | None = None,
    ) -> None:
        """Sets or adds to the elements of a rectangle.

        Args:
            row: Its first row.
            begin: Its first column.
            cols: The number of its columns.
            given: What to write.
            adds: Whether to add.
            places: The row of the rectangle that each row is for; None for all in their order.
        """
        if self.rounding is not None:
            self._forget_rounding()
        if given.constants is not None and self.constants is None:
            self.constants = [[0] * len(column) for column in self.columns]
        columns, constants, starts = given.columns, given.constants, given.starts
        first = self._split(begin) if begin else 0
        if len(columns) > 1:
            for start in starts[1:]:
                self._split(begin + start)
        is_last = begin + cols == self.splits[-1]
        last = len(self.columns) if is_last else self._split(begin + cols)
        if last == first + 1 and len(columns) == 1 and self.constants is None:
            column = scaled(columns[0], shift(-begin)) if begin else columns[0]
            _put(self.columns, first, row, column, places, adds)
            return
        if begin:
            factor = shift(-begin)
            columns = [[value * factor % PRIME for value in column] for column in columns]
        source = 0
        for stretch in range(first, last):
            if source + 1 < len(starts) and self.splits[stretch] - begin == starts[source + 1]:
                source += 1
            _put(self.columns, stretch, row, columns[source], places, adds)
            if self.constants is not None:
                constant = [0] * len(columns[source]) if constants is None else constants[source]
                _put(self.constants, stretch, row, constant, places, adds)

    def _split(self, point: int) -> int:
        """Splits the columns at a point as well; returns the stretch that begins there."""
        splits = self.splits
        at = bisect_left(splits, point)
        if splits[at] != point:
            splits.insert(at, point)
            self.columns.insert(at, list(self.columns[at - 1]))
            if self.constants is not None:
                self.constants.insert(at, list(self.constants[at - 1]))
        return at

    def _forget_rounding(self) -> None:
        self.columns = self._rounded().columns
        self.constants = None
        self.rounding = None


def _put(
    columns: list[Column],
    stretch: int,
    row: int,
    values: Column,
    places: list[int] | None,
    adds: bool,
) -> None:
    """Sets or adds to rows of one stretch."""
    column = columns[stretch]
    if places is not None:
        for place, value in zip(places, values, strict=True):
            column[row + place] = (column[row + place] + value) % PRIME if adds else value
    elif len(values) == len(column):
        columns[stretch] = added(column, values) if adds else list(values)
    else:
        end = row + len(values)
        column[row:end] = added(column[row:end], values) if adds else values
