"""Lists of rows as a few regular blocks, so that copies need no index at run time.

The index lists of computations are seldom irregular: they are progressions (rows of one frame of
all sequences), or progressions of progressions (a change between orders by n and by t). Each such
block becomes one strided view of the arena, and a copy of it one call.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
"""The starts of rows in the arena, in elements."""

NO_BREAKS: Final[Positions] = np.zeros(0, dtype=np.int64)


@attrs.frozen(eq=False)
class RegularBlocks:
    """Blocks that cover rows 0, 1, ... of several lists in order.

    Block b has the rows first + i * outer + j * inner of each list, 0 <= i < runs, 0 <= j < length.
    Lists of thousands of sequences can have as many blocks: they are arrays, not objects.

    Attributes:
        start: (blocks,): position in the lists of the first row.
        runs: (blocks,): number of them.
        length: (blocks,): number of rows in each run.
        first: (number of lists, blocks): position in the arena of the first row.
        outer: (number of lists, blocks): distance of the runs.
        inner: (number of lists, blocks): distance of the rows of a run.
    """

    start: Positions
    runs: Positions
    length: Positions
    first: Positions
    outer: Positions
    inner: Positions

    def __len__(self) -> int:
        return len(self.start)


def regular_blocks(lists: Positions) -> RegularBlocks:
    """Splits lists of rows that belong together into regular blocks, in order.

    Takes time in proportion to the number of rows.

    Args:
        lists: (number of lists, rows): column i has the place of row i in each list.

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
    return RegularBlocks(start[at], runs, length[at], first[:, at], outer, inner[:, at])


def _progressions(lists: Positions, breaks: Positions = NO_BREAKS) -> Positions:
    """Where the longest progressions begin, taken greedily from the left.

    Args:
        lists: (number of lists, places): numbers that should change by equal steps; at least one
            place.
        breaks: Places at which a progression must not go on, ascending.
    """
    # Bends: places where the step to the next place differs from the step before. A bend is the
    # last place of a progression, unless it is the first.
    bends = _changes(np.diff(lists, axis=1))
    part = np.searchsorted(breaks, bends, side="right")
    firsts = np.concatenate([[0], breaks])[part]
    is_inside = bends > firsts
    bends, part = bends[is_inside], part[is_inside]
    # Among adjacent bends, every second one is the first place of a progression.
    is_apart = np.concatenate([[True], (np.diff(bends) > 1) | (np.diff(part) > 0)])[: len(bends)]
    places = np.arange(len(bends))
    since = places - np.maximum.accumulate(np.where(is_apart, places, 0))
    is_first = np.zeros(lists.shape[1], dtype=np.bool_)
    is_first[0] = True
    is_first[breaks] = True
    is_first[bends[since % 2 == 0] + 1] = True
    return np.flatnonzero(is_first)


def _changes(lists: Positions) -> Positions:
    """The places at which some list differs from the place before, ascending."""
    return np.flatnonzero((lists[:, 1:] != lists[:, :-1]).any(axis=0)) + 1
