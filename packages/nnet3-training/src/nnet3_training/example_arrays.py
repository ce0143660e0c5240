"""The arrays of examples: what a caller gives, checked and made read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.indexes import IndexArray
from nnet3_descriptors.values import frozen, has_masks, read_only

from nnet3_training.errors import ExampleError

FloatArray = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


def array_of(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    """The values as an array.

    Raises:
        ExampleError: they are none; or an array, or one of its rows, is masked.
    """
    if has_masks(values):
        raise ExampleError(f"expected {what}, found a masked array; filled() makes one of it")
    try:
        return np.asarray(values)
    except (OverflowError, TypeError, ValueError) as error:  # such as rows of different lengths
        raise ExampleError(f"expected {what}: {error}") from error


def reals(values: npt.ArrayLike, what: str, num_axes: int) -> FloatArray:
    """The values as a read-only float32 array; NaN and infinity stay what they are.

    Raises:
        ExampleError: they are not real numbers, have another number of axes, or become infinite
            in single precision.
    """
    array = array_of(values, what)
    is_real = array.dtype.kind in "fiu" or not array.size  # an empty tuple is an array of floats
    if array.ndim != num_axes or not is_real:
        raise ExampleError(f"expected {what}, found shape {array.shape} of {array.dtype}")
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(array, dtype=np.float32)
    if array.dtype.kind == "f" and array.dtype.itemsize > single.dtype.itemsize:
        too_large = np.isinf(single) & np.isfinite(array)
        if too_large.any():
            raise ExampleError(
                f"expected {what}: {array[too_large][0]} is too large for single precision"
            )
    return read_only(single)


def matrix(values: npt.ArrayLike) -> FloatArray:
    """The values as a read-only float32 matrix.

    Raises:
        ExampleError: they are not a matrix of numbers, or too large for single precision.
    """
    return reals(values, "a matrix (rows, columns)", 2)


def whole_numbers(
    values: npt.ArrayLike, what: str, dtype: type[np.integer[Any]]
) -> npt.NDArray[Any]:
    """The values as an array of integers.

    Raises:
        ExampleError: they are something else.
    """
    array = array_of(values, what)
    if array.dtype == dtype:  # nothing to check; arrays from files have this type
        return array
    if array.size and array.dtype.kind not in "iu":  # an empty list is an array of floats
        raise ExampleError(f"expected {what}, integers, found {array.dtype}")
    limits = np.iinfo(dtype)
    if array.size and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
        raise ExampleError(
            f"expected {what}, integers of {limits.bits} bits, found {array.min()} to {array.max()}"
        )
    return array.astype(dtype, copy=False)


def indexes(values: npt.ArrayLike) -> IndexArray:
    """The values as read-only (rows, 3) int32.

    Raises:
        ExampleError: they are something else.
    """
    array = whole_numbers(values, "indexes (rows, 3)", np.int32)
    if array.ndim != 2 or array.shape[1] != 3:
        raise ExampleError(f"expected indexes (rows, 3), found the shape {array.shape}")
    return read_only(array)


def integers(values: npt.ArrayLike) -> Integers:
    """The values as read-only (entries,) int64.

    Raises:
        ExampleError: they are something else.
    """
    array = whole_numbers(values, "splits and classes", np.int64)
    if array.ndim != 1:
        raise ExampleError(f"expected splits and classes (entries,), found shape {array.shape}")
    return read_only(array)


def labels(values: npt.ArrayLike) -> Integers:
    """The values as (rows,) integers.

    Raises:
        ExampleError: they are something else.
    """
    array = array_of(values, "labels (frames,)")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ExampleError(
            f"expected labels (frames,), integers, found shape {array.shape} of {array.dtype}"
        )
    return whole_numbers(array, "labels (frames,)", np.int64)


def joined(name: str, arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The rows of all arrays.

    Raises:
        ExampleError: there are none, or their columns differ.
    """
    if not arrays:
        raise ExampleError(f"'{name}': expected at least one sequence, found none")
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        raise ExampleError(f"'{name}': sequences differ in their dimension: {sorted(shapes)}")
    return frozen(np.concatenate(arrays))


def weights(values: npt.ArrayLike) -> FloatArray:
    """The values as read-only (entries,) float32.

    Raises:
        ExampleError: they are something else, or too large for single precision.
    """
    return reals(values, "weights (entries,)", 1)
