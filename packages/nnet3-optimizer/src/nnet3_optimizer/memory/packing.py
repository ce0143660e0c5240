"""Packing of blocks that live for a while into one arena: dynamic storage allocation.

The lower bound of any packing is the largest sum of live bytes. The problem is NP-complete; but at
the peak the arena has no room to spare, and everything else happens where it has. So what lives at
the peak is stacked first, last to die at the bottom, and then the rest is placed in the gaps, going
from the peak back to the beginning and from the peak on to the end. For computations of nnet3 that
nearly always meets the bound. Where it does not, blocks are placed one by one, largest first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

GOOD_ENOUGH = 1.01
"""A packing within this factor of the lower bound is not improved any further."""

WORTH_TRYING = 500
"""The number of blocks up to which a slower way (quadratic in their number) is tried too."""

TRIES = 800
"""So many blocks in all are placed anew, for each order to start from, until that is met."""

_UNPLACED = -1


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Blocks:
    """Blocks of memory, each needed during one or several half-open spans of time.

    Attributes:
        sizes: (B,) int64 bytes, positive.
        block: (P,) int64, the block of each span.
        begin: (P,) int64, the time from which block[p] is needed.
        end: (P,) int64, the time up to which it is needed (not included). A block lies at one
            offset in all its spans.
    """

    sizes: Ints
    block: Ints
    begin: Ints
    end: Ints

    @cached_property
    def _live(self) -> tuple[Ints, Ints]:
        """Times at which the number of live bytes changes, and the bytes from then on."""
        size = self.sizes[self.block]
        times = np.concatenate([self.begin, self.end])
        changes = np.concatenate([size, -size])
        # What ends at a time is given back before what begins is taken.
        order = np.lexsort((changes, times))
        return times[order], np.cumsum(changes[order])

    @property
    def lower_bound(self) -> int:
        """The largest sum of the sizes of blocks that are needed at the same time, in bytes."""
        return int(self._live[1].max(initial=0))

    @property
    def peak(self) -> int:
        """The first time at which so many bytes are needed."""
        times, live = self._live
        return int(times[live.argmax()]) if len(live) else 0

    @property
    def lifetimes(self) -> Ints:
        """(B,) int64, the time from the first begin to the last end of each block."""
        begin = np.full(len(self.sizes), np.iinfo(np.int64).max)
        end = np.zeros(len(self.sizes), dtype=np.int64)
        np.minimum.at(begin, self.block, self.begin)
        np.maximum.at(end, self.block, self.end)
        lifetimes: Ints = end - begin
        return lifetimes


@attrs.frozen(kw_only=True, eq=False)
class Packing:
    """Where blocks lie.

    Attributes:
        offsets: (B,) int64 bytes.
        size: Bytes of the arena that holds them all.
    """

    offsets: Ints
    size: int


def pack(blocks: Blocks) -> Packing:
    """Finds an offset for every block such that blocks needed at one time do not overlap."""
    best = from_the_peak(blocks)
    bound = blocks.lower_bound * GOOD_ENOUGH
    if best.size <= bound or len(blocks.sizes) > WORTH_TRYING:
        return best
    tries = max(1, TRIES // len(blocks.sizes))
    for order in _orders(blocks):
        for _ in range(tries):
            other = in_order(blocks, order, np.full(len(blocks.sizes), _UNPLACED))
            best = min(best, other, key=lambda packing: packing.size)
            if best.size <= bound:
                return best
            # What ends up on top was in the way too late: it gets its place first the next time.
            is_top = (other.offsets + blocks.sizes)[order] == other.size
            order = np.concatenate([order[is_top], order[~is_top]])
    return best


# -- from the peak outwards ------------------------------------------------------------------------


class _Span(NamedTuple):
    """A span of a block, in the direction of the sweep."""

    begin: int
    end: int
    block: int


class _Held(NamedTuple):
    """A stretch of the arena that is held up to a time."""

    end: int
    offset: int
    size: int


def from_the_peak(blocks: Blocks) -> Packing:
    """Stacks what is needed at the peak, then fills the gaps before and after it."""
    offsets = _stacked(blocks)
    size = int((offsets + blocks.sizes)[offsets >= 0].max(initial=0))
    after = blocks.begin > blocks.peak
    before = blocks.end <= blocks.peak
    at_peak = ~after & ~before
    # A sweep places the spans of a block on its side one after the other, so it must be one.
    spans = [np.bincount(blocks.block[side], minlength=len(offsets)) for side in (before, after)]
    several = np.flatnonzero((np.maximum(*spans) > 1) & (offsets < 0))
    if len(several):
        order = several[np.argsort(-blocks.sizes[several], kind="stable")]
        placed = in_order(blocks, order, offsets)
        offsets, size = placed.offsets, max(size, placed.size)
    for side, direction in ((before, -1), (after, 1)):
        sweep = _Sweep(blocks, offsets, direction, at_peak)
        sweep.run(np.flatnonzero(side))
        offsets, size = np.array(sweep.offsets, dtype=np.int64), max(size, sweep.top)
    return Packing(offsets=offsets, size=size)


def _stacked(blocks: Blocks) -> Ints:
    """Returns offsets of the blocks needed at the peak, -1 for the others."""
    at_peak = np.flatnonzero((blocks.begin <= blocks.peak) & (blocks.end > blocks.peak))
    at_peak = at_peak[np.lexsort((blocks.begin[at_peak], -blocks.end[at_peak]))]
    stack = blocks.block[at_peak]
    offsets = np.full(len(blocks.sizes), _UNPLACED, dtype=np.int64)
    offsets[stack] = np.cumsum(blocks.sizes[stack]) - blocks.sizes[stack]
    return offsets


class _Sweep:
    """Places blocks in the order in which they are needed, going away from the peak."""

    def __init__(self, blocks: Blocks, offsets: Ints, direction: int, at_peak: Bools) -> None:
        """Prepares a sweep.

        Args:
            blocks: The blocks.
            offsets: Where some of them lie already, -1 for the others.
            direction: 1 to go on to later times, -1 to go back to earlier ones.
            at_peak: (P,) bool, the spans that are needed at the peak.
        """
        self.offsets: list[int] = offsets.tolist()
        self.sizes: list[int] = blocks.sizes.tolist()
        self.top = 0
        begin, end = (blocks.begin, blocks.end) if direction > 0 else (-blocks.end, -blocks.begin)
        self._begin, self._end, self._block = begin, end, blocks.block
        self._num_spans = np.bincount(blocks.block, minlength=len(self.sizes)).tolist()
        self._gaps = _Gaps()
        self._held: list[_Held] = []
        for block, until in zip(blocks.block[at_peak].tolist(), end[at_peak].tolist(), strict=True):
            self._hold(until, self.offsets[block], self.sizes[block])
        self._reserved: list[_Span] = []

    def run(self, spans: Ints) -> None:
        """Places the blocks of these spans; those with an offset keep it."""
        columns = (self._begin[spans], self._end[spans], self._block[spans])
        order = np.lexsort((-np.array(self.sizes, dtype=np.int64)[columns[2]], columns[0]))
        items = [_Span(*each) for each in zip(*(c[order].tolist() for c in columns), strict=True)]
        self._reserved = [span for span in items if self.offsets[span.block] != _UNPLACED]
        for begin, end, block in items:
            while self._held and self._held[0].end <= begin:
                self._gaps.give_back(*heappop(self._held)[1:])
            if self.offsets[block] == _UNPLACED:
                self.offsets[block] = self._choose(begin, end, block)
            self._hold(end, self.offsets[block], self.sizes[block])

    def _hold(self, until: int, offset: int, size: int) -> None:
        self._gaps.take(offset, size)
        heappush(self._held, _Held(until, offset, size))
        self.top = max(self.top, offset + size)

    def _ahead(self, begin: int, end: int, block: int) -> list[tuple[int, int]]:
        """Stretches that the block has to stay clear of, apart from what is held now, by offset."""
        blocks = {s.block for s in self._reserved if s.begin < end and s.end > begin}
        if self._num_spans[block] > 1:
            meets = np.zeros(len(self._block), dtype=np.bool_)
            for span in np.flatnonzero(self._block == block).tolist():
                meets |= (self._begin < self._end[span]) & (self._end > self._begin[span])
            blocks.update(self._block[meets].tolist())
        return sorted(
            (self.offsets[other], self.sizes[other])
            for other in blocks
            if self.offsets[other] != _UNPLACED
        )

    def _choose(self, begin: int, end: int, block: int) -> int:
        """The start of a stretch in the tightest gap, clear of what is there in all its spans."""
        size = self.sizes[block]
        ahead = self._ahead(begin, end, block)
        best, tightest = -1, float("inf")
        for start, room in self._gaps:
            if room < size or (best >= 0 and room >= tightest):
                continue
            place = start
            for offset, length in ahead:
                if offset < place + size and place < offset + length:
                    place = offset + length
            if place + size <= start + room:
                best, tightest = place, room
        return best


class _Gaps:
    """The free stretches of an arena without end, none touching another."""

    def __init__(self) -> None:
        self._starts: list[int] = [0]
        self._sizes: dict[int, float] = {0: float("inf")}

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Start and size of each gap, by start; the last one has no end."""
        return ((start, self._sizes[start]) for start in self._starts)

    def take(self, start: int, size: int) -> None:
        """Takes the bytes start, ..., start + size - 1, which must be free."""
        position = bisect_left(self._starts, start + 1) - 1
        gap = self._starts[position]
        rest = gap + self._sizes[gap] - (start + size)
        if start > gap:
            self._sizes[gap] = start - gap
            position += 1
        else:
            del self._starts[position], self._sizes[gap]
        if rest > 0:
            self._starts.insert(position, start + size)
            self._sizes[start + size] = rest

    def give_back(self, start: int, size: int) -> None:
        """Returns a stretch, joining it with the gaps before and after it."""
        total: float = size
        position = bisect_left(self._starts, start)
        if position < len(self._starts) and self._starts[position] == start + size:
            total += self._sizes.pop(self._starts.pop(position))
        before = self._starts[position - 1] if position else None
        if before is not None and before + self._sizes[before] == start:
            self._sizes[before] += total
        else:
            insort(self._starts, start)
            self._sizes[start] = total


