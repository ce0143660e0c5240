"""Arrays that values hold: of real numbers, and whether they can still change."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt


def is_frozen(array: npt.NDArray[Any]) -> bool:
    """Whether an array is read-only, and every array that it is a view of.

    A read-only view changes with the array behind it: `numpy.broadcast_to(buffer, buffer.shape)`
    is one.
    """
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return True


def is_masked(values: object) -> bool:
    """Whether this is a masked array, whose mask a conversion would lose."""
    # To import numpy.ma takes a while. Nobody has a masked array before it is imported, or while
    # another thread imports it.
    return isinstance(values, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def real_numbers(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """The values as an array, of whatever type they have.

    Raises:
        TypeError: they are masked, complex, text or times, which a conversion would take for
            something else, or refuse without a reason.
    """
    if is_masked(values):
        raise TypeError("found a masked array; filled() makes an array of it")
    array = np.asarray(values)
    if array.dtype.kind in "cSUmM":
        raise TypeError(f"expected real numbers, found {array.dtype}")
    return array


def single_precision(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The values as a float32 array; infinity and NaN stay what they are.

    Raises:
        TypeError: see `real_numbers`.
        ValueError: a value is not a number, or becomes infinite in single precision.
    """
    array = real_numbers(values)
    with np.errstate(over="ignore"):
        single = array.astype(np.float32, copy=False)
    if array.dtype.kind == "f" and single is not array:
        too_large = np.isinf(single) & np.isfinite(array)
        if too_large.any():
            raise ValueError(f"{array[too_large][0]} is too large for single precision")
    return single
