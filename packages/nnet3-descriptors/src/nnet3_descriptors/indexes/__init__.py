"""Arrays of indexes, and the 32-bit integers that they are made of."""

from nnet3_descriptors.indexes.arrays import (
    LEAST_TIME,
    NO_TIME,
    AnyIndexes,
    IndexArray,
    N,
    T,
    X,
    as_indexes,
    as_rows,
    distinct,
    index_keys,
    index_order,
    make_indexes,
    moved_indexes,
)
from nnet3_descriptors.indexes.integers import INT32_MAX, INT32_MIN, is_int32

__all__ = [
    "INT32_MAX",
    "INT32_MIN",
    "LEAST_TIME",
    "NO_TIME",
    "AnyIndexes",
    "IndexArray",
    "N",
    "T",
    "X",
    "as_indexes",
    "as_rows",
    "distinct",
    "index_keys",
    "index_order",
    "is_int32",
    "make_indexes",
    "moved_indexes",
]
