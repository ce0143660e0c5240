"""Packing of blocks from the peak outwards.

Only at the peak does an arena have no room to spare. So the blocks that are needed at the peak are
stacked first, the ones needed longest at the bottom. The other blocks are then placed in the gaps,
going from the peak on to the end, and from the peak back to the beginning. Events are sorted once;
the rest of the time goes into following them and looking for gaps.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nnet3_computation.memory.live import Blocks, Ints

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


class SeveralSpans(NamedTuple):
    """The spans in which a block is needed, and the places that it must avoid.

    Attributes:
        spans: Begin and end of each span, in order.
        clear_of: The stretches in which it would overlap stacked blocks, by offset.
        met: The other blocks with several spans that share some time with it.
    """

    spans: list[tuple[int, int]]
    clear_of: list[Stretch]
    met: list[int]

    def after(self, time: int) -> list[tuple[int, int]]:
        """Returns the spans that begin after a time."""
        return [span for span in self.spans if span[0] > time]

    def before(self, time: int) -> list[tuple[int, int]]:
        """Returns the spans that end up to a time, going back: minus their ends and begins."""
        return [(-end, -begin) for begin, end in reversed(self.spans) if end <= time]


def several_spans(blocks: Blocks, stack: Ints, edges: Ints) -> dict[int, SeveralSpans]:
    """Returns the spans of each block that has several, and the places that it must avoid.

    Args:
        blocks: The blocks.
        stack: (S,) int64, spans of blocks that are stacked, from the bottom.
        edges: (S + 1,) int64, the offsets between which they lie.
    """
    spans = blocks.spans_of_several
    if not len(spans):
        return {}
    block, begin, end = blocks.block[spans], blocks.begin[spans], blocks.end[spans]
    firsts = np.flatnonzero(np.diff(block, prepend=-1))
    numbers = block[firsts].tolist()

    meets = (begin[:, None] < blocks.end[stack]) & (end[:, None] > blocks.begin[stack])
    is_met = np.zeros((len(numbers), len(stack) + 2), dtype=np.bool_)
    is_met[:, 1:-1] = np.logical_or.reduceat(meets, firsts)
    # A stretch begins or ends where the block overlaps one of two neighbours.
    row, edge = np.nonzero(is_met[:, 1:] != is_met[:, :-1])
    ends = edges[edge].tolist()
    stretches = list(zip(ends[::2], ends[1::2], strict=True))
    times = list(zip(begin.tolist(), end.tolist(), strict=True))
    first_stretches = np.searchsorted(row[::2], np.arange(len(numbers) + 1)).tolist()
    first_times = [*firsts.tolist(), len(times)]
    result = {
        number: SeveralSpans(times[slice(*at)], stretches[slice(*of)], [])
        for number, at, of in zip(
            numbers, pairwise(first_times), pairwise(first_stretches), strict=True
        )
    }
    together = (begin[:, None] < end) & (end[:, None] > begin) & (block[:, None] != block)
    span, other = np.nonzero(together)
    for number, met in zip(block[span].tolist(), block[other].tolist(), strict=True):
        result[number].met.append(met)
    return result


_UNPLACED = -1


def from_the_peak(blocks: Blocks) -> Ints:
    """Stacks the blocks of the peak, then fills the gaps before and after.

    Returns:
        (B,) int64, the offset of each block.
    """
    peak, stack = blocks.peak, blocks.stack
    stacked = blocks.block[stack]
    edges = np.concatenate([[0], np.cumsum(blocks.sizes[stacked])])
    offsets = np.full(len(blocks.sizes), _UNPLACED, dtype=np.int64)
    offsets[stacked] = edges[:-1]
    several = several_spans(blocks, stack, edges)
    after, before = blocks.events_around_peak
    ends, begins = np.zeros((2, len(offsets)), dtype=np.int64)
    ends[blocks.block], begins[blocks.block] = blocks.end, blocks.begin
    places, sizes = offsets.tolist(), blocks.sizes.tolist()
    for events, ahead, last in (
        (after, {block: each.after(peak) for block, each in several.items()}, ends),
        (before, {block: each.before(peak) for block, each in several.items()}, -begins),
    ):
        gaps = Gaps(blocks.lower_bound)
        last_ends = last.tolist() if several else []  # nothing is reserved for others
        _place(events.tolist(), gaps, sizes, places, several, ahead, last_ends)
    return np.array(places, dtype=np.int64)


def _place(
    events: list[int],
    gaps: Gaps,
    sizes: list[int],
    offsets: list[int],
    several: dict[int, SeveralSpans],
    ahead: dict[int, list[tuple[int, int]]],
    ends: list[int],
) -> None:
    """Places blocks in the order in which they are needed, going away from the peak.

    The later spans of a block with several spans are reserved for it.

    Args:
        events: The block that is needed from then on, or ~block for one that no longer is.
        gaps: The free stretches at the peak.
        sizes: The size of each block.
        offsets: The offsets of blocks that are placed already, -1 for the others; those of the
            blocks that are met are filled in.
        several: The blocks that have several spans.
        ahead: The spans of these blocks that are met, in order.
        ends: For each of the other blocks when it is no longer needed.
    """
    reserved = sorted(
        (*span, block)
        for block, spans in ahead.items()
        if offsets[block] != _UNPLACED
        for span in spans
    )

    def stretches(of: Iterable[int]) -> list[Stretch]:
        """Returns where blocks lie."""
        return [(offsets[each], offsets[each] + sizes[each]) for each in of]

    kept = gaps.kept
    for block in events:
        if block < 0:
            kept[sizes[~block]].append(offsets[~block])
            continue
        size = sizes[block]
        if block in several:
            if offsets[block] != _UNPLACED:
                gaps.take_at(offsets[block], size)
                del reserved[[each for _, _, each in reserved].index(block)]
                continue
            met = [each for each in several[block].met if offsets[each] != _UNPLACED]
            clear_of = sorted(several[block].clear_of + stretches(met))
            offsets[block] = gaps.take_clear(size, clear_of)
            for span in ahead[block][1:]:
                insort(reserved, (*span, block))
        elif reserved and reserved[0][0] < ends[block]:
            until = [each for begin, _, each in reserved if begin < ends[block]]
            offsets[block] = gaps.take_clear(size, sorted(stretches(until)))
        else:
            exact = kept[size]
            offsets[block] = exact.pop() if exact else gaps.take(size)
