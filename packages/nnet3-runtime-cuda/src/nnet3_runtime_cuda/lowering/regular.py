"""Lists of rows as a few regular blocks, so that copies need no index at run time.

The index lists of computations are seldom irregular: they are progressions (rows of one frame of
all sequences), or progressions of progressions (a change between orders by n and by t). Each such
block becomes one strided view of the arena, and a copy of it one call.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
"""Where rows start in the arena, in elements."""


@attrs.frozen
class RegularBlock:
    """Rows first + i * outer + j * inner of each of several lists, 0 <= i < count, 0 <= j < length.

    Attributes:
        start: Position in the lists of the first row.
        count: Number of runs.
        length: Number of rows in each run.
        first: For each list, the position in the arena of the first row.
        outer: For each list, the distance of the runs.
        inner: For each list, the distance of the rows of a run.
    """

    start: int
    count: int
    length: int
    first: tuple[int, ...]
    outer: tuple[int, ...]
    inner: tuple[int, ...]


def regular_blocks(lists: Positions) -> list[RegularBlock]:
    """Splits lists of rows that belong together into regular blocks, in order.

    Args:
        lists: (number of lists, rows): column i holds where row i lies, in each list.

    Returns:
        Blocks that cover the rows 0, 1, ... in order; greedy, not always the fewest.
    """
    runs = _runs(lists)
    starts = np.array([start for start, _ in runs])
    lengths = np.array([length for _, length in runs])
    first = lists[:, starts]
    last = lists.shape[1] - 1
    inner = np.where(lengths > 1, lists[:, np.minimum(starts + 1, last)] - first, 0)
    # Runs that may be joined have the same length and the same distances of rows.
    alike = np.concatenate([inner, lengths[None]])
    blocks = []
    at = 0
    while at < len(runs):
        count = _joined(first[:, at:], alike[:, at:])
        outer = first[:, at + 1] - first[:, at] if count > 1 else first[:, at] * 0
        blocks.append(
            RegularBlock(
                start=int(starts[at]),
                count=count,
                length=int(lengths[at]),
                first=tuple(first[:, at].tolist()),
                outer=tuple(outer.tolist()),
                inner=tuple(inner[:, at].tolist()),
            )
        )
        at += count
    return blocks


def _runs(lists: Positions) -> list[tuple[int, int]]:
    """Start and length of the longest progressions, taken greedily from the left."""
    size = lists.shape[1]
    steps = np.diff(lists, axis=1)
    changes = np.flatnonzero((steps[:, 1:] != steps[:, :-1]).any(axis=0)) + 1
    runs, start, change = [], 0, 0
    while start < size:
        # The first change of step behind the step from row `start` to the next one.
        while change < len(changes) and changes[change] <= start:
            change += 1
        end = int(changes[change]) + 1 if change < len(changes) else size
        end = max(end, start + 1)
        runs.append((start, end - start))
        start = end
    return runs


def _joined(first: Positions, alike: Positions) -> int:
    """How many of the runs, from the first on, form one block."""
    differs = (alike[:, 1:] != alike[:, :1]).any(axis=0)
    same = int(np.argmax(differs)) + 1 if differs.any() else alike.shape[1]
    if same <= 2:
        return same
    steps = np.diff(first[:, :same], axis=1)
    changes = (steps != steps[:, :1]).any(axis=0)
    return int(np.argmax(changes)) + 1 if changes.any() else same
