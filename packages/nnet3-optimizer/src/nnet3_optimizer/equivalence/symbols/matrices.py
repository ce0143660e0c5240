"""The symbolic content of matrices.

Each row of a matrix is a function of the column: a sum of scaled unknown rows, each shifted by some
columns. An unknown row with the random element g, shifted by d columns to the left, is written as
g * w**d with a random w. The symbol of a stretch of columns counts columns from the begin of the
stretch. So

- it stays the same when the stretch is copied to other columns;
- where a stretch is split, the second part is the first times w to the power of its length;
- it is linear, so that sums and scales are those of the field.

Constants (SetConst) are the same in all columns, whatever the shift; they are kept apart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from typing import final

from nnet3_optimizer.equivalence.symbols.keys import Column
from nnet3_optimizer.equivalence.symbols.prime_field import PRIME, added, shifted
from nnet3_optimizer.equivalence.symbols.single_row import Row, columns_of, stretches_of, value_at
from nnet3_optimizer.equivalence.symbols.stretches import Stretches, rows_taken
from nnet3_optimizer.equivalence.symbols.unknowns import Unknowns

SIGN = "sign"
"""The rounding of elements of which only the sign is kept."""

_ONE_STRETCH = [0]


@final
class Content:
    """The content of a matrix.

    Attributes:
        splits: Columns at which stretches begin, and the number of columns.
        columns: For each stretch the sums of unknown rows, one element a row. Empty for a stretch
            without any access yet: it is undefined, and equal to nothing.
        constants: For each stretch the constants added to them; None for zeros.
        rounding: The kind of rounding by compression; None for none.
    """

    __slots__ = (
        "_has_undefined",
        "_rows",
        "_unknowns",
        "columns",
        "constants",
        "rounding",
        "splits",
    )

    def __init__(self, unknowns: Unknowns, column: Column, rows: int, cols: int) -> None:
        """Makes the content of a matrix of one stretch.

        Args:
            unknowns: Remembers rounded elements.
            column: An element for each row, or none if they are undefined; it becomes part of this.
            rows: The number of rows.
            cols: The number of columns.
        """
        self._unknowns = unknowns
        self._rows = rows
        self._has_undefined = not column
        self.splits = [0, cols]
        self.columns = [column]
        self.constants: list[Column] | None = None
        self.rounding: Hashable = None

    @classmethod
    def of_row(cls, unknowns: Unknowns, row: Row, cols: int) -> Content:
        """Returns the content of a matrix of a single row."""
        starts, values = stretches_of(row)
        content = cls(unknowns, [values[0]], 1, cols)
        content.splits = [*starts, cols]
        content.columns = [[value] for value in values]
        return content

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._rows

    # -- reading -------------------------------------------------------------------------------

    def taken(self, rows: list[int]) -> Content:
        """Returns the content of a matrix of some of the rows, which may be named repeatedly."""
        result = Content(self._unknowns, [], len(rows), self.splits[-1])
        result.splits = list(self.splits)
        result.columns = [rows_taken(column, rows) if column else [] for column in self.columns]
        result._has_undefined = self._has_undefined
        if self.constants is not None:
            result.constants = [rows_taken(column, rows) for column in self.constants]
        result.rounding = self.rounding
        return result

    def read_row(self, row: int, begin: int, cols: int) -> Row | None:
        """Returns columns of a row; None unless they consist of nothing but unknowns."""
        if self.constants is not None or self.rounding is not None:
            return None
        if self._has_undefined:
            self._define(0, len(self.columns))
        columns = self.columns
        if len(columns) == 1:
            whole: Row = columns[0][row]
        else:
            whole = (*self.splits[:-1], *[column[row] for column in columns])
        return whole if cols == self.splits[-1] else columns_of(whole, begin, cols)

    def read(
        self, row: int, rows: int, begin: int, cols: int, *, only_signs: bool = False
    ) -> Stretches:
        """Returns a rectangle, as if it began at column 0.

        Args:
            row: Its first row.
            rows: The number of its rows.
            begin: Its first column.
            cols: The number of its columns.
            only_signs: Whether the reader only needs to know which elements are positive, so that a
                matrix that keeps only signs is enough.
        """
        if self.rounding is not None and not (only_signs and self.rounding == SIGN):
            return self._rounded().read(row, rows, begin, cols)
        columns = self.columns
        if self._has_undefined:
            self._define(
                bisect_right(self.splits, begin) - 1, bisect_left(self.splits, begin + cols)
            )
        if len(columns) == 1:
            first, last, starts = 0, 1, _ONE_STRETCH
        else:
            first = bisect_right(self.splits, begin) - 1
            last = bisect_left(self.splits, begin + cols)
            starts = [0, *(split - begin for split in self.splits[first + 1 : last])]
            columns = columns[first:last]
        if rows != self._rows:
            columns = [column[row : row + rows] for column in columns]
        skipped = begin - self.splits[first]
        if skipped:
            columns = [self._unknowns.shifted(columns[0], skipped), *columns[1:]]
        if self.constants is None:
            return Stretches(starts, columns)
        constants = [column[row : row + rows] for column in self.constants[first:last]]
        return Stretches(starts, columns, constants)

    def is_zero(self, rows: list[int], begin: int, cols: int) -> bool:
        """Returns whether these rows are zero between columns."""
        if self._has_undefined:
            return False
        columns = [*self.columns, *(self.constants or ())]
        if self.rounding is not None or any(columns[0][row] for row in rows):
            columns = self.read(0, len(columns[0]), begin, cols).columns + (self.constants or [])
        return not any(column[row] for column in columns for row in rows)

    def _rounded(self) -> Content:
        """Returns the content with unknowns in place of rounded elements."""
        self._define(0, len(self.columns))
        result = Content(self._unknowns, self.columns[0], self._rows, self.splits[-1])
        result.splits, result.columns = self.splits, []
        constants = self.constants or [[0] * len(column) for column in self.columns]
        rounded = self._unknowns.function(("rounded", self.rounding))
        # Rounding does not depend on where stretches begin.
        for begin, column, constant in zip(self.splits, self.columns, constants, strict=False):
            values = zip(shifted(column, -begin), constant, strict=True)
            result.columns.append(shifted(rounded.of_each(values), begin))
        return result

    # -- writing -------------------------------------------------------------------------------

    def write_row(self, row: int, begin: int, cols: int, part: Row, *, adds: bool) -> None:
        """Sets or adds to columns of a row."""
        if self.constants is not None or self.rounding is not None:
            self.write(row, begin, cols, Stretches.of_row(part), adds=adds)
            return
        columns, splits = self.columns, self.splits
        first = bisect_left(splits, begin)
        if isinstance(part, int) and splits[first] == begin and splits[first + 1] == begin + cols:
            column = columns[first]
            if column:
                column[row] = (column[row] + part) % PRIME if adds else part
                return
        starts, values = stretches_of(part)
        first, last = self._split_at(begin, cols, starts)
        self._define(first, last)
        if last - first != len(values):
            values = tuple([value_at(part, each - begin) for each in self.splits[first:last]])
        for stretch, value in enumerate(values, first):
            column = columns[stretch]
            column[row] = (column[row] + value) % PRIME if adds else value

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
            given: The elements to write.
            adds: Whether to add.
            places: The row of the rectangle that each row is for; None for all in their order.
        """
        if self.rounding is not None:
            self._forget_rounding()
        if given.constants is not None and self.constants is None:
            self.constants = [[0] * self._rows for _ in self.columns]
        columns, starts = given.columns, given.starts
        is_all = places is None and len(columns[0]) == self._rows
        if is_all and not adds and self.constants is None:
            self._replace(begin, cols, starts, columns)
            return
        first, last = self._split_at(begin, cols, starts)
        self._define(first, last)
        source = 0
        for stretch in range(first, last):
            at = self.splits[stretch] - begin
            if source + 1 < len(starts) and at == starts[source + 1]:
                source += 1
            column = self._unknowns.shifted(columns[source], at - starts[source])
            _put(self.columns, stretch, row, column, places, adds)
            if self.constants is not None:
                constants = given.constants
                constant = [0] * len(column) if constants is None else constants[source]
                _put(self.constants, stretch, row, constant, places, adds)

    def _replace(self, begin: int, cols: int, starts: list[int], columns: list[Column]) -> None:
        """Sets all rows, and forgets the old stretches."""
        first, end = self._split(begin), begin + cols
        last = len(self.columns) if end == self.splits[-1] else self._split(end)
        self.splits[first:last] = [begin + start for start in starts]
        self.columns[first:last] = [list(column) for column in columns]

    def _split_at(self, begin: int, cols: int, starts: Sequence[int]) -> tuple[int, int]:
        """Splits where a rectangle and its stretches begin; returns its first and last stretch."""
        first = self._split(begin) if begin else 0
        if len(starts) > 1:
            for start in starts[1:]:
                self._split(begin + start)
        end = begin + cols
        return first, len(self.columns) if end == self.splits[-1] else self._split(end)

    def _split(self, point: int) -> int:
        """Splits the columns at a point as well; returns the stretch that begins there."""
        splits = self.splits
        at = bisect_left(splits, point)
        if splits[at] != point:
            splits.insert(at, point)
            before, skipped = self.columns[at - 1], point - splits[at - 1]
            self.columns.insert(at, list(self._unknowns.shifted(before, skipped)))
            if self.constants is not None:
                self.constants.insert(at, list(self.constants[at - 1]))
        return at

    def _define(self, first: int, last: int) -> None:
        """Makes new elements, equal to no other, for stretches that have none."""
        if self._has_undefined:
            for stretch in range(first, last):
                if not self.columns[stretch]:
                    self.columns[stretch] = self._unknowns.fresh(self._rows)
            self._has_undefined = not all(self.columns)

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
