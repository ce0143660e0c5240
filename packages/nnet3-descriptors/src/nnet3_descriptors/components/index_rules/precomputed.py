"""The arrays of indexes that components precompute, and functions that find rows."""

from __future__ import annotations

from typing import Any, TypeVar, dataclass_transform

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3_descriptors.components.declaration.kinds import ArrayKey, read_only
from nnet3_descriptors.errors import Nnet3Error
from nnet3_descriptors.indexes.arrays import IndexArray, N, T, X, index_keys

RowArray = NDArray[np.int32]
"""Numbers of rows, int32."""

NO_ROWS = np.empty(0, dtype=np.int32)
NO_RANGES = np.empty((0, 2), dtype=np.int32)

_C = TypeVar("_C", bound=type)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def precomputed(cls: _C) -> _C:
    """Makes a frozen value class of a subclass of PrecomputedIndexes."""
    built: _C = attrs.frozen(kw_only=True)(cls)
    return built


def row_array(width: int | None = None) -> Any:
    """Declares a field of PrecomputedIndexes that holds (rows,) or, with a width, (rows, width).

    The array is read-only int32; two of them are equal if shape and values are.
    """
    expected = "(rows,)" if width is None else f"(rows, {width})"

    def check(_: object, attribute: attrs.Attribute[RowArray], value: RowArray) -> None:
        if value.shape[1:] != (() if width is None else (width,)) or value.ndim == 0:
            raise Nnet3Error(f"'{attribute.name}' must be {expected}, got {value.shape}")

    return attrs.field(converter=_row_numbers, eq=ArrayKey, validator=check)


def _row_numbers(values: ArrayLike) -> RowArray:
    return read_only(values, np.int32)


def wrong_count(what: str, found: int, expected: int) -> str | None:
    """Returns a message if there are not as many indexes as expected; see `misfit`."""
    return None if found == expected else f"are for {found} {what}, expected {expected}"


def no_such_row(what: str, rows: NDArray[np.integer], count: int) -> str | None:
    """Returns a message if a row number is not below a count; see `misfit`."""
    if not rows.size or (rows.min() >= 0 and rows.max() < count):
        return None
    bad = int(rows[(rows < 0) | (rows >= count)].flat[0])
    return f"name {what} {bad}, expected 0 to {count - 1}"


def no_such_range(what: str, ranges: RowArray, count: int) -> str | None:
    """Returns a message if a range is not within a number of rows; see `misfit`."""
    begin, end = ranges.T
    fits = (begin >= 0) & (begin <= end) & (end <= count)
    if np.count_nonzero(fits) == len(fits):
        return None
    bad = ranges[int(fits.argmin())].tolist()
    return f"name {what} {bad[0]} to {bad[1]} (not included), expected a range within 0 to {count}"


def time_ranges(
    rows: IndexArray, wanted: IndexArray, begin: NDArray[np.int64], end: NDArray[np.int64]
) -> RowArray:
    """Returns which rows have the n and x of each wanted index, and a time in a range.

    Args:
        rows: (M, 3) indexes, in the order of n, then x, then t.
        wanted: (N, 3) indexes.
        begin: (N,) the first time of each.
        end: (N,) the time behind the last of each.

    Returns:
        (N, 2) int32: the first row and the row behind the last; both the same if there is none.
    """
    n, x = wanted[:, N], wanted[:, X]
    limits = (np.stack((n, time, x), axis=1) for time in (begin, end))
    keys, begins, ends = index_keys(rows, *limits)
    ranges = np.searchsorted(keys, np.stack((begins, ends), axis=1))
    return ranges.astype(np.int32)


def find_rows(rows: IndexArray, wanted: IndexArray) -> NDArray[np.int64]:
    """Returns the position of each wanted index among the rows.

    Args:
        rows: (M, 3) indexes, in any order.
        wanted: (N, 3) indexes, each of which is among the rows.

    Returns:
        (N,) row numbers.
    """
    keys, wanted_keys = index_keys(rows, wanted)
    order = np.argsort(keys)
    return order[np.searchsorted(keys, wanted_keys, sorter=order)]


def sequence_order(indexes: IndexArray) -> NDArray[np.intp]:
    """Returns the (N,) permutation that sorts (N, 3) indexes by n, then x, then t."""
    (keys,) = index_keys(indexes)
    return np.argsort(keys, kind="stable")


def times(indexes: IndexArray) -> NDArray[np.int64]:
    """Returns the t of (N, 3) indexes as numbers that have room for offsets, (N,) int64."""
    return indexes[:, T].astype(np.int64)
