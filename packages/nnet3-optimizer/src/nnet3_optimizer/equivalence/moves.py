"""Rows that come from other rows, by their labels: one each, or a window of them."""

from __future__ import annotations

from itertools import pairwise

import attrs
import numpy as np

from nnet3_optimizer.equivalence.labels import Ints, Labels
from nnet3_optimizer.equivalence.pattern import IrregularError

Window = tuple[tuple[int, int], ...]
"""Number and time of each row of a window."""

_PAIR_BYTES = 16


@attrs.frozen(eq=False, slots=False)
class Moves:
    """Rows that come from elsewhere, each within its sequence.

    Attributes:
        rows: (rows,) int64, where each comes from; -1 for nowhere.
        steps: The differences in time that there are.
        step_of: (rows,) int64, the number of that of each row; None if there are none but one.
        time: The one time that all rows come from if they go to several; None if there is not one.
    """

    rows: Ints
    steps: list[int]
    step_of: Ints | None
    time: int | None

    @classmethod
    def of(cls, rows: Ints, source: Labels, target: Labels) -> Moves:
        """Returns how rows of a source get to a target.

        Raises:
            IrregularError: Some change their sequence.
        """
        is_row = rows >= 0
        if not is_row.any():
            return cls(rows, [0], None, None)
        some = rows if is_row.all() else rows[is_row]
        place = slice(None) if some is rows else is_row
        if (some >= len(source.times)).any():
            raise IrregularError
        if (source.sequences[some] != target.sequences[place]).any():
            raise IrregularError
        times = source.times[some]
        steps = times - target.times[place]
        if (steps == steps[0]).all():
            return cls(rows, [int(steps[0])], None, None)
        if (times == times[0]).all():
            return cls(rows, [0], None, int(times[0]))
        distinct, inverse = np.unique(steps, return_inverse=True)
        step_of = np.zeros(len(rows), dtype=np.int64)
        step_of[place] = inverse.ravel()
        return cls(rows, distinct.tolist(), step_of, None)


def steps_between(source: Labels, target: Labels) -> int | None:
    """Returns the steps in time by which all rows differ, row by row; None if there is not one.

    Raises:
        IrregularError: Some are of different sequences.
    """
    if len(source.times) != len(target.times) or (source.sequences != target.sequences).any():
        raise IrregularError
    steps = source.times - target.times
    return int(steps[0]) if (steps == steps[0]).all() else None


@attrs.frozen(eq=False)
class Windows:
    """For each row of a target a range of rows of a source, each within its sequence.

    Attributes:
        begin, end: (rows,) int64; empty where end <= begin.
        source, target: The labels of both.
    """

    begin: Ints
    end: Ints
    source: Labels
    target: Labels

    def held(self, numbers: Ints) -> tuple[list[Window], bool, Ints | None]:
        """Returns what the windows hold.

        Args:
            numbers: (rows of the source,) a number for each of them.

        Returns:
            Each different window; whether times are those of the source, as they are where all its
            rows have one and those of the target have several, not relative to the target; and the
            place of the window of each row of the target, None if all are the same.

        Raises:
            IrregularError: A window holds rows of another sequence.
        """
        lengths = np.maximum(self.end - self.begin, 0)
        stops = np.cumsum(lengths)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        rows = np.arange(len(owner)) - (stops - lengths - self.begin)[owner]
        if len(rows) and (rows.min() < 0 or rows.max() >= len(numbers)):
            raise IrregularError
        if (self.source.sequences[rows] != self.target.sequences[owner]).any():
            raise IrregularError
        times, targets = self.source.times[rows], self.target.times[owner]
        is_absolute = bool((times == times[:1]).all() and (targets != targets[:1]).any())
        if not is_absolute:
            times = times - targets
        pairs = np.stack([numbers[rows], times], axis=1)
        if len(rows) == len(lengths) and (lengths == 1).all():
            different, place = _different(pairs)
            windows: list[Window] = [(tuple(pair),) for pair in different.tolist()]
        else:
            data, found = pairs.tobytes(), dict[bytes, int]()
            ends = [0, *(stops * _PAIR_BYTES).tolist()]
            place = np.array([found.setdefault(data[a:b], len(found)) for a, b in pairwise(ends)])
            windows = [_window(each) for each in found]
        return windows, is_absolute, place if len(windows) > 1 else None


def _different(pairs: Ints) -> tuple[Ints, Ints]:
    """Returns the different pairs of numbers, and the place of each there."""
    low = pairs.min(axis=0)
    span = int(pairs[:, 1].max() - low[1]) + 1
    _, first, place = np.unique(
        (pairs[:, 0] - low[0]) * span + pairs[:, 1] - low[1], return_index=True, return_inverse=True
    )
    return pairs[first], place.ravel()


def _window(data: bytes) -> Window:
    numbers, times = np.frombuffer(data, dtype=np.int64).reshape(-1, 2).T.tolist()
    return tuple(zip(numbers, times, strict=True))
