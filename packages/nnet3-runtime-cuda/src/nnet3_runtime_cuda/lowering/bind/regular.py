"""Lists of rows as a few regular blocks, so that copies need no index at run time.

The index lists of computations are seldom irregular: they are progressions (rows of one frame of
all sequences), or progressions of progressions (a change between orders by n and by t). Each such
block becomes one strided view of the arena, and a copy of it one call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
"""Where rows start in the arena, in elements."""

NO_BREAKS: Final[Positions] = np.zeros(0, dtype=np.int64)


class RegularBlock(NamedTuple):
    """Rows first + i * outer + j * inner of each of several lists, 0 <= i < runs, 0 <= j < length.

    Attributes:
        start: Position in the lists of the first row.
        runs: Number of them.
        length: Number of rows in each run.
        first: For each list, the position in the arena of the first row.
        outer: For each list, the distance of the runs.
        inner: For each list, the distance of the rows of a run.
    """

    start: int
    runs: int
    length: int
    first: list[int]
    outer: list[int]
    inner: list[int]


@attrs.frozen(eq=False)
class RegularBlocks:
    """Blocks that cover rows 0, 1, ... of several lists in order.

    Lists of thousands of sequences can have as many blocks, which are made when they are asked for.

    Attributes:
        start, runs, length: (blocks,): as in `RegularBlock`.
        first, outer, inner: (blocks, number of lists): likewise.
    """

    start: Positions
    runs: Positions
    length: Positions
    first: Positions
    outer: Positions
    inner: Positions

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[RegularBlock]:
        columns = (self.start, self.runs, self.length, self.first, self.outer, self.inner)
        return map(RegularBlock._make, zip(*(column.tolist() for column in columns), strict=True))


def regular_blocks(lists: Positions) -> RegularBlocks:
    """Splits lists of rows that belong together into regular blocks, in order.

    Takes time in proportion to the number of rows.

    Args:
        lists: (number of lists, rows): column i holds where row i lies, in each list.

    Returns:
        Blocks that cover the rows 0, 1, ... in order; greedy, not always the fewest.
    """
    start = _progressions(lists)
    length = np.diff(start, append=lists.shape[1])
    first = lists[:, start]
    second = np.minimum(start + 1, lists.shape[1] - 1)
    inner = np.where(length > 1, lists[:, second] - first, 0)
    # Runs that may be joined have the same length and the same distances of rows.
    alike = np.concatenate([inner, length[None]])
    at = _progressions(first, breaks=_changes(alike))
    runs = np.diff(at, append=len(start))
    # A block of one run has no next one: it gets the distance 0.
    outer = first[:, np.where(runs > 1, at + 1, at)] - first[:, at]
    return RegularBlocks(start[at], runs, length[at], first[:, at].T, outer.T, inner[:, at].T)


def _progressions(lists: Positions, breaks: Positions = NO_BREAKS) -> Positions:
    """Where the longest progressions begin, taken greedily from the left.

    Args:
        lists: (number of lists, places): what is to change by equal steps.
        breaks: Places at which a progression must not go on, ascending.
    """
    size = lists.shape[1]
    # Where the step to the next place is another than that from the one before: the last place of
    # a progression, unless it is the first.
    bends = [*_changes(np.diff(lists, axis=1)).tolist(), size]
    ends = [*breaks.tolist(), size]
    starts = []
    at = bend = end = 0
    while at < size:
        starts.append(at)
        while bends[bend] <= at:
            bend += 1
        while ends[end] <= at:
            end += 1
        at = min(bends[bend] + 1, ends[end])
    return np.array(starts)


def _changes(lists: Positions) -> Positions:
    """The places at which some list differs from the place before, ascending."""
    return np.flatnonzero((lists[:, 1:] != lists[:, :-1]).any(axis=0)) + 1
