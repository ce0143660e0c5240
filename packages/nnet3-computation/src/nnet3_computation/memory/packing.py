"""Packing of blocks that live for a while into one arena: dynamic storage allocation.

The lower bound of any packing is the largest sum of live bytes. The problem is NP-complete, but
computations are easy cases: nearly always a sweep from the peak meets the bound. Where it does not
come close, a search follows.
"""

from __future__ import annotations

from nnet3_computation.memory.blocks import Blocks, Packing
from nnet3_computation.memory.search import search
from nnet3_computation.memory.sweep import from_the_peak

GOOD_ENOUGH = 1.02
"""A packing within this factor of the lower bound is not improved any further."""

FEW_BLOCKS = 400
"""The search, whose time is not linear in the number of blocks, runs up to this number."""


def pack(blocks: Blocks) -> Packing:
    """Finds an offset for every block such that blocks needed at one time do not overlap."""
    if not len(blocks.sizes):
        return Packing(offsets=blocks.sizes, size=0)
    capacity = int(blocks.lower_bound * GOOD_ENOUGH)
    packing = from_the_peak(blocks)
    if packing.size <= capacity or len(blocks.sizes) > FEW_BLOCKS:
        return packing
    return search(blocks, capacity) or packing
