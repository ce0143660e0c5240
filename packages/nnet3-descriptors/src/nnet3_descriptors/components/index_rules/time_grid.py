"""Rows on a regular grid of times, for components that read several times.

Rows are ordered by t and, for each t, by sequence: the distinct (n, x) in ascending order. Rows of
the grid that are missing in the given indexes become padding, with t = NO_TIME.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.indexes.arrays import NO_TIME, IndexArray, N, T, X, distinct
from nnet3_descriptors.limits import check_limit


@attrs.frozen
class TimeGrid:
    """Times in equal steps.

    Attributes:
        start: The first time.
        step: Difference of neighbouring times; 0 if there is only one time.
        count: Number of times.
    """

    start: int
    step: int
    count: int

    @property
    def last(self) -> int:
        """The last time."""
        return self.start + (self.count - 1) * self.step

    @classmethod
    def of(cls, indexes: IndexArray) -> TimeGrid:
        """Returns the smallest grid that holds the times of indexes (N, 3), padding left out."""
        times = indexes[:, T].astype(np.int64)
        steps = times[1:] - times[:-1]
        first = int(times[0])
        step = int(steps[0]) if len(steps) else 0
        # The rows of one sequence mostly are a grid. (To count is faster than to ask for all.)
        if step > 0 and first != NO_TIME and np.count_nonzero(steps == step) == len(steps):
            return cls(first, step, len(times))
        first = int(times.min())
        if first == NO_TIME:
            times = times[times != NO_TIME]
            first = int(times.min())
            steps = times[1:] - times[:-1]
        last = int(times.max())
        # A number that divides the differences of neighbours, in any order, divides all
        # differences.
        step = int(np.gcd.reduce(steps)) if len(steps) else 0
        return cls(first, step, (last - first) // step + 1 if step else 1)

    def refined(self, step: int) -> TimeGrid:
        """Returns the grid from the same first to the same last time, in smaller steps."""
        return TimeGrid(self.start, step, (self.last - self.start) // step + 1)


def sequences(indexes: IndexArray) -> NDArray[np.int64]:
    """Returns the distinct (n, x) of indexes (N, 3), ascending, each packed into one number."""
    n, x = indexes[:, N], indexes[:, X]
    size = len(indexes)
    if np.count_nonzero(n == n[0]) == np.count_nonzero(x == x[0]) == size:
        return np.array([(int(n[0]) << 32) + int(x[0])])
    found: NDArray[np.int64] = distinct(_pack(indexes))
    return found


def _pack(indexes: IndexArray) -> NDArray[np.int64]:
    return (indexes[:, N].astype(np.int64) << 32) + indexes[:, X]


def grid_indexes(
    indexes: IndexArray, sequences: NDArray[np.int64], grid: TimeGrid, interleave: int = 1
) -> IndexArray:
    """Returns the indexes of all rows of a grid; rows that are not in `indexes` are padding.

    Args:
        indexes: (N, 3) int32; their times are on the grid, their (n, x) among `sequences`.
        sequences: (S,) from `sequences`.
        grid: The times; `interleave` divides their number.
        interleave: Number of neighbouring times of a sequence that follow each other directly, so
            that rows of every interleave-th time have a constant distance.

    Returns:
        (grid.count * S, 3) int32.
    """
    check_limit("rows", grid.count * len(sequences), "the rows of a regular grid of times")
    step = grid.step or 1
    blocks = grid.count // interleave
    present = np.zeros((grid.count, len(sequences)), dtype=bool)
    rows = indexes[indexes[:, T] != NO_TIME]
    time = (rows[:, T].astype(np.int64) - grid.start) // step
    present[time, np.searchsorted(sequences, _pack(rows))] = True
    times = grid.start + step * np.arange(grid.count).reshape(blocks, 1, interleave)
    layout = present.reshape(blocks, interleave, len(sequences)).swapaxes(1, 2)
    result = np.empty((blocks, len(sequences), interleave, 3), dtype=np.int32)
    x = sequences.astype(np.int32)  # the lower half, with its sign
    result[..., N] = ((sequences - x) >> 32)[None, :, None]
    result[..., T] = np.where(layout, times, NO_TIME)
    result[..., X] = x[None, :, None]
    return result.reshape(-1, 3)
