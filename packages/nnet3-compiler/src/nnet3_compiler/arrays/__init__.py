"""Arrays of integers that values hold, and lists of lists as arrays."""

from nnet3_compiler.arrays.csr import (
    Bools,
    Csr,
    Ids,
    every,
    ordering,
    positions_in_lists,
    splits_of,
    where,
)
from nnet3_compiler.arrays.read_only import IntArray, expand_ranges, freeze

__all__ = [
    "Bools",
    "Csr",
    "Ids",
    "IntArray",
    "every",
    "expand_ranges",
    "freeze",
    "ordering",
    "positions_in_lists",
    "splits_of",
    "where",
]
