"""The symbolic content of matrices of a single row, the most common ones in recurrent networks.

It is `matrices.Content` without lists of rows, constants and rounding. Rows are values: the sum of
unknown rows where they are one stretch of columns, else one flat tuple, so that neither making them
nor comparing them takes more than one object.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from nnet3_optimizer.equivalence.symbols.prime_field import PRIME, shift

Row = int | tuple[int, ...]
"""The sum of unknown rows if it is one stretch; else the columns at which stretches begin, the
first at 0, and then the sum for each."""


def stretches_of(row: Row) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns where the stretches of a row begin, and the sum for each."""
    if isinstance(row, int):
        return (0,), (row,)
    count = len(row) // 2
    return row[:count], row[count:]


def row_of(starts: Iterable[int], values: list[int]) -> Row:
    """Returns a row of these stretches."""
    return values[0] if len(values) == 1 else (*starts, *values)


def columns_of(row: Row, begin: int, cols: int) -> Row:
    """Returns columns of a row, as if they began at column 0."""
    if isinstance(row, int):
        return row * shift(begin) % PRIME if begin and row else row
    count = len(row) // 2
    first = bisect_right(row, begin, 0, count) - 1
    last = bisect_left(row, begin + cols, first, count)
    skipped = begin - row[first]
    value = row[count + first]
    if skipped:
        value = value * shift(skipped) % PRIME
    if last == first + 1:
        return value
    starts = [start - begin for start in row[first + 1 : last]]
    return (0, *starts, value, *row[count + first + 1 : count + last])


def with_columns(row: Row, part: Row, begin: int, end: int, width: int) -> Row:
    """Returns a row of `width` columns with the columns begin, ..., end - 1 replaced."""
    if begin == 0 and end == width:
        return part
    if isinstance(row, int):
        if begin == 0 and isinstance(part, int):
            return 0, end, part, row * shift(end) % PRIME if row else 0
        row = 0, row
    count = len(row) // 2
    if end == width and row[count - 1] == begin and isinstance(part, int):
        return *row[:-1], part
    first = bisect_left(row, begin, 0, count)
    last = count if end == width else bisect_left(row, end, 0, count)
    starts, values = stretches_of(part)
    starts = tuple([begin + start for start in starts])
    if end < width and (last == count or row[last] != end):
        rest = row[count + last - 1]
        if rest:
            rest = rest * shift(end - row[last - 1]) % PRIME
        starts, values = (*starts, end), (*values, rest)
    return (
        *row[:first],
        *starts,
        *row[last:count],
        *row[count : count + first],
        *values,
        *row[count + last :],
    )


def row_sum(one: Row, other: Row) -> Row:
    """Returns the sum of two rows, or parts of rows, of the same columns."""
    if one == 0:
        return other
    if isinstance(one, int) and isinstance(other, int):
        return (one + other) % PRIME
    starts, values = stretches_of(one)
    other_starts, other_values = stretches_of(other)
    if starts == other_starts:
        sums = [(a + b) % PRIME for a, b in zip(values, other_values, strict=True)]
        return (*starts, *sums)
    points = sorted({*starts, *other_starts})
    return (*points, *[(value_at(one, each) + value_at(other, each)) % PRIME for each in points])


def row_scaled(row: Row, factor: int) -> Row:
    """Returns a row times an element."""
    if isinstance(row, int):
        return row * factor % PRIME
    starts, values = stretches_of(row)
    return (*starts, *[value * factor % PRIME for value in values])


def value_at(row: Row, column: int) -> int:
    """Returns the symbol of the columns of a stretch from some column on."""
    starts, values = stretches_of(row)
    stretch = bisect_right(starts, column) - 1
    skipped = column - starts[stretch]
    return values[stretch] * shift(skipped) % PRIME if skipped else values[stretch]
