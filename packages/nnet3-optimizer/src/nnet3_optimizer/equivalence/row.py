"""The symbolic content of matrices of a single row: what most of a recurrent network consists of.

The same as `matrices.Content`, without lists of rows, constants and rounding. Rows are values: what
is made of one shares its lists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from nnet3_optimizer.equivalence.field import PRIME, shift

Row = int | tuple[list[int], list[int]]
"""The sum of unknown rows if it is one stretch; else the columns at which stretches begin, the
first at 0, and the sum for each. Neither list is ever changed."""


def stretches_of(row: Row) -> tuple[list[int], list[int]]:
    """Returns where the stretches of a row begin, and the sum for each."""
    return ([0], [row]) if isinstance(row, int) else row


def row_of(starts: list[int], values: list[int]) -> Row:
    """Returns a row of these stretches."""
    return values[0] if len(values) == 1 else (starts, values)


def columns_of(row: Row, begin: int, cols: int) -> Row:
    """Returns columns of a row, as if they began at column 0."""
    if isinstance(row, int):
        return row * shift(begin) % PRIME if begin and row else row
    starts, values = row
    first = bisect_right(starts, begin) - 1
    last = bisect_left(starts, begin + cols, first)
    skipped = begin - starts[first]
    value = values[first]
    if skipped:
        value = value * shift(skipped) % PRIME
    if last == first + 1:
        return value
    return [0, *[start - begin for start in starts[first + 1 : last]]], [
        value,
        *values[first + 1 : last],
    ]


def with_columns(row: Row, part: Row, begin: int, end: int, width: int) -> Row:
    """Returns a row, of so many columns, with the columns begin, ..., end - 1 replaced."""
    if isinstance(part, int):
        starts, values = [begin], [part]
    else:
        starts, values = part
        if begin:
            starts = [begin + start for start in starts]
    if isinstance(row, int):
        if begin:
            starts, values = [0, *starts], [row, *values]
        if end < width:
            starts, values = [*starts, end], [*values, row * shift(end) % PRIME if row else 0]
        return starts, values
    own_starts, own = row
    last = len(own) if end == width else bisect_left(own_starts, end)
    if end < width and (last == len(own) or own_starts[last] != end):
        rest = own[last - 1]
        if rest:
            rest = rest * shift(end - own_starts[last - 1]) % PRIME
        starts, values = [*starts, end], [*values, rest]
    first = bisect_left(own_starts, begin)
    return [*own_starts[:first], *starts, *own_starts[last:]], [*own[:first], *values, *own[last:]]


def row_sum(one: Row, other: Row) -> Row:
    """Returns the sum of two rows, or parts of rows, of the same columns."""
    if one == 0:
        return other
    if isinstance(one, int) and isinstance(other, int):
        return (one + other) % PRIME
    one, other = stretches_of(one), stretches_of(other)
    if one[0] == other[0]:
        return one[0], [(a + b) % PRIME for a, b in zip(one[1], other[1], strict=True)]
    points = sorted({*one[0], *other[0]})
    return points, [(value_at(one, point) + value_at(other, point)) % PRIME for point in points]


def row_scaled(row: Row, factor: int) -> Row:
    """Returns a row times an element."""
    if isinstance(row, int):
        return row * factor % PRIME
    return row[0], [value * factor % PRIME for value in row[1]]


def value_at(row: Row, column: int) -> int:
    """Returns what stands for the columns of a stretch from some column on."""
    starts, values = stretches_of(row)
    stretch = bisect_right(starts, column) - 1
    skipped = column - starts[stretch]
    return values[stretch] * shift(skipped) % PRIME if skipped else values[stretch]
