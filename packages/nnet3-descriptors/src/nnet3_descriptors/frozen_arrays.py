"""Whether an array can still change, seen from a value that is to hold it."""

from __future__ import annotations

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
