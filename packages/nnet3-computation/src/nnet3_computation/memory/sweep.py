"""Packing of blocks from the peak outwards.

Only at the peak does an arena have no room to spare. So the blocks that are needed at the peak are
stacked first, the ones needed longest at the bottom. The other blocks are then placed in the gaps,
going from the peak on to the end, and from the peak back to the beginning. Events are sorted once;
the rest of the time goes into following them and looking for gaps.
"""

from __future__ import annotations

from bisect import insort

import numpy as np

from nnet3_computation.memory.blocks import Blocks, Packing
from nnet3_computation.memory.gaps import Gaps, Stretch
from nnet3_computation.memory.several_spans import SeveralSpans, several_spans

_UNPLACED = -1

_Span = tuple[int, int, int]
"""Begin, end and block."""


def from_the_peak(blocks: Blocks) -> Packing:
    """Stacks the blocks of the peak, then fills the gaps before and after."""
    peak, stack = blocks.peak, blocks.stack
    stacked = blocks.block[stack]
    edges = np.concatenate([[0], np.cumsum(blocks.sizes[stacked])])
    offsets = np.full(len(blocks.sizes), _UNPLACED, dtype=np.int64)
    offsets[stacked] = edges[:-1]
    several = several_spans(blocks, stack, edges)
    after, before = blocks.events_around_peak
    ends, begins = np.zeros((2, len(offsets)), dtype=np.int64)
    ends[blocks.block], begins[blocks.block] = blocks.end, blocks.begin
    places, sizes, tops = offsets.tolist(), blocks.sizes.tolist(), [blocks.lower_bound]
    for events, ahead, last in (
        (after, {block: each.after(peak) for block, each in several.items()}, ends),
        (before, {block: each.before(peak) for block, each in several.items()}, -begins),
    ):
        sweep = _Sweep(sizes, places, several, ahead, last.tolist() if several else [])
        tops.append(sweep.run(events.tolist(), Gaps(blocks.lower_bound)))
    return Packing(offsets=np.array(places, dtype=np.int64), size=max(tops))


class _Sweep:
    """Places blocks in the order in which they are needed, going away from the peak.

    The later spans of a block with several spans are reserved for it.
    """

    def __init__(
        self,
        sizes: list[int],
        offsets: list[int],
        several: dict[int, SeveralSpans],
        ahead: dict[int, list[tuple[int, int]]],
        ends: list[int],
    ) -> None:
        """Prepares a sweep.

        Args:
            sizes: The size of each block.
            offsets: The offsets of blocks that are placed already, -1 for the others; the sweep
                fills in the blocks that it meets.
            several: The blocks that have several spans.
            ahead: The spans of these blocks that the sweep meets, in order.
            ends: For each of the other blocks when it is no longer needed.
        """
        self._sizes = sizes
        self._offsets = offsets
        self._several = several
        self._ahead = ahead
        self._ends = ends
        self._reserved: list[_Span] = sorted(
            (*span, block)
            for block, spans in ahead.items()
            if offsets[block] != _UNPLACED
            for span in spans
        )

    def run(self, events: list[int], gaps: Gaps) -> int:
        """Places all blocks that the sweep meets, and returns the end of the highest.

        Args:
            events: The block that is needed from then on, or ~block for one that no longer is.
            gaps: The free stretches at the peak.
        """
        offsets, sizes, several, ends = self._offsets, self._sizes, self._several, self._ends
        reserved, kept, top = self._reserved, gaps.kept, 0
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
                offset = gaps.take_clear(size, self._others_of(block))
                for span in self._ahead[block][1:]:
                    insort(reserved, (*span, block))
            elif reserved and reserved[0][0] < ends[block]:
                offset = gaps.take_clear(size, self._reserved_until(ends[block]))
            else:
                exact = kept[size]
                offset = exact.pop() if exact else gaps.take(size)
            offsets[block] = offset
            if offset + size > top:
                top = offset + size
        return top

    def _stretch(self, block: int) -> Stretch:
        return self._offsets[block], self._offsets[block] + self._sizes[block]

    def _reserved_until(self, end: int) -> list[Stretch]:
        """Returns the stretches that are reserved for some time before an end, by offset."""
        return sorted(self._stretch(block) for begin, _, block in self._reserved if begin < end)

    def _others_of(self, block: int) -> list[Stretch]:
        """Returns the stretches that a block has to stay clear of in all its spans, by offset."""
        offsets, several = self._offsets, self._several[block]
        met = [self._stretch(other) for other in several.met if offsets[other] != _UNPLACED]
        return sorted(several.clear_of + met)
