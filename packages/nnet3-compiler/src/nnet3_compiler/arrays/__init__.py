"""Arrays of integers that values hold."""

from nnet3_compiler.arrays.read_only import IntArray, expand_ranges, freeze

__all__ = ["IntArray", "expand_ranges", "freeze"]
