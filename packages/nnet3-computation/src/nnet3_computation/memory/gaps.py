"""The free stretches of an arena."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

Stretch = tuple[int, int]
"""Begin and end, in bytes."""

_NO_GAP = -1


class Gaps:
    """The free stretches of an arena, which grows only where nothing fits below its ceiling.

    Most blocks are of few sizes. A stretch that is given back waits, under its size, for the next
    block of that size. It is joined with its neighbours only when a block finds none of its size.

    A block takes the upper end of the gap under the ceiling, and the lower end of other gaps. In a
    chain, where each block is needed until the next one exists, blocks then lie at either end in
    turn, and the free room stays in one piece.

    Attributes:
        kept: For each size the begins of the stretches that were given back. Append one to give it
            back; take any.
    """

    def __init__(self, ceiling: int) -> None:
        """Makes the arena free from the ceiling on."""
        self.kept: defaultdict[int, list[int]] = defaultdict(list)
        self._ceiling = ceiling
        self._top = ceiling
        """Everything above is free."""
        self._stop_of: dict[int, int] = {}
        """The gaps below: from their begin to their end."""
        self._start_of: dict[int, int] = {}
        """The same from end to begin, to find a neighbour without a search."""

    def take(self, size: int) -> int:
        """Takes a stretch, as tight as possible, and returns its begin."""
        gap = self._tightest(size)
        if gap == _NO_GAP:
            self._join()
            gap = self._tightest(size)
        if gap == _NO_GAP:
            return self._grow(size)
        stop = self._stop_of[gap]
        place = stop - size if stop == self._ceiling else gap
        self._cut(gap, place, size)
        return place

    def take_clear(self, size: int, clear_of: Sequence[Stretch]) -> int:
        """Takes a stretch, as tight as possible, that overlaps none of some others.

        Args:
            size: Its size.
            clear_of: The others, by begin.
        """
        self._join()
        best, tightest, place = _NO_GAP, math.inf, _first_clear(self._top, size, clear_of)
        for start, stop in self._stop_of.items():
            if size <= stop - start < tightest:
                begin = _first_clear(start, size, clear_of)
                if begin + size <= stop:
                    best, tightest, place = start, stop - start, begin
        if best == _NO_GAP:
            self._cut_top(place, size)
        else:
            self._cut(best, place, size)
        return place

    def take_at(self, start: int, size: int) -> None:
        """Takes the bytes start, ..., start + size - 1, which must be free."""
        self._join()
        for gap, stop in self._stop_of.items():
            if gap <= start < stop:
                self._cut(gap, start, size)
                self._top = max(self._top, start + size)
                return
        self._cut_top(start, size)

    def _tightest(self, size: int) -> int:
        """Returns where the tightest gap begins that a stretch fits into."""
        best, tightest = _NO_GAP, math.inf
        for start, stop in self._stop_of.items():
            if size <= stop - start < tightest:
                best, tightest = start, stop - start
        return best

    def _grow(self, size: int) -> int:
        """Takes a stretch from the top, or from a gap under it on."""
        place = self._start_of.pop(self._top, self._top)
        self._stop_of.pop(place, None)
        self._top = place + size
        return place

    def _add(self, start: int, stop: int) -> None:
        self._stop_of[start] = stop
        self._start_of[stop] = start

    def _cut(self, gap: int, start: int, size: int) -> None:
        """Takes bytes out of a gap."""
        stop = self._stop_of.pop(gap)
        del self._start_of[stop]
        if gap < start:
            self._add(gap, start)
        if start + size < stop:
            self._add(start + size, stop)

    def _cut_top(self, start: int, size: int) -> None:
        """Takes bytes that lie above all gaps."""
        if self._top < start:
            self._add(self._start_of.pop(self._top, self._top), start)
        self._top = start + size

    def _join(self) -> None:
        """Turns the stretches that were given back into gaps, joined with their neighbours."""
        stop_of, start_of = self._stop_of, self._start_of
        for size, kept in self.kept.items():
            for start in kept:
                stop = stop_of.pop(start + size, start + size)
                start = start_of.pop(start, start)
                stop_of[start] = stop
                start_of[stop] = start
        self.kept.clear()


def _first_clear(start: int, size: int, clear_of: Sequence[Stretch]) -> int:
    """Returns the first place from `start` on that overlaps none of these stretches."""
    for begin, end in clear_of:
        if begin < start + size and start < end:
            start = end
    return start
