"""The memory plan: an offset in one arena for every matrix."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_descriptors.values import is_integer

from nnet3_computation.computation import MemoryPlan, NnetComputation
from nnet3_computation.computation.memory_plan import NOWHERE
from nnet3_computation.errors import OptionError
from nnet3_computation.memory.blocks import Blocks
from nnet3_computation.memory.live import Bytes, holdings
from nnet3_computation.memory.packing import pack

_MOST_ALIGNMENT = 2**30
"""The largest alignment; with a larger one the size of an arena could need more than 64 bits."""


def plan_memory(computation: NnetComputation, *, alignment: int = 64) -> MemoryPlan:
    """Assigns every matrix an offset in one arena.

    Args:
        computation: The computation.
        alignment: Offsets are multiples of this, in bytes.

    Returns:
        The plan, whose arena is hardly ever larger than the lower bound.

    Raises:
        OptionError: The alignment is no integer from 1 to 2**30.
        ComputationError: A command frees, swaps or compresses a matrix that is not allocated.
    """
    if not is_integer(alignment) or not 1 <= alignment <= _MOST_ALIGNMENT:
        raise OptionError(
            f"alignment must be from 1 to {_MOST_ALIGNMENT} bytes, an integer (got {alignment!r})"
        )
    alignment = int(alignment)
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


def with_memory_plan(computation: NnetComputation, *, alignment: int = 64) -> NnetComputation:
    """Returns a computation with its memory plan, which runtimes may use and files keep.

    Passes return computations without a plan, so add it last.

    Args:
        computation: The computation, optimized or not.
        alignment: As for `plan_memory`.

    Raises:
        OptionError: As by `plan_memory`.
        ComputationError: As by `plan_memory`.
    """
    return attrs.evolve(computation, memory_plan=plan_memory(computation, alignment=alignment))


def _where(block: Bytes, offsets: Bytes) -> Bytes:
    result = np.full(len(block), NOWHERE, dtype=np.int64)
    has_block = block >= 0
    result[has_block] = offsets[block[has_block]]
    result.flags.writeable = False
    return result
