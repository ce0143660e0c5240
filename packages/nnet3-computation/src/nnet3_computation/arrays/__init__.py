"""Arrays of integers that values hold, and lists of lists as arrays."""

from nnet3_computation.arrays.csr import (
    Bools,
    Csr,
    Ids,
    every,
    ordering,
    positions_in_lists,
    splits_of,
    where,
)
from nnet3_computation.arrays.read_only import (
    NONE,
    IntArray,
    expand_ranges,
    freeze,
    frozen_array,
    run_starts,
    same,
)

__all__ = [
    "NONE",
    "Bools",
    "Csr",
    "Ids",
    "IntArray",
    "every",
    "expand_ranges",
    "freeze",
    "frozen_array",
    "ordering",
    "positions_in_lists",
    "run_starts",
    "same",
    "splits_of",
    "where",
]
