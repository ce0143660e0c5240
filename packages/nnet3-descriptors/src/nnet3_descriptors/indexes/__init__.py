"""Arrays of indexes and cindexes.

An *index* (n, t, x) names one row of a network's input, output or intermediate values: n is the
sequence in the minibatch, t the frame, x an extra index that is nearly always 0. Indexes are held
as (N, 3) int32 arrays with columns n, t, x. A *cindex* is an index at a node; cindexes are held as
(N, 4) int32 arrays with columns node, n, t, x.

Indexes are ordered by t, then x, then n; cindexes by node, then by index.
"""

from __future__ import annotations

import math
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_descriptors.errors import NetworkError, Nnet3Error
from nnet3_descriptors.limits import check_limit

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

IndexArray = npt.NDArray[np.int32]
"""Indexes (n, t, x): (rows, 3) int32."""
AnyIndexes = npt.NDArray[np.int32] | npt.NDArray[np.int64]
"""Indexes, possibly with values beyond 32 bits, for which no rows exist."""

Splits = npt.NDArray[np.int64]
"""(N + 1,) int64: what belongs to row i is splits[i] to splits[i + 1] of another array (CSR)."""

Mask = npt.NDArray[np.bool_]
"""Which of some rows are meant: (rows,) bool."""

INT32_MIN: Final = -(2**31)
"""The smallest int32."""
INT32_MAX: Final = 2**31 - 1
"""The largest int32."""

N: Final = 0
"""The column of n, the sequence."""
T: Final = 1
"""The column of t, the frame."""
X: Final = 2
"""The column of x, the extra index."""

NO_TIME: Final = INT32_MIN
"""Value of t that marks a padding row; only `Component.reorder_indexes` makes such rows."""

LEAST_TIME: Final = INT32_MIN + 1
"""The least t, and x, that a row can have; the greatest is INT32_MAX."""


def as_indexes(values: npt.ArrayLike) -> IndexArray:
    """Returns `values` as an (N, 3) int32 array of indexes.

    Args:
        values: Anything that NumPy reads as integers of shape (N, 3); an empty sequence is (0, 3).

    Raises:
        Nnet3Error: The shape is not (N, 3), or a value is not a 32-bit integer.
    """
    try:
        array: npt.NDArray[Any] = np.asarray(values)
    except ValueError as error:  # the rows differ in length
        raise Nnet3Error("indexes must have the shape (rows, 3)") from error
    if array.size == 0 and array.ndim <= 2:
        return np.empty((0, 3), dtype=np.int32)
    if array.ndim != 2 or array.shape[1] != 3:
        raise Nnet3Error(f"indexes must have the shape (rows, 3) (got {array.shape})")
    if array.dtype == np.int32:
        return array
    if array.dtype.kind not in "iu":
        raise Nnet3Error(f"indexes must be integers (got {array.dtype})")
    if array.min() < INT32_MIN or array.max() > INT32_MAX:
        raise Nnet3Error(f"indexes must fit in 32 bits (got {array.min()} to {array.max()})")
    return array.astype(np.int32)


def make_indexes(n: npt.ArrayLike, t: npt.ArrayLike, x: npt.ArrayLike = 0) -> IndexArray:
    """Returns the indexes with the given columns, which are broadcast against each other.

    Args:
        n: Sequence numbers, a scalar or shape (N,).
        t: Frames, a scalar or shape (N,).
        x: Extra indexes, a scalar or shape (N,).

    Returns:
        (N, 3) int32 array; (1, 3) if all three are scalars.

    Raises:
        Nnet3Error: The columns differ in length, or a value is not a 32-bit integer.
    """
    try:
        columns = np.broadcast_arrays(np.atleast_1d(n), t, x)
    except ValueError as error:
        raise Nnet3Error("n, t and x must be scalars or have equal lengths") from error
    return as_indexes(np.stack(columns, axis=1))


def moved_indexes(indexes: AnyIndexes, t: int, x: int) -> npt.NDArray[np.int64]:
    """Returns (N, 3) indexes moved by (t, x), as int64, so that no number overflows.

    Rows beyond 32 bits do not exist: look the result up in a set of rows, or pass it to `as_rows`.
    """
    return indexes.astype(np.int64) + np.array([0, t, x], dtype=np.int64)


