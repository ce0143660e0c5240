"""Keys of rows of matrices: equal for equal rows, and only for equal rows.

A row that is one stretch of columns has its element as key. Other rows have the starts of all
stretches, then their elements, where neighbours that make one stretch are joined. The key of
several rows is a tuple of

- the starts of the stretches, and then for each stretch the elements of all rows, in a tuple; or
- None, and the keys of the rows in a tuple, where rows do not have their stretches alike.

The first form is used as long as possible, since it is made and compared by whole columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import compress, repeat
from typing import Any

from nnet3_optimizer.equivalence.symbols.prime_field import PRIME, shift
from nnet3_optimizer.equivalence.symbols.single_row import Row

Column = list[int]
"""An element for each row."""

Keys = tuple[Any, ...]
"""The key of several rows."""

ABSENT: Keys = ()
"""Stands for missing rows."""

ABSENT_ROW = -1
"""Stands for each missing row; it differs from the key of any row."""

_OF_ONE_STRETCH, _OF_TWO_STRETCHES = 2, 4
"""Lengths of rows as tuples."""

_WHOLE = (0,)
_NO_CONSTANT = (0, 0)


def key_of_row(row: Row) -> Row:
    """Returns the key of one row."""
    if isinstance(row, int):
        return row
    if len(row) == _OF_TWO_STRETCHES:
        return row[2] if row[2] * shift(row[1]) % PRIME == row[3] else row
    count = len(row) // 2
    begins = [True]
    for stretch in range(1, count):
        factor = shift(row[stretch] - row[stretch - 1])
        begins.append(row[count + stretch - 1] * factor % PRIME != row[count + stretch])
    if all(begins):
        return row
    joined = tuple(compress(row, [*begins, *begins]))
    return joined if len(joined) > _OF_ONE_STRETCH else joined[1]


def keys_of_columns(starts: list[int], columns: list[Column], *, thorough: bool) -> Keys:
    """Returns the key of rows given by the elements of each stretch.

    Args:
        starts: The columns at which stretches begin.
        columns: The elements of each.
        thorough: Whether to join stretches in each row. If not, only a few rows are tried first,
            and equal rows may have different keys.
    """
    if len(columns) == 1:
        return _WHOLE, tuple(columns[0])
    begins, some = [True], {0, len(columns[0]) // 2, len(columns[0]) - 1}
    for stretch in range(1, len(columns)):
        before, column = columns[stretch - 1], columns[stretch]
        factor = shift(starts[stretch] - starts[stretch - 1])
        joined: list[bool] = []
        if (
            thorough
            or (0 in before and 0 in column)
            or any(before[row] * factor % PRIME == column[row] for row in some)
        ):
            joined = [a * factor % PRIME == b for a, b in zip(before, column, strict=True)]
            if any(joined) and not all(joined):
                rows = zip(*columns, strict=True)
                return None, tuple([key_of_row((*starts, *row)) for row in rows])
        begins.append(not any(joined))
    return tuple(compress(starts, begins)), *map(tuple, compress(columns, begins))


def with_constants(keys: Keys, starts: list[int], constants: list[Column]) -> Keys:
    """Returns the key of rows to which constants are added, given their key without."""
    added = [_runs(starts, row) for row in zip(*constants, strict=True)]
    pairs = zip(rows_of(keys), added, strict=True)
    return None, tuple([row if c == _NO_CONSTANT else (row, "+", *c) for row, c in pairs])


def _runs(starts: list[int], values: tuple[int, ...]) -> tuple[int, ...]:
    """Returns start and value of each stretch that differs from the one before."""
    runs: list[int] = []
    for stretch, value in enumerate(values):
        if stretch == 0 or value != values[stretch - 1]:
            runs += starts[stretch], value
    return tuple(runs)


def num_rows(keys: Keys) -> int:
    """Returns the number of rows of a key."""
    return len(keys[1])


def rows_of(keys: Keys) -> Iterable[Hashable]:
    """Returns the key of each row."""
    starts, *columns = keys
    if len(columns) == 1:
        only: tuple[Hashable, ...] = columns[0]
        return only
    return zip(*map(repeat, starts), *columns, strict=False)
