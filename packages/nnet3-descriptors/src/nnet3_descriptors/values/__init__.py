"""Frozen values: their bytes and files, and results that are computed once for each value."""

from nnet3_descriptors.frozen_arrays import is_frozen, is_masked
from nnet3_descriptors.values.remembering import remembered
from nnet3_descriptors.values.serialized import Serialized

__all__ = ["Serialized", "is_frozen", "is_masked", "remembered"]
