"""The joint effect of CompressMatrix and DecompressMatrix on a matrix."""

from __future__ import annotations

import numpy as np
from nnet3_computation import ComputationError

from nnet3_runtime_reference.draws import Array

INTEGERS = {1: (-128, 127), 2: (0, 255), 3: (-32768, 32767), 4: (0, 65535)}
"""The smallest and the largest integer of each type of compression."""
UINT8, ONE_BIT = 2, 5


def round_trip(values: Array, kind: int, limit: float, *, truncate: bool) -> Array:
    """Returns values as they are after compression and decompression.

    With a unit of u = limit / (largest integer), v becomes u times the integer nearest to v / u
    (the even one if two are equally near), limited to the smallest and the largest integer.
    One bit, or uint8 with the limit 0, tells whether v is positive: v becomes 1 or 0.

    Args:
        values: Of any shape.
        kind: 1 int8, 2 uint8, 3 int16, 4 uint16, 5 one bit.
        limit: The range of the values.
        truncate: Whether values may lie beyond the range. If not, such values become NaN.

    Raises:
        ComputationError: the type is unknown, or the limit is not valid.
    """
    if kind == ONE_BIT or (kind == UINT8 and limit == 0.0):
        return (values > 0.0).astype(values.dtype)
    if kind not in INTEGERS or not limit > 0.0:
        raise ComputationError(f"there is no compression of type {kind} with the range {limit:g}")
    smallest, largest = INTEGERS[kind]
    unit = limit / largest
    nearest = np.rint(values / unit)
    kept = np.clip(nearest, smallest, largest)
    if not truncate:
        kept[nearest != kept] = np.nan
    found: Array = (kept * unit).astype(values.dtype)
    return found
