"""Arrays of callers: their checks and conversion; NumPy's settings while it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import has_masks

from nnet3_runtime_cuda.errors import RunError

__all__ = [
    "FloatArray",
    "as_array",
    "as_matrix",
    "as_vector",
    "check_float32",
    "check_output",
    "checked_arrays",
    "on_host",
    "running",
]

UFUNC_BUFFER = 256
"""Elements of an operand that NumPy may buffer in an element-wise operation.

With NumPy's default of 8192, each call copies shorter rows to buffers that it allocates. So sums of
a matrix and a vector, or of parts of matrices, take up to four times as long.
"""


@contextmanager
def running() -> Iterator[None]:
    """Sets NumPy's settings for recorded calls, in this thread.

    Overflow to infinity and division by it are part of the formulas (sigmoid); log 0 is not an
    error either.
    """
    with np.errstate(all="ignore"):
        before = np.setbufsize(UFUNC_BUFFER)
        try:
            yield
        finally:
            np.setbufsize(before)


FloatArray = npt.NDArray[np.float32]
"""An array in single precision, on the processor."""

DLPACK_CUDA, DLPACK_CUDA_MANAGED = 2, 13
"""Kinds of device, as `__dlpack_device__` gives them."""

UNREADABLE = (BufferError, RuntimeError, TypeError, ValueError)
"""The errors of objects that cannot be read as arrays."""


def is_on_cuda(value: object) -> bool:
    """Whether an object says that it is an array on a CUDA device."""
    if hasattr(value, "__dlpack_device__"):
        kind, _ = value.__dlpack_device__()
        return kind in (DLPACK_CUDA, DLPACK_CUDA_MANAGED)
    return hasattr(value, "__cuda_array_interface__")


def checked_arrays(
    expected: Mapping[str, tuple[int, ...]],
    given: Mapping[str, npt.ArrayLike],
    what: str,
    taken: Callable[[Any], Any],
) -> list[Any]:
    """The arrays of a caller in the order in which they are expected.

    Args:
        expected: The shape for each node.
        given: The caller's array for each node.
        what: The name of the arrays in messages.
        taken: Makes an array of a given value; see `Transfer`.

    Raises:
        RunError: see `NnetComputer.forward`.
    """
    _check_mapping(given, what)
    for name in given:
        if name not in expected:
            known = ", ".join(f"'{node}'" for node in expected) or "none"
            raise RunError(f"there is no {what} '{name}' in this computation; it has {known}")
    for name, shape in expected.items():
        if name not in given:
            raise RunError(f"{what} '{name}' is missing; expected an array of shape {shape}")
        check_not_masked(given[name], f"{what} '{name}'")
    return [
        _checked_array(name, shape, taken(given[name]), what) for name, shape in expected.items()
    ]


def _checked_array(name: str, shape: tuple[int, ...], array: Any, what: str) -> Any:
    if array.dtype.kind not in "fiu":
        raise RunError(f"{what} '{name}': expected real numbers, found {array.dtype}")
    if array.shape != shape:
        raise RunError(f"{what} '{name}': expected the shape {shape}, found {array.shape}")
    if not isinstance(array, np.ndarray):
        return array  # checking its values would make the processor wait for the device
    check_float32(array, f"{what} '{name}'")
    return array


def _sum(array: npt.NDArray[Any]) -> float:
    with running():  # overflow is fine here; outside, NumPy 2.0 would allocate a buffer
        return float(array.sum())


LARGEST = float(np.finfo(np.float32).max)


def check_float32(array: npt.NDArray[Any], where: str) -> None:
    """Checks that all elements of an array are finite numbers in single precision.

    Raises:
        RunError: an element is infinite, NaN, or too large for float32; the message names it.
    """
    # A finite sum proves that all elements are finite. Only another sum needs a closer look.
    if array.dtype.kind == "f" and not np.isfinite(_sum(array)):
        _check(np.isfinite(array), array, where, "finite numbers")
    if array.dtype.kind == "f" and array.dtype.itemsize > 4 and array.size:
        largest = max(float(array.max()), -float(array.min()))
        if largest > LARGEST:
            wanted = f"numbers up to {LARGEST:g} (single precision)"
            _check(np.abs(array) <= LARGEST, array, where, wanted)


def _check(fits: npt.NDArray[np.bool_], array: npt.NDArray[Any], where: str, wanted: str) -> None:
    """Raises a RunError that names the first element that does not fit, if any."""
    if not fits.all():
        raise RunError(
            f"{where}: expected {wanted}, found {_first(array, ~fits)} "
            f"({int((~fits).sum())} such values in all)"
        )


def _first(array: npt.NDArray[Any], chosen: npt.NDArray[np.bool_]) -> str:
    """The first chosen element of an array, and its place."""
    place = tuple(np.argwhere(chosen)[0].tolist())
    named = f"row {place[0]}, column {place[1]}" if array.ndim == 2 else f"element {list(place)}"
    return f"{array[place]} in {named}"


def check_output(array: FloatArray, what: str) -> None:
    """Raises a RunError if an output is not finite, because the arithmetic has overflowed."""
    if not np.isfinite(_sum(array)):
        finite = np.isfinite(array)
        if not finite.all():
            raise RunError(
                f"{what} overflowed: it is {_first(array, ~finite)} "
                f"({int((~finite).sum())} of {array.size} values are not finite)"
            )


def check_not_masked(values: Any, what: str) -> None:
    """Raises a RunError for a masked array, or masked rows: their masks would be lost."""
    if has_masks(values):
        raise RunError(
            f"{what}: expected an array of numbers, found a masked array; filled() makes one of it"
        )


def on_host(value: Any) -> npt.NDArray[Any]:
    """A caller's array for a network on the processor, as a NumPy array.

    Raises:
        RunError: it is on a device, or cannot be read as an array.
    """
    if isinstance(value, np.ndarray):
        return value
    try:
        is_elsewhere = is_on_cuda(value)
        if not is_elsewhere and hasattr(value, "__array__"):
            return np.asarray(value)
    except UNREADABLE as error:
        raise RunError(f"an array: expected an array of numbers: {error}") from error
    if is_elsewhere:
        raise RunError("an array is on a CUDA device, the network is on the processor")
    return as_array(value, "an array")


def as_array(values: Any, what: str) -> npt.NDArray[Any]:
    """A caller's array as a NumPy array, copied only if necessary.

    Args:
        values: An array, nested sequences of numbers, or an object with `__dlpack__`.
        what: The name of the array in messages.

    Raises:
        RunError: it is on a device, masked, or cannot be read as an array.
    """
    check_not_masked(values, what)
    try:
        if not is_on_cuda(values):
            if isinstance(values, np.ndarray) or not hasattr(values, "__dlpack__"):
                return np.asarray(values)
            return np.from_dlpack(values)
    except UNREADABLE as error:
        raise RunError(f"{what}: expected an array of numbers: {error}") from error
    raise RunError(
        f"{what}: expected an array in the memory of the processor, found one on a device "
        "(NnetComputer takes those)"
    )


def as_matrix(values: npt.ArrayLike, node: str, what: str, dim: int) -> FloatArray:
    """The values as a float32 matrix.

    Raises:
        RunError: they are not a matrix with `dim` columns, are empty, not finite, on a device, or
            masked.
    """
    array = as_array(values, f"{what} for node '{node}'")
    if array.dtype.kind not in "fiu":
        found = {"U": "text", "S": "text", "O": f"a {type(values).__name__}"}.get(
            array.dtype.kind, array.dtype
        )
        raise RunError(f"{what} for node '{node}': expected numbers, found {found}")
    if array.ndim != 2:
        raise RunError(
            f"{what} for node '{node}': expected a matrix (rows, {dim}), found shape {array.shape}"
        )
    if len(array) == 0 and array.shape[1] in (0, dim):  # Kaldi's empty matrices have no columns
        raise RunError(f"{what} for node '{node}': expected at least 1 row, found 0")
    if array.shape[1] != dim:
        raise RunError(
            f"{what} for node '{node}': expected dimension {dim}, found {array.shape[1]}"
        )
    check_float32(array, f"{what} for node '{node}'")
    with running():
        return np.ascontiguousarray(array, dtype=np.float32)


def as_vector(values: npt.ArrayLike, what: str, dim: int) -> FloatArray:
    """The values as a float32 vector.

    Raises:
        RunError: they are not a vector of that dimension.
    """
    array = as_array(values, what)
    if array.dtype.kind not in "fiu":
        raise RunError(f"{what}: expected a vector of dimension {dim}, found {array.dtype}")
    with running():
        vector = np.asarray(array, dtype=np.float32)
    if vector.shape != (dim,):
        raise RunError(f"{what}: expected a vector of dimension {dim}, found {vector.shape}")
    return vector


def _check_mapping(given: object, what: str) -> None:
    if not isinstance(given, Mapping):
        found = type(given).__name__
        raise RunError(f"expected a mapping from nodes to arrays as {what}, found {found}")
