"""Arrays that are given: their shapes and values checked, and named in errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .cuda.exchange import is_on_cuda
from .errors import RunError
from .running import running

FloatArray = npt.NDArray[np.float32]


def checked_arrays(
    expected: Mapping[str, tuple[int, ...]],
    given: Mapping[str, npt.ArrayLike],
    what: str,
    taken: Callable[[Any], Any],
) -> list[Any]:
    """The given arrays in the order in which they are expected.

    Args:
        expected: The shape for each node.
        given: By node.
        what: What they are called in messages.
        taken: Makes an array of what is given; see `Transfer`.

    Raises:
        RunError: see `NnetComputer.forward`.
    """
    for name in given:
        if name not in expected:
            known = ", ".join(f"'{node}'" for node in expected) or "none"
            raise RunError(f"there is no {what} '{name}' in this computation; it has {known}")
    for name, shape in expected.items():
        if name not in given:
            raise RunError(f"{what} '{name}' is missing; expected an array of shape {shape}")
    return [
        _checked_array(name, shape, taken(given[name]), what) for name, shape in expected.items()
    ]


def _checked_array(name: str, shape: tuple[int, ...], array: Any, what: str) -> Any:
    if array.dtype.kind not in "fiu":
        raise RunError(f"{what} '{name}': expected real numbers, found {array.dtype}")
    if array.shape != shape:
        raise RunError(f"{what} '{name}': expected the shape {shape}, found {array.shape}")
    if not isinstance(array, np.ndarray):
        return array  # to look at its values, the processor would have to wait for the device
    # A sum is finite unless an element is not, or finite ones overflow: only then look closer.
    if array.dtype.kind == "f" and not np.isfinite(_sum(array)):
        check_finite(array, f"{what} '{name}'")
    return array


def _sum(array: npt.NDArray[Any]) -> float:
    with running():  # overflow is fine here; and NumPy 2.0 would allocate a buffer
        return float(array.sum())


def check_finite(array: npt.NDArray[Any], where: str) -> None:
    """Raises a RunError that names the first element that is infinite or not a number."""
    bad = ~np.isfinite(array)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise RunError(
            f"{where}: expected finite numbers, found {array[row, column]} in row {row}, "
            f"column {column} ({int(bad.sum())} such values in all)"
        )


def as_matrix(values: npt.ArrayLike, node: str, what: str, dim: int) -> FloatArray:
    """The values as a float32 matrix.

    Raises:
        RunError: they are no matrix of that many columns, are empty, not finite, or on a device.
    """
    if is_on_cuda(values):
        raise RunError(
            f"{what} for node '{node}': expected an array in the memory of the processor, found "
            "one on a device (NnetComputer takes those)"
        )
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise RunError(f"{what} for node '{node}': expected a matrix: {error}") from error
    if array.dtype.kind not in "fiu":
        raise RunError(f"{what} for node '{node}': expected numbers, found {array.dtype}")
    if array.ndim != 2:
        raise RunError(
            f"{what} for node '{node}': expected a matrix (rows, {dim}), found shape {array.shape}"
        )
    if len(array) == 0:
        raise RunError(f"{what} for node '{node}': expected at least 1 row, found 0")
    if array.shape[1] != dim:
        raise RunError(
            f"{what} for node '{node}': expected dimension {dim}, found {array.shape[1]}"
        )
    with np.errstate(over="ignore"):  # what becomes infinite is named below
        matrix = np.ascontiguousarray(array, dtype=np.float32)
    check_finite(matrix, f"{what} for node '{node}'")
    return matrix


def as_vector(values: npt.ArrayLike, what: str, dim: int) -> FloatArray:
    """The values as a float32 vector.

    Raises:
        RunError: they are no vector of that dimension.
    """
    try:
        vector = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise RunError(f"{what}: expected a vector of dimension {dim}: {error}") from error
    if vector.shape != (dim,):
        raise RunError(f"{what}: expected a vector of dimension {dim}, found {vector.shape}")
    return vector
