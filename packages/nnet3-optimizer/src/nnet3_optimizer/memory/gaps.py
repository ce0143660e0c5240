"""The free stretches of an arena without end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence

Stretch = tuple[int, int]
"""Begin and end, in bytes."""


class Gaps:
    """The free stretches of an arena.

    Most blocks are of few sizes. A stretch that was given back is kept by its size for the next
    block of that size; only when one is missing are stretches joined with their neighbours.

    Attributes:
        kept: For each size where the stretches begin that were given back. To give one back is to
            append it, and any may be taken.
    """

    def __init__(self, begin: int) -> None:
        """Makes the arena free from `begin` on."""
        self._starts: list[int] = [begin]
        self._stops: list[float] = [float("inf")]
        self.kept: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, size: int, clear_of: Sequence[Stretch] = ()) -> int:
        """Takes a stretch, as tight as possible, and returns where it begins.

        Args:
            size: Its size.
            clear_of: Stretches that it must not meet, by begin.
        """
        exact = self.kept[size]
        if exact and not clear_of:
            return exact.pop()
        gap, place = self._tightest(size, clear_of)
        if gap == len(self._starts) - 1 and any(self.kept.values()):
            # Before the arena grows.
            self._join()
            gap, place = self._tightest(size, clear_of)
        self._cut(gap, place, size)
        return place

    def _tightest(self, size: int, clear_of: Sequence[Stretch]) -> tuple[int, int]:
        """Returns the tightest gap that a stretch fits into, and where it begins there."""
        best, tightest, place = -1, float("inf"), 0
        for gap, (start, stop) in enumerate(zip(self._starts, self._stops, strict=True)):
            room = stop - start
            if room < size or (best >= 0 and room >= tightest):
                continue
            begin = _first_clear(start, size, clear_of) if clear_of else start
            if begin + size <= stop:
                best, tightest, place = gap, room, begin
                if room == size:
                    break
        return best, place

    def take_at(self, start: int, size: int) -> None:
        """Takes the bytes start, ..., start + size - 1, which must be free."""
        self._join()
        self._cut(bisect_right(self._starts, start) - 1, start, size)

    def _cut(self, gap: int, start: int, size: int) -> None:
        """Takes bytes out of a gap."""
        begin, stop = self._starts[gap], self._stops[gap]
        if start == begin:
            if start + size == stop:
                del self._starts[gap], self._stops[gap]
            else:
                self._starts[gap] = start + size
            return
        self._stops[gap] = start
        if start + size < stop:
            self._starts.insert(gap + 1, start + size)
            self._stops.insert(gap + 1, stop)

    def _join(self) -> None:
        """Puts what was given back among the gaps, joined with its neighbours."""
        starts, stops = self._starts, self._stops
        for size, kept in self.kept.items():
            for start in kept:
                stop = start + size
                at = bisect_left(starts, start)
                joins_before = at > 0 and stops[at - 1] == start
                joins_after = at < len(starts) and starts[at] == stop
                if joins_before and joins_after:
                    stops[at - 1] = stops[at]
                    del starts[at], stops[at]
                elif joins_before:
                    stops[at - 1] = stop
                elif joins_after:
                    starts[at] = start
                else:
                    starts.insert(at, start)
                    stops.insert(at, stop)
        self.kept.clear()


def _first_clear(start: int, size: int, clear_of: Sequence[Stretch]) -> int:
    """Returns the first place from `start` on that meets none of these stretches."""
    for begin, end in clear_of:
        if begin < start + size and start < end:
            start = end
    return start
