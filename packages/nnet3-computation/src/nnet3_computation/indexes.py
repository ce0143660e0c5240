"""Checks and copies of index arrays, on top of those of nnet3_descriptors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.indexes import IndexArray, N, T, X, as_indexes, index_order
from nnet3_descriptors.values import frozen, is_masked

BoolArray = npt.NDArray[np.bool_]
IdArray = npt.NDArray[np.int32]


def read_only_indexes(values: npt.ArrayLike) -> IndexArray:
    """Returns `values` as a read-only (N, 3) array of indexes that nobody else can write to.

    Raises:
        Nnet3Error: the shape is not (N, 3), a value is not a 32-bit integer, or values are masked.
    """
    if is_masked(values):
        raise Nnet3Error("indexes must not be masked; filled() makes an array of them")
    array = as_indexes(values)
    # Whoever owns a read-only array can make it writeable again, so even such an array is copied.
    return frozen(np.array(array, dtype=np.int32, order="C"))


def first_duplicate(indexes: IndexArray) -> tuple[int, int, int] | None:
    """Returns the first index (in the order of indexes) that occurs more than once, or None."""
    if not _may_have_duplicates(indexes):
        return None
    ordered = indexes[index_order(indexes)]
    repeated = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1))
    if not len(repeated):
        return None
    n, t, x = ordered[repeated[0]].tolist()
    return n, t, x


def _may_have_duplicates(indexes: IndexArray) -> bool:
    """Counts distinct indexes in a table of their bounding box, if that is small enough."""
    if len(indexes) < 2:
        return False
    columns = [indexes[:, column].astype(np.int64) for column in (T, X, N)]
    lowest = [int(column.min()) for column in columns]
    sizes = [int(column.max()) - low + 1 for column, low in zip(columns, lowest, strict=True)]
    if sizes[0] * sizes[1] * sizes[2] > 16 * len(indexes) + 1024:
        return True
    t, x, n = (column - low for column, low in zip(columns, lowest, strict=True))
    seen = np.zeros(sizes[0] * sizes[1] * sizes[2], dtype=np.bool_)
    seen[(t * sizes[1] + x) * sizes[2] + n] = True
    return int(np.count_nonzero(seen)) < len(indexes)
