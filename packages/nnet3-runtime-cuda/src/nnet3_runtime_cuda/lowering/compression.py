"""Matrices kept in fewer bits between the forward and the backward pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..tape import Array, Tape

STORED_AS: dict[int, npt.DTypeLike] = {1: np.int8, 2: np.uint8, 3: np.int16, 4: np.uint16}
"""The stored type, by the number that CompressMatrix gives."""


def _scale(stored_as: npt.DTypeLike, limit: float) -> float:
    """The value of one unit, where values up to the limit are stored; 0 if only signs are."""
    return limit / np.iinfo(np.dtype(stored_as)).max


def record_compress(
    tape: Tape, values: Array, stored: Array, limit: float, *, truncate: bool
) -> None:
    """Records stored = values in units of limit / largest integer, rounded.

    Args:
        tape: Records the arithmetic.
        values: (rows, columns).
        stored: (rows, columns), of an integer type.
        limit: The largest value that can be stored; 0 to store only which values are positive.
        truncate: Whether values beyond the limit may occur; they are then stored as the limit.
    """
    if limit == 0.0:
        tape.greater(values, 0.0, stored.view(np.bool_))
        return
    units = tape.scratch(*values.shape)
    tape.multiply(values, 1.0 / _scale(stored.dtype, limit), units)
    tape.call(np.rint, units, units)
    if truncate:
        bounds = np.iinfo(stored.dtype)
        tape.maximum(units, float(bounds.min), units)
        tape.minimum(units, float(bounds.max), units)
    tape.call(np.copyto, stored, units, casting="unsafe")


def record_decompress(tape: Tape, stored: Array, values: Array, limit: float) -> None:
    """Records values = what `record_compress` stored: 1 for positive and 0 else, if limit is 0."""
    if limit == 0.0:
        tape.copy(stored.view(np.bool_), values)
    else:
        tape.multiply(stored, _scale(stored.dtype, limit), values)