# -- one by one ------------------------------------------------------------------------------------


def _orders(blocks: Blocks) -> Iterator[Ints]:
    """Orders in which blocks may be placed: the stack of the peak first, or by size, time, area."""
    lifetimes = blocks.lifetimes
    stack = _stacked(blocks)
    yield np.lexsort((-blocks.sizes, stack, stack < 0))
    yield np.lexsort((-lifetimes, -blocks.sizes))
    yield np.lexsort((-blocks.sizes, -lifetimes))
    yield np.argsort(-lifetimes * blocks.sizes, kind="stable")


def in_order(blocks: Blocks, order: Ints, offsets: Ints) -> Packing:
    """Places blocks in the given order, each in the tightest gap between those already placed.

    Args:
        blocks: The blocks.
        order: The blocks to place.
        offsets: Where some blocks lie already, -1 for the others.
    """
    offsets = offsets.copy()
    top = 0
    for block in order.tolist():
        meets = np.zeros(len(blocks.block), dtype=np.bool_)
        for span in np.flatnonzero(blocks.block == block).tolist():
            meets |= (blocks.begin < blocks.end[span]) & (blocks.end > blocks.begin[span])
        neighbours = np.unique(blocks.block[meets & (offsets[blocks.block] >= 0)])
        size = int(blocks.sizes[block])
        offsets[block] = _tightest_gap(offsets[neighbours], blocks.sizes[neighbours], size)
        top = max(top, int(offsets[block]) + size)
    return Packing(offsets=offsets, size=top)


def _tightest_gap(starts: Ints, sizes: Ints, size: int) -> int:
    """The offset of the smallest gap of at least `size` bytes before or between stretches."""
    if not len(starts):
        return 0
    order = np.argsort(starts)
    starts, stops = starts[order], (starts + sizes)[order]
    filled = np.maximum.accumulate(stops)
    gap_starts = np.concatenate([[0], filled[:-1]])
    gap_sizes = starts - gap_starts
    fits = np.flatnonzero(gap_sizes >= size)
    if not len(fits):
        return int(filled[-1])
    return int(gap_starts[fits[np.argmin(gap_sizes[fits])]])
