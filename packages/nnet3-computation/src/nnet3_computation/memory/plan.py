"""The memory plan: an offset in one arena for every matrix.

This is dynamic storage allocation. The lower bound of any packing is the largest sum of live bytes.
The problem is NP-complete, but computations are easy cases: nearly always a sweep from the peak
meets the bound. Where it does not come close, a search follows.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
from nnet3_descriptors import indexes, values

from nnet3_computation.computation import MemoryPlan, NnetComputation, parts
from nnet3_computation.errors import OptionError
from nnet3_computation.memory import live, sweep

STEPS_PER_BLOCK = 24
"""The most placements for each block in a search with one order of choices."""


def search(blocks: live.Blocks, capacity: int) -> live.Ints | None:
    """Returns offsets in `capacity` bytes, (B,) int64; None if none were found.

    Blocks are placed from the bottom up, each as low as the blocks below it allow. The next block
    is always one under which no other block could still be put (as in MiniMalloc; M. Moffitt,
    2023). A choice is taken back as soon as, at some time, the remaining blocks no longer fit above
    the placed ones. With a good order, hardly any choice is taken back.
    """
    moments = _Moments(blocks)
    for order in moments.orders():
        found = _placed(moments, capacity, order)
        if found is not None:
            return np.array(found, dtype=np.int64)
    return None


class _Moments:
    """The times at which blocks are needed, reduced to moments with the most blocks.

    At such a moment a block has just begun, and the next event is the end of one.

    Attributes:
        sizes: The size of each block.
        of_block: For each block the moments at which it is needed.
        load: For each moment the bytes that are needed.
    """

    def __init__(self, blocks: live.Blocks) -> None:
        # At one command the ends come before the begins.
        times = indexes.distinct(np.concatenate([blocks.begin * 2 + 1, blocks.end * 2]))
        is_begin = times % 2 == 1
        moments = times[:-1][is_begin[:-1] & ~is_begin[1:]] // 2
        first = np.searchsorted(moments, blocks.begin).tolist()
        last = np.searchsorted(moments, blocks.end).tolist()
        self.sizes: list[int] = blocks.sizes.tolist()
        self.of_block: list[list[int]] = [[] for _ in self.sizes]
        self.load = [0] * len(moments)
        for block, begin, end in zip(blocks.block.tolist(), first, last, strict=True):
            self.of_block[block] += range(begin, end)
            for moment in range(begin, end):
                self.load[moment] += self.sizes[block]

    def orders(self) -> list[list[int]]:
        """Returns orders in which blocks may be tried: by end, begin, load and area."""
        sizes, moments, load = self.sizes, self.of_block, self.load
        numbers = range(len(sizes))
        return [
            sorted(numbers, key=lambda b: (-moments[b][-1], -len(moments[b]))),
            sorted(numbers, key=lambda b: (moments[b][0], -sizes[b])),
            sorted(numbers, key=lambda b: (-max(load[m] for m in moments[b]), -len(moments[b]))),
            sorted(numbers, key=lambda b: -len(moments[b]) * sizes[b]),
        ]


def _placed(moments: _Moments, capacity: int, order: list[int]) -> list[int] | None:
    """Returns the offsets of blocks, found with one order of choices, or None.

    A level of the search has the blocks that are left, the choices that have not been tried, and
    for each moment the end of the blocks below and the bytes of the blocks that are left.
    """
    offsets, steps = [0] * len(order), STEPS_PER_BLOCK * len(order)
    floor, load = [0] * len(moments.load), moments.load
    levels = [(order, _choices(moments, floor, order, 0), floor, load)]
    while levels and levels[-1][0]:
        left, choices, floor, load = levels[-1]
        choice = next(choices, None)
        if choice is None:
            levels.pop()
            continue
        steps -= 1
        if steps < 0:
            return None
        block, start = choice
        offsets[block], size = start, moments.sizes[block]
        floor, load = list(floor), list(load)
        for moment in moments.of_block[block]:
            floor[moment] = start + size
            load[moment] -= size
        if _fit(floor, load, start, capacity):
            left = [each for each in left if each != block]
            levels.append((left, _choices(moments, floor, left, start), floor, load))
    return offsets if levels else None


def _choices(
    moments: _Moments, floor: list[int], blocks: list[int], lowest: int
) -> Iterator[tuple[int, int]]:
    """Returns the blocks that may come next, none below `lowest`, and their places."""
    if not blocks:
        return iter(())
    starts = [max(lowest, *[floor[m] for m in moments.of_block[b]]) for b in blocks]
    limit = min(map(sum, zip(starts, [moments.sizes[b] for b in blocks], strict=True)))
    # Another block fits below one that begins where that one could end.
    return iter([each for each in zip(blocks, starts, strict=True) if each[1] < limit])


def _fit(floor: list[int], load: list[int], start: int, capacity: int) -> bool:
    """Returns whether the remaining blocks, none below `start`, have room at all times."""
    # A search spends nearly all of its time in this loop.
    for low, above in zip(floor, load, strict=True):
        if above and (low if low > start else start) + above > capacity:
            return False
    return True


GOOD_ENOUGH = 1.02
"""A packing within this factor of the lower bound is not improved any further."""

FEW_BLOCKS = 400
"""The search, whose time is not linear in the number of blocks, runs up to this number."""


def pack(blocks: live.Blocks) -> live.Ints:
    """Finds an offset for every block, (B,) int64: those needed at one time do not overlap."""
    if not len(blocks.sizes):
        return blocks.sizes
    capacity = int(blocks.lower_bound * GOOD_ENOUGH)
    offsets = sweep.from_the_peak(blocks)
    if blocks.arena_bytes(offsets) <= capacity or len(blocks.sizes) > FEW_BLOCKS:
        return offsets
    found = search(blocks, capacity)
    return offsets if found is None else found


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
    if not values.is_integer(alignment) or not 1 <= alignment <= _MOST_ALIGNMENT:
        raise OptionError(
            f"alignment must be from 1 to {_MOST_ALIGNMENT} bytes, an integer (got {alignment!r})"
        )
    alignment = int(alignment)
    held = live.holdings(computation)
    blocks = attrs.evolve(held.blocks, sizes=-(-held.blocks.sizes // alignment) * alignment)
    offsets = pack(blocks)
    return MemoryPlan(
        offsets=_where(held.matrix_block, offsets),
        compressed_offsets=_where(held.compressed_block, offsets),
        arena_bytes=blocks.arena_bytes(offsets),
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


def _where(block: live.Bytes, offsets: live.Bytes) -> live.Bytes:
    result = np.full(len(block), parts.NOWHERE, dtype=np.int64)
    has_block = block >= 0
    result[has_block] = offsets[block[has_block]]
    result.flags.writeable = False
    return result
