"""Packing of blocks one by one, in the order of their importance."""

from __future__ import annotations

import numpy as np

from nnet3_computation.memory.blocks import Blocks, Ints, Packing

_UNPLACED = -1


def place_one_by_one(blocks: Blocks) -> Packing:
    """Places each block in the tightest gap that earlier blocks leave free in all its spans.

    Blocks that are needed at the peak come first, stacked. The others follow by the bytes that are
    needed in their time, the most first, and then by the length of their life, the longest first.
    """
    sizes: list[int] = blocks.sizes.tolist()
    offsets = [_UNPLACED] * len(sizes)
    neighbours = _neighbours(blocks)
    for block in _order(blocks).tolist():
        placed = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in neighbours[block]
            if offsets[other] >= 0
        )
        offsets[block] = _tightest(placed, sizes[block])
    ends = [offset + size for offset, size in zip(offsets, sizes, strict=True)]
    return Packing(offsets=np.array(offsets, dtype=np.int64), size=max(ends, default=0))


def _order(blocks: Blocks) -> Ints:
    """Returns the blocks in the order in which they are placed."""
    number, (times, load) = len(blocks.sizes), blocks.moments
    loads, ends = np.zeros((2, number), dtype=np.int64)
    begins = np.full(number, times[-1])
    np.minimum.at(begins, blocks.block, blocks.begin)
    np.maximum.at(ends, blocks.block, blocks.end)
    spans = np.searchsorted(times, np.stack([blocks.begin, blocks.end], axis=1).ravel())
    np.maximum.at(loads, blocks.block, np.maximum.reduceat(load, spans)[::2])
    place = np.full(number, number)
    stack = blocks.block[blocks.stack]
    place[stack] = np.arange(len(stack))
    order: Ints = np.lexsort((begins - ends, -loads, place))
    return order


def _neighbours(blocks: Blocks) -> list[list[int]]:
    """Returns for each block the blocks that share some time with it, and itself."""
    order = np.argsort(blocks.block, kind="stable")
    begin, end, block = blocks.begin[order], blocks.end[order], blocks.block[order]
    span, other = np.nonzero((begin[:, None] < end) & (end[:, None] > begin))
    counts = np.bincount(block[span], minlength=len(blocks.sizes))
    stops = np.cumsum(counts).tolist()
    others = block[other].tolist()
    return [others[begin:stop] for begin, stop in zip([0, *stops], stops, strict=False)]


def _tightest(placed: list[tuple[int, int]], size: int) -> int:
    """Returns the begin of the tightest gap between stretches, given by begin and end."""
    best, tightest, filled = _UNPLACED, 0, 0
    for begin, end in placed:
        room = begin - filled
        if room >= size and (best < 0 or room < tightest):
            best, tightest = filled, room
        filled = max(filled, end)
    return best if best >= 0 else filled