def rows_around(
    indexes: IndexArray, times: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], reader: str
) -> tuple[Splits, IndexArray]:
    """Returns the rows that lie at some offsets in t from each of some rows, as CSR.

    All index rules that read several rows for one list them here.

    Args:
        indexes: (N, 3), the n and x of the rows.
        times: (N,), the t from which the offsets of each row count.
        offsets: (K,), the offsets in t.
        reader: The reader of these rows, for errors.

    Returns:
        splits (N + 1,) int64 and rows (N * K, 3) int32, those of index 0 first.

    Raises:
        LimitError: There are more rows than `Limits.reads`.
        NetworkError: A t is beyond 32 bits, or is the value that marks padding.
    """
    shape = len(times), len(offsets)
    check_limit("reads", math.prod(shape), f"{reader}: the input rows of {shape[0]} output rows")
    if 0 not in shape:
        for end in (np.min, np.max):
            _check_rows_exist("t", int(end(times)) + int(end(offsets)), reader)
    rows = np.empty((*shape, 3), dtype=np.int32)
    rows[...] = indexes[:, None]
    np.add(times[:, None], offsets, out=rows[..., T], casting="unsafe")
    return np.arange(len(times) + 1, dtype=np.int64) * len(offsets), rows.reshape(-1, 3)


def _check_rows_exist(name: str, value: int, reader: object) -> None:
    if not LEAST_TIME <= value <= INT32_MAX:
        raise NetworkError(
            f"{reader} reads {name} = {value}; expected {name} from {LEAST_TIME} to {INT32_MAX}"
        )


def as_rows(indexes: npt.NDArray[np.int64], reader: object) -> IndexArray:
    """Returns indexes as int32.

    Args:
        indexes: int64, (N, 3) with columns n, t, x, or (N, 4) with columns node, n, t, x.
        reader: The reader of these rows, for the error; its text is made only then.

    Raises:
        NetworkError: A t or x is beyond 32 bits, or is the value that marks padding.
    """
    for column, name in ((-2, "t"), (-1, "x")):
        values = indexes[:, column]
        for end in (values.min, values.max) if len(values) else ():
            _check_rows_exist(name, int(end()), reader)
    return indexes.astype(np.int32)


def index_order(indexes: IndexArray) -> npt.NDArray[np.intp]:
    """Returns the (N,) stable permutation that sorts (N, 3) indexes by t, then x, then n."""
    return np.lexsort((indexes[:, N], indexes[:, X], indexes[:, T]))


def index_keys(*arrays: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], ...]:
    """Returns one number for each index; they are ordered as the indexes are by n, x, t.

    The numbers of all arrays of one call can be compared with each other.

    Args:
        arrays: (N, 3) indexes; the columns may have any integer type.

    Returns:
        For each of the arrays (N,) int64.
    """
    columns = [[array[:, column] for array in arrays] for column in (N, X, T)]
    bounds = [_bounds(values) for values in columns]
    if math.prod(high - low + 1 for low, high in bounds) > np.iinfo(np.int64).max:
        # The numbers would not fit: each value is replaced by its rank among the values that occur.
        columns = [_ranks(values) for values in columns]
        bounds = [_bounds(values) for values in columns]
    keys = [np.zeros(len(array), dtype=np.int64) for array in arrays]
    for values, (low, high) in zip(columns, bounds, strict=True):
        for key, value in zip(keys, values, strict=True):
            key *= high - low + 1
            key += value
            key -= low
    return tuple(keys)


def _bounds(values: list[npt.NDArray[Any]]) -> tuple[int, int]:
    """Returns the least and the greatest of the values of several arrays."""
    lows = [int(each.min()) for each in values if len(each)]
    highs = [int(each.max()) for each in values if len(each)]
    return min(lows, default=0), max(highs, default=0)


def _ranks(values: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Returns each value's position among the distinct values of all arrays."""
    distinct = np.unique(np.concatenate(values))
    return [np.searchsorted(distinct, value) for value in values]


def distinct(values: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
    """Returns the different values of a (N,) array, ascending.

    The same as `numpy.unique`, which hashes integers and takes several times as long.
    """
    ordered = np.sort(values)
    is_new = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]


def is_int32(value: object) -> bool:
    """Tells whether a value is an integer (and no bool) that fits in 32 bits."""
    return type(value) is int and INT32_MIN <= value <= INT32_MAX


def check_int32(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    """Validates a field of an attrs class; see `require_int32`."""
    require_int32(f"'{attribute.name}'", value)


def require_int32(what: str, value: object) -> None:
    """Raises a NetworkError that begins with `what` unless the value is a 32-bit integer."""
    if not is_int32(value):
        wanted = "fit in 32 bits" if type(value) is int else "be an integer"
        raise NetworkError(f"{what} must {wanted} (got {value!r})")
