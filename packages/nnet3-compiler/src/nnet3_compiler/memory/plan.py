"""The memory plan: an offset in one arena for every matrix."""

from __future__ import annotations

import attrs
import numpy as np

from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.errors import OptionError
from nnet3_compiler.memory.blocks import Blocks
from nnet3_compiler.memory.live import Bytes, holdings
from nnet3_compiler.memory.packing import pack

NOWHERE = -1


@attrs.frozen(kw_only=True, eq=False)
class MemoryPlan:
    """Where the matrices of a computation lie in one arena.

    Attributes:
        offsets: (M,) int64 bytes; -1 for matrices that are never allocated. Matrices that are
            allocated at the same time do not overlap. A matrix that takes over the memory of
            another (SwapMatrix) has the offset of the other.
        compressed_offsets: (M,) int64 bytes: where the compressed form of a matrix lies between
            CompressMatrix and DecompressMatrix; -1 for matrices that are never compressed. The
            elements themselves have no memory then, and afterwards lie at `offsets` again.
        arena_bytes: Size of the arena.
        lower_bound_bytes: The most that is held during a command, sizes rounded up to the
            alignment: no plan needs less. While one form of a matrix is made of the other it has
            both, which `peak_bytes` does not count.
    """

    offsets: Bytes
    compressed_offsets: Bytes
    arena_bytes: int
    lower_bound_bytes: int


def plan_memory(computation: NnetComputation, *, alignment: int = 64) -> MemoryPlan:
    """Assigns every matrix an offset in one arena.

    Args:
        computation: The computation.
        alignment: Offsets are multiples of this, in bytes.

    Returns:
        The plan, whose arena is hardly ever larger than the lower bound.

    Raises:
        OptionError: The alignment is not positive.
        ComputationError: A matrix is given back, swapped or compressed that is not there.
    """
    if alignment < 1:
        raise OptionError(f"alignment must be at least 1 byte (got {alignment})")
    held = holdings(computation)
    sizes = -(-held.bytes // alignment) * alignment
    blocks = Blocks(sizes=sizes, block=held.block, begin=held.begin, end=held.end)
    packing = pack(blocks)
    return MemoryPlan(
        offsets=_where(held.matrix_block, packing.offsets),
        compressed_offsets=_where(held.compressed_block, packing.offsets),
        arena_bytes=packing.size,
        lower_bound_bytes=blocks.lower_bound,
    )


def _where(block: Bytes, offsets: Bytes) -> Bytes:
    result = np.full(len(block), NOWHERE, dtype=np.int64)
    has_block = block >= 0
    result[has_block] = offsets[block[has_block]]
    result.flags.writeable = False
    return result
