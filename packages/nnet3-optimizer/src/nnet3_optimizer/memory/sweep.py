"""Packing of blocks from the peak outwards.

At the peak an arena has no room to spare, and everything else happens where it has. So what lives
at the peak is stacked first, last to die at the bottom, and then the rest is placed in the gaps,
going from the peak back to the beginning and from the peak on to the end. Events are sorted once
for each direction; the time is that of sorting, and of looking for gaps.
"""

from __future__ import annotations

import math
from bisect import insort

import numpy as np

from nnet3_optimizer.memory.blocks import Blocks, Bools, Ints, Packing
from nnet3_optimizer.memory.gaps import Gaps, Stretch

_UNPLACED = -1

_Span = tuple[int, int, int]
"""Begin, end and block."""


def from_the_peak(
    blocks: Blocks, peak: int | None = None, limit: float = math.inf
) -> Packing | None:
    """Stacks what is needed at the peak, or another time, then fills the gaps before and after.

    Returns:
        The packing; None as soon as it takes more bytes than the limit.
    """
    peak = blocks.peak if peak is None else peak
    stack = blocks.stack_at(peak)
    sizes = blocks.sizes[stack]
    height = int(sizes.sum())
    offsets = np.full(len(blocks.sizes), _UNPLACED, dtype=np.int64)
    offsets[stack] = np.cumsum(sizes) - sizes
    places: list[int] = offsets.tolist()
    before, at_peak = blocks.end <= peak, blocks.spans_at(peak)
    after, top = ~(before | at_peak), height
    for begin, end, ahead in (
        (blocks.begin, blocks.end, after),
        (-blocks.end, -blocks.begin, before),
    ):
        sweep = _Sweep(blocks, places, height, begin, end, ahead, at_peak)
        top = max(top, sweep.run(limit))
        if top > limit:
            return None
    return Packing(offsets=np.array(places, dtype=np.int64), size=top)


class _Sweep:
    """Places blocks in the order in which they are needed, going away from the peak.

    What a block with several spans needs later on is reserved for it.
    """

    def __init__(
        self,
        blocks: Blocks,
        offsets: list[int],
        height: int,
        begin: Ints,
        end: Ints,
        ahead: Bools,
        at_peak: Bools,
    ) -> None:
        """Prepares a sweep.

        Args:
            blocks: The blocks.
            offsets: Where some of them lie already, -1 for the others. Those that are met on the
                way are added.
            height: How high those are stacked that are needed at the peak.
            begin: (P,) int64, when spans begin, in the direction of the sweep.
            end: (P,) int64, when they end.
            ahead: (P,) bool, the spans on the way.
            at_peak: (P,) bool, the spans that the peak is in.
        """
        self._offsets = offsets
        self._sizes: list[int] = blocks.sizes.tolist()
        self._block: list[int] = blocks.block.tolist()
        self._begins: list[int] = begin.tolist()
        self._ends: list[int] = end.tolist()
        self._events = _events(blocks, begin, end, ahead, ahead | at_peak)
        self._gaps = Gaps(height)
        has_several = blocks.num_spans[blocks.block] > 1
        self._met = blocks.met_by_several
        self._spans: dict[int, list[_Span]] = {block: [] for block in self._met}
        for span in np.flatnonzero(ahead & has_several).tolist():
            block = self._block[span]
            self._spans[block].append((self._begins[span], self._ends[span], block))
        self._reserved: list[_Span] = sorted(
            span
            for block, spans in self._spans.items()
            for span in spans
            if offsets[block] != _UNPLACED
        )

    def run(self, limit: float) -> int:
        """Places all blocks that are met, up to a limit, and returns where the highest ends."""
        offsets, sizes, gaps, top = self._offsets, self._sizes, self._gaps, 0
        spans, reserved, blocks, kept = self._spans, self._reserved, self._block, self._gaps.kept
        for event in self._events:
            if event < 0:
                block = blocks[~event]
                kept[sizes[block]].append(offsets[block])
                continue
            block = blocks[event]
            size = sizes[block]
            if offsets[block] != _UNPLACED:
                gaps.take_at(offsets[block], size)
                reserved.remove((self._begins[event], self._ends[event], block))
                continue
            if block in spans:
                offset = gaps.take(size, self._others_of(block))
                self._reserve(block, self._ends[event])
            elif reserved and reserved[0][0] < self._ends[event]:
                offset = gaps.take(size, self._reserved_until(self._ends[event]))
            else:
                exact = kept[size]
                offset = exact.pop() if exact else gaps.take(size)
            offsets[block] = offset
            if offset + size > top:
                top = offset + size
                if top > limit:
                    break
        return top

    def _reserved_until(self, end: int) -> list[Stretch]:
        """Returns the stretches that are reserved for some time before an end, by offset."""
        offsets, sizes, found = self._offsets, self._sizes, []
        for begin, _, block in self._reserved:
            if begin >= end:
                break
            found.append((offsets[block], offsets[block] + sizes[block]))
        found.sort()
        return found

    def _others_of(self, block: int) -> list[Stretch]:
        """Returns the stretches that a block has to stay clear of in all its spans, by offset."""
        offsets, sizes = self._offsets, self._sizes
        return sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in self._met[block]
            if offsets[other] != _UNPLACED
        )

    def _reserve(self, block: int, end: int) -> None:
        """Reserves the place of a block for its spans after an end."""
        for span in self._spans[block]:
            if span[0] >= end:
                insort(self._reserved, span)


def _events(blocks: Blocks, begin: Ints, end: Ints, begins_of: Bools, ends_of: Bools) -> list[int]:
    """Returns what happens, in order: the span that begins, or ~span for one that ends."""
    (begins,), (ends,) = begins_of.nonzero(), ends_of.nonzero()
    times = np.concatenate([end[ends], begin[begins]])
    # What ends at a time is given back before what begins is taken, large blocks first.
    rank = np.concatenate([np.full(len(ends), -np.inf), -blocks.sizes[blocks.block[begins]]])
    order = np.lexsort((rank, times))
    events: list[int] = np.concatenate([~ends, begins])[order].tolist()
    return events
