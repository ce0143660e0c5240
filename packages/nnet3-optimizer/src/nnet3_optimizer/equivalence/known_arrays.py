"""Values that belong to arrays, found by the content of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from nnet3_compiler.debug_info import N
from nnet3_descriptors.indexes import NO_TIME

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[np.integer]
Value = TypeVar("Value")

_SOME = 128


class KnownArrays(Generic[Value]):
    """Values by arrays of integers, of one type and a number of dimensions.

    Arrays are looked up by some places along the last axis, and compared as a whole with those that
    are the same there: to hash all of an array would take several times as long.
    """

    def __init__(self) -> None:
        self._by_some: dict[tuple[tuple[int, ...], bytes], list[tuple[Array, Value]]] = {}

    def get(self, array: Array, make: Callable[[], Value]) -> Value:
        """Returns the value of an array, made if there is none; the array must not change."""
        step = array.shape[-1] // _SOME + 1
        alike = self._by_some.setdefault((array.shape, array[..., ::step].tobytes()), [])
        for known, value in alike:
            if step == 1 or (known == array).all():
                return value
        value = make()
        alike.append((array, value))
        return value


def without_nodes(cindexes: Array) -> Array:
    """Returns n, t and x of (rows, 4) cindexes: (3, rows), which takes a fifth of (rows, 3)."""
    return np.ascontiguousarray(cindexes.T[N:])


def near_times(times: Ints) -> Ints:
    """Returns times with the one that stands for none next to the others, so that all are near."""
    is_time = times != NO_TIME
    if is_time.all():
        return times
    lowest = times[is_time].min() if is_time.any() else 0
    moved: Ints = np.where(is_time, times, lowest - 1)
    return moved
