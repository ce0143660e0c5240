"""Values between a caller and the memory of a program."""

from __future__ import annotations

from typing import Any

import numpy as np

from .tape import Array


class Transfer:
    """For programs on the processor: arrays are copied. Programs on a device have their own."""

    def taken(self, value: Any) -> Any:
        """What a caller gives, as an array with shape and dtype: NumPy, or on the device."""
        return np.asarray(value)

    def put(self, array: Any, view: Array) -> None:
        """Sets a matrix of the program to what `taken` gave."""
        np.copyto(view, array)

    def get(self, view: Array, *, on_device: bool) -> Any:
        """A copy of a matrix of the program.

        Args:
            view: The matrix.
            on_device: Whether the copy is to stay on the device, if the program is on one.
        """
        return np.array(view)
