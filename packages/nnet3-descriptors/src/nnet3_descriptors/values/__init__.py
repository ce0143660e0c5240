"""Frozen values: their arrays, bytes and files, and results that are computed once for each."""

from nnet3_descriptors.frozen_arrays import (
    array_of,
    frozen,
    has_masks,
    is_frozen,
    is_masked,
    read_only,
)
from nnet3_descriptors.values.integers import is_integer
from nnet3_descriptors.values.remembering import remembered
from nnet3_descriptors.values.serialized import Serialized
from nnet3_descriptors.values.showing import shown

__all__ = [
    "Serialized",
    "array_of",
    "frozen",
    "has_masks",
    "is_frozen",
    "is_integer",
    "is_masked",
    "read_only",
    "remembered",
    "shown",
]
