"""Lists of rows of one matrix that go to rows of another; ranges where possible."""

from __future__ import annotations

import numpy as np
from nnet3_computation.arrays import Ids, expand_ranges
from nnet3_computation.commands import Table

Rows = Ids | Table | range
"""Rows, (N,), in an array or as a range."""

NO_ROW = -1
"""Stands for no row."""


def inverted(sources: Rows, targets: Rows, count: int) -> Rows | None:
    """Returns the target of each of the first `count` rows of a matrix that was copied.

    Args:
        sources: (N,) the rows that were copied; NO_ROW does not count.
        targets: (N,) the rows of the other matrix that they were copied to.
        count: The number of rows.

    Returns:
        (count,) rows of the other matrix; None if some row was copied nowhere.
    """
    if isinstance(sources, range) and sources == range(count):
        return targets
    rows = np.full(count + 1, NO_ROW, np.int32)  # the last entry takes targets of NO_ROW
    rows[as_array(sources)] = as_array(targets)
    return rows[:-1] if rows[:-1].min(initial=0) >= 0 else None


def as_array(rows: Rows) -> Ids | Table:
    """Returns rows as an array, (N,)."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows


def count_up(rows: Ids | Table) -> bool:
    """Whether rows, (N,) and at least one, follow one another."""
    return int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((rows[1:] > rows[:-1]).all())


def members(begin: Table, count: Ids) -> Rows:
    """Returns the members of ranges, given by first member and size, one after another."""
    if (begin[1:] == begin[:-1] + count[:-1]).all():
        return range(int(begin[0]), int(begin[-1] + count[-1]))
    return expand_ranges(begin.astype(np.int64), count)
