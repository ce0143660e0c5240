"""Packing of blocks that live for a while into one arena: dynamic storage allocation.

The lower bound of any packing is the largest sum of live bytes. The problem is NP-complete; on the
lifetimes of nnet3 computations a sweep over time that takes the tightest gap nearly always meets
the bound, and placing the largest blocks first repairs the cases in which it does not.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from functools import cached_property
from heapq import heapify, heappop, heappush

import attrs
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

GOOD_ENOUGH = 1.005
"""A packing within this factor of the lower bound is not improved any further."""


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Blocks:
    """Blocks of memory, each needed during one or several half-open spans of time.

    Attributes:
        sizes: (B,) int64 bytes, positive.
        block, begin, end: (P,) int64; span p says that block[p] is needed at the times
            begin[p] <= time < end[p]. A block lies at one offset in all its spans.
    """

    sizes: Ints
    block: Ints
    begin: Ints
    end: Ints

    @cached_property
    def lower_bound(self) -> int:
        """The largest sum of the sizes of blocks that are needed at the same time, in bytes."""
        size = self.sizes[self.block]
        times = np.concatenate([self.begin, self.end])
        changes = np.concatenate([size, -size])
        # What ends at a time is given back before what begins is taken.
        order = np.lexsort((changes, times))
        return int(np.cumsum(changes[order]).max(initial=0))

    @cached_property
    def hull(self) -> tuple[Ints, Ints]:
        """The first begin and the last end of each block."""
        begin = np.full(len(self.sizes), np.iinfo(np.int64).max)
        end = np.zeros(len(self.sizes), dtype=np.int64)
        np.minimum.at(begin, self.block, self.begin)
        np.maximum.at(end, self.block, self.end)
        return begin, end


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
    best = _sweep(blocks)
    for order in _orders(blocks):
        if best.size <= blocks.lower_bound * GOOD_ENOUGH:
            break
        best = min(best, _place_in_order(blocks, order), key=lambda packing: packing.size)
    return best


def _orders(blocks: Blocks) -> Iterator[Ints]:
    """Orders in which blocks may be placed: by lifetime, by size and by area, largest first."""
    begin, end = blocks.hull
    lifetime = end - begin
    yield np.lexsort((begin, -blocks.sizes, -lifetime))
    yield np.lexsort((begin, -lifetime, -blocks.sizes))
    yield np.lexsort((begin, -lifetime * blocks.sizes))


def _place_in_order(blocks: Blocks, order: Ints) -> Packing:
    """Places blocks in the given order, each in the tightest gap between those already placed."""
    sizes = blocks.sizes
    offsets = np.full(len(sizes), -1, dtype=np.int64)
    spans_of = _spans_by_block(blocks)
    top = 0
    for block in order.tolist():
        is_placed = offsets[blocks.block] >= 0
        meets = np.zeros(len(is_placed), dtype=np.bool_)
        for begin, end in spans_of[block]:
            meets |= (blocks.begin < end) & (blocks.end > begin)
        neighbours = np.unique(blocks.block[meets & is_placed])
        size = int(sizes[block])
        offsets[block] = _tightest_gap(offsets[neighbours], sizes[neighbours], size)
        top = max(top, int(offsets[block]) + size)
    return Packing(offsets=offsets, size=top)


def _spans_by_block(blocks: Blocks) -> list[list[tuple[int, int]]]:
    spans: list[list[tuple[int, int]]] = [[] for _ in blocks.sizes]
    for block, begin, end in zip(
        blocks.block.tolist(), blocks.begin.tolist(), blocks.end.tolist(), strict=True
    ):
        spans[block].append((begin, end))
    return spans


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


class _Gaps:
    """The free stretches of an arena without end, none touching another.

    Attributes:
        starts: Offsets at which gaps begin, ascending; the last gap has no end.
        sizes: Their sizes, by start.
    """

    def __init__(self) -> None:
        self.starts: list[int] = [0]
        self.sizes: dict[int, float] = {0: float("inf")}

    def take(self, start: int, size: int) -> None:
        """Takes the bytes start, ..., start + size - 1, which must be free."""
        position = bisect_left(self.starts, start)
        if position == len(self.starts) or self.starts[position] != start:
            position -= 1
            gap = self.starts[position]
            rest = self.sizes[gap] - (start - gap)
            self.sizes[gap] = start - gap
            position += 1
            self.starts.insert(position, start)
        else:
            rest = self.sizes.pop(start)
        del self.starts[position]
        self.sizes.pop(start, None)
        if rest > size:
            self.starts.insert(position, start + size)
            self.sizes[start + size] = rest - size

    def give_back(self, start: int, size: int) -> None:
        """Returns a stretch, joining it with the gaps before and after it."""
        total: float = size
        position = bisect_left(self.starts, start)
        if position < len(self.starts) and self.starts[position] == start + size:
            total += self.sizes.pop(self.starts.pop(position))
        before = self.starts[position - 1] if position else -1
        if before >= 0 and before + self.sizes[before] == start:
            self.sizes[before] += total
        else:
            insort(self.starts, start)
            self.sizes[start] = total


def _sweep(blocks: Blocks) -> Packing:
    """Places blocks in the order in which they are needed, each in the tightest gap.

    Blocks with several spans are placed beforehand, largest first, from the bottom of the arena;
    between its spans the place of such a block serves those that end in time.
    """
    sizes = blocks.sizes.tolist()
    num_spans = np.bincount(blocks.block, minlength=len(sizes))
    several = np.flatnonzero(num_spans > 1)
    offsets = [-1] * len(sizes)
    gaps = _Gaps()
    reserved: list[tuple[int, int, int, int]] = []  # begin, end, offset, size
    if len(several):
        offsets, reserved = _reserve(blocks, several)
    pending = sorted(reserved)
    active: list[tuple[int, int, int]] = []  # end, offset, size
    heapify(active)
    order = np.lexsort((-blocks.sizes[blocks.block], blocks.begin))
    order = order[num_spans[blocks.block[order]] == 1]
    top = max((offset + size for _, _, offset, size in reserved), default=0)
    next_reserved = 0
    for span in order.tolist():
        block, begin, end = (int(x[span]) for x in (blocks.block, blocks.begin, blocks.end))
        while next_reserved < len(pending) and pending[next_reserved][0] <= begin:
            at, until, offset, size = pending[next_reserved]
            next_reserved += 1
            _release(active, gaps, at)
            gaps.take(offset, size)
            heappush(active, (until, offset, size))
        _release(active, gaps, begin)
        ahead = [r for r in pending[next_reserved:] if r[0] < end]
        offset = _choose(gaps, sizes[block], ahead)
        gaps.take(offset, sizes[block])
        heappush(active, (end, offset, sizes[block]))
        offsets[block] = offset
        top = max(top, offset + sizes[block])
    return Packing(offsets=np.array(offsets, dtype=np.int64), size=top)


def _reserve(blocks: Blocks, several: Ints) -> tuple[list[int], list[tuple[int, int, int, int]]]:
    """Places the blocks with several spans; returns all offsets (-1: not yet) and their spans."""
    begin, _ = blocks.hull
    order = several[np.lexsort((begin[several], -blocks.sizes[several]))]
    offsets = _place_in_order(blocks, order).offsets.tolist()
    spans = np.flatnonzero(np.isin(blocks.block, several)).tolist()
    owner = blocks.block.tolist()
    reserved = [
        (
            int(blocks.begin[span]),
            int(blocks.end[span]),
            offsets[owner[span]],
            int(blocks.sizes[owner[span]]),
        )
        for span in spans
    ]
    return offsets, reserved


def _release(active: list[tuple[int, int, int]], gaps: _Gaps, time: int) -> None:
    """Gives back what is not needed at this time and after."""
    while active and active[0][0] <= time:
        _, offset, size = heappop(active)
        gaps.give_back(offset, size)


def _choose(gaps: _Gaps, size: int, ahead: list[tuple[int, int, int, int]]) -> int:
    """The start of a stretch of `size` bytes in the tightest gap, clear of what is ahead."""
    best, best_gap = -1, float("inf")
    for start in gaps.starts:
        room = gaps.sizes[start]
        if room < size or (best >= 0 and room >= best_gap):
            continue
        place = start
        for _, _, offset, length in sorted(ahead, key=lambda r: r[2]):
            if offset < place + size and place < offset + length:
                place = offset + length
        if place + size <= start + room:
            best, best_gap = place, room
    return best


__all__ = ["Blocks", "Packing", "pack"]
