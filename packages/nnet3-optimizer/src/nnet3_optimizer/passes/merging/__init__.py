"""Merging of matrices: what can be merged, when that is legal, what is merged at once, and how."""

from nnet3_optimizer.passes.merging.candidates import MergingOptions
from nnet3_optimizer.passes.merging.merging import merge_variables

__all__ = ["MergingOptions", "merge_variables"]
