"""The memory plan as a value that goes with a computation; `nnet3_computation.memory` makes it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import frozen, is_frozen, is_masked

from nnet3_computation.errors import ComputationError

Bytes = npt.NDArray[np.int64]

_MOST = np.iinfo(np.int64).max

NOWHERE = -1
"""The offset of a matrix that has no place."""


def _offsets(value: Any) -> Bytes:
    """Returns offsets as a read-only int64 array."""
    try:
        raw = np.asarray(value)
    except ValueError as error:  # parts of different lengths
        raise ComputationError(f"offsets of a memory plan must be a list: {error}") from error
    if is_masked(value):
        raise ComputationError("offsets of a memory plan must not be a masked array")
    if raw.ndim != 1 or (raw.size and raw.dtype.kind not in "iu"):
        raise ComputationError(
            f"offsets of a memory plan must be a list of integers (got {raw.shape} {raw.dtype})"
        )
    if raw.dtype.kind == "u" and raw.size and int(raw.max()) > _MOST:
        raise ComputationError(f"offsets of a memory plan must fit in 64 bits (got {raw.max()})")
    if raw.dtype == np.int64 and is_frozen(raw):
        return raw
    return frozen(raw.astype(np.int64))


@attrs.frozen(kw_only=True, eq=False)
class MemoryPlan:
    """The places of a computation's matrices in one arena.

    Attributes:
        offsets: (M,) int64 bytes; -1 for matrices that are never allocated. Matrices that are
            allocated at the same time do not overlap. A matrix that takes over the memory of
            another (SwapMatrix) has the offset of the other.
        compressed_offsets: (M,) int64 bytes: where the compressed form of a matrix lies between
            CompressMatrix and DecompressMatrix; -1 for matrices that are never compressed. The
            elements themselves have no memory then, and afterwards lie at `offsets` again.
        arena_bytes: Size of the arena.
        lower_bound_bytes: The most that is held during a command, sizes rounded up to the
            alignment: no plan needs less. While a matrix is compressed or decompressed it has both
            forms; `peak_bytes` counts one.

    Raises:
        ComputationError: The offsets are not integers, or lie outside of the arena.
    """

    offsets: Bytes = attrs.field(converter=_offsets)
    compressed_offsets: Bytes = attrs.field(converter=_offsets)
    arena_bytes: int
    lower_bound_bytes: int

    def __attrs_post_init__(self) -> None:
        if len(self.offsets) != len(self.compressed_offsets):
            raise ComputationError(
                f"a memory plan must have as many compressed_offsets as offsets (got "
                f"{len(self.compressed_offsets)} and {len(self.offsets)})"
            )
        for name in ("arena_bytes", "lower_bound_bytes"):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise ComputationError(f"{name} must be a number of bytes (got {size!r})")
        for name in ("offsets", "compressed_offsets"):
            array = getattr(self, name)
            outside = (array < NOWHERE) | (array > self.arena_bytes)
            if outside.any():
                matrix = int(outside.argmax())
                raise ComputationError(
                    f"{name}[{matrix}] = {array[matrix]} is no place in an arena of "
                    f"{self.arena_bytes} bytes"
                )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryPlan):
            return NotImplemented
        return (
            self.arena_bytes == other.arena_bytes
            and self.lower_bound_bytes == other.lower_bound_bytes
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.compressed_offsets, other.compressed_offsets)
        )

    def __hash__(self) -> int:
        return hash((self.arena_bytes, self.offsets.tobytes()))
