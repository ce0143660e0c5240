"""Parts of symbolic matrices, in the form in which commands read and write them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from nnet3_optimizer.equivalence.symbols.keys import Column, Keys, keys_of_columns, with_constants
from nnet3_optimizer.equivalence.symbols.prime_field import PRIME, scaled
from nnet3_optimizer.equivalence.symbols.single_row import Row, row_of, stretches_of, value_at


class Stretches:
    """Rows and columns of a matrix, as if they began at column 0.

    Attributes:
        starts: Columns at which stretches begin, ascending from 0.
        columns: For each stretch the sums of unknown rows, one element a row. It may be a list that
            a matrix holds: do not change it, and copy it to keep it.
        constants: For each stretch the constants added to them; None for zeros.
    """

    __slots__ = ("columns", "constants", "starts")

    def __init__(
        self, starts: list[int], columns: list[Column], constants: list[Column] | None = None
    ) -> None:
        self.starts = starts
        self.columns = columns
        self.constants = constants

    @classmethod
    def of_row(cls, row: Row) -> Stretches:
        """Returns a single row."""
        starts, values = stretches_of(row)
        return cls(list(starts), [[value] for value in values])

    def copy(self) -> Stretches:
        """Returns a copy that shares no list with a matrix."""
        return self.mapped(list)

    def mapped(self, change: Callable[[Column], Column]) -> Stretches:
        """Applies a linear function to each column, and to the constants."""
        constants = None if self.constants is None else list(map(change, self.constants))
        return Stretches(self.starts, list(map(change, self.columns)), constants)

    def is_same(self, other: Stretches) -> bool:
        """Returns whether the other is the same, split at the same columns."""
        mine, its = (self.starts, self.columns, self.constants), (other.starts, other.columns)
        return mine == (*its, other.constants)

    def at(self, row: int, column: int) -> tuple[int, int]:
        """Returns the symbol of a row at a column: unknowns, and the constant."""
        constant = 0
        if self.constants is not None:
            constant = self.constants[bisect_right(self.starts, column) - 1][row]
        values = [each[row] for each in self.columns]
        return value_at(row_of(self.starts, values), column), constant

    def keys(self, *, thorough: bool = True) -> Keys:
        """Returns a key of the rows; see `keys_of_columns`."""
        keys = keys_of_columns(self.starts, self.columns, thorough=thorough)
        if self.constants is None or not any(map(any, self.constants)):
            return keys
        return with_constants(keys, self.starts, self.constants)

    def taken(self, rows: list[int]) -> Stretches:
        """Returns some rows, a list of them; row -1 is a row of zeros."""
        return self.mapped(lambda column: rows_taken(column, rows))

    def scaled(self, factor: int) -> Stretches:
        """Returns all elements times a factor."""
        if factor == 1:
            return self
        return self.mapped(lambda column: scaled(column, factor))

    def range_sums(self, ranges: list[tuple[int, int]]) -> Stretches:
        """Returns the sums of rows begin <= r < end, given as pairs; zeros where begin is -1."""
        return self.mapped(lambda column: _range_sums(column, ranges))


def rows_taken(column: Column, rows: list[int]) -> Column:
    """Returns some rows of a column; row -1 is zero."""
    source = [*column, 0] if -1 in rows else column
    return [source[row] for row in rows]


def _range_sums(column: Column, ranges: list[tuple[int, int]]) -> Column:
    return [sum(column[begin:end]) % PRIME if begin >= 0 else 0 for begin, end in ranges]
