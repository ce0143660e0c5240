"""Packing of blocks that live for a while into one arena: dynamic storage allocation.

The lower bound of any packing is the largest sum of live bytes. The problem is NP-complete, but
computations are kind: some ways are tried, each slower than the one before, until the result is
close enough to the bound. Nearly always the first one meets it.
"""

from __future__ import annotations

from itertools import chain, islice

from nnet3_optimizer.memory.blocks import Blocks, Packing
from nnet3_optimizer.memory.one_by_one import place_one_by_one
from nnet3_optimizer.memory.search import search
from nnet3_optimizer.memory.sweep import from_the_peak

GOOD_ENOUGH = 1.02
"""A packing within this factor of the lower bound is not improved any further."""

NEARLY_A_PEAK, OTHER_PEAKS = 0.97, 3
"""So many times are tried instead of the peak, of those at which so large a part of it is needed.

Where two moments need about as much, the blocks of the one may not fit around those of the other.
"""

FEW_BLOCKS = 400
"""The number of blocks up to which the ways that are not linear in it are tried too."""


def pack(blocks: Blocks) -> Packing:
    """Finds an offset for every block such that blocks needed at one time do not overlap."""
    capacity = int(blocks.lower_bound * GOOD_ENOUGH)
    others = islice(blocks.other_peaks(NEARLY_A_PEAK), OTHER_PEAKS)
    peaks = []
    for peak in chain([blocks.peak], others):
        packing = from_the_peak(blocks, peak, capacity)
        if packing is not None:
            return packing
        peaks.append(peak)
    found = [from_the_peak(blocks, peak) for peak in peaks]
    if len(blocks.sizes) <= FEW_BLOCKS:
        found.append(place_one_by_one(blocks))
    best = min((each for each in found if each is not None), key=lambda packing: packing.size)
    if best.size <= capacity or len(blocks.sizes) > FEW_BLOCKS:
        return best
    return search(blocks, capacity) or best
