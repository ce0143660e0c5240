"""Matrices stored in fewer bits between the forward and the backward pass."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.operations import Array, Operations

_INTEGERS: dict[int, npt.DTypeLike] = {1: np.int8, 2: np.uint8, 3: np.int16, 4: np.uint16}
"""The type of stored elements, by the number that CompressMatrix gives."""

_ONE_BIT = 5
_BYTE = 8


@attrs.frozen
class CompressedForm:
    """The form of a matrix while it is compressed.

    Attributes:
        compression_type: The number that CompressMatrix gives.
        limit: The largest value that can be stored; 0 to store only which values are positive.
    """

    compression_type: int
    limit: float

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the stored numbers."""
        return np.dtype(_INTEGERS.get(self.compression_type, np.uint8))

    def columns(self, columns: int) -> int:
        """The number of stored numbers for some columns of a matrix."""
        return -(-columns // _BYTE) if self.compression_type == _ONE_BIT else columns

    @property
    def keeps_packed_signs(self) -> bool:
        """Whether the stored numbers are packed signs; see `Operations.pack_signs`."""
        return self.compression_type == _ONE_BIT

    @property
    def _unit(self) -> float:
        """The value of one unit of the integers."""
        return self.limit / np.iinfo(self.dtype).max

    def record_compress(
        self, tape: Operations, values: Array, stored: Array, *, truncate: bool
    ) -> None:
        """Records stored = values in units of limit / largest integer, rounded.

        Args:
            tape: Records the arithmetic.
            values: (rows, columns).
            stored: (rows, self.columns(columns)) of self.dtype.
            truncate: Whether values beyond the limit may occur; they are stored as the limit.
        """
        if self.compression_type == _ONE_BIT:
            tape.pack_signs(values, stored)
            return
        if self.limit == 0.0:
            tape.greater(values, 0.0, stored.view(np.bool_))
            return
        units = tape.scratch(*values.shape)
        tape.multiply(values, 1.0 / self._unit, units)
        tape.round(units, units)
        if truncate:
            bounds = np.iinfo(self.dtype)
            tape.maximum(units, float(bounds.min), units)
            tape.minimum(units, float(bounds.max), units)
        tape.convert(units, stored)

    def record_decompress(self, tape: Operations, stored: Array, values: Array) -> None:
        """Records the inverse of `record_compress`; if limit is 0, 1 for positive and 0 else."""
        if self.compression_type == _ONE_BIT:
            tape.unpack_signs(stored, values)
        elif self.limit == 0.0:
            tape.copy(stored.view(np.bool_), values)
        else:
            tape.multiply(stored, self._unit, values)
