"""Blocks that are needed during several spans of time, at one offset in all of them."""

from __future__ import annotations

from itertools import pairwise

import attrs
import numpy as np

from nnet3_computation.memory.blocks import Blocks, Ints
from nnet3_computation.memory.gaps import Stretch


@attrs.frozen
class SeveralSpans:
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
