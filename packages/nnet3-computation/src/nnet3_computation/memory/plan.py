"""The memory plan: an offset in one arena for every matrix.

This is dynamic storage allocation. The lower bound of any packing is the largest sum of live bytes.
The problem is NP-complete, but computations are easy cases: nearly always a sweep from the peak
meets the bound. Where it does not come close, a search follows.

Only at the peak does an arena have no room to spare. So the blocks that are needed at the peak are
stacked first, the ones needed longest at the bottom. The other blocks are then placed in the gaps,
going from the peak on to the end, and from the peak back to the beginning. Events are sorted once;
the rest of the time goes into following them and looking for gaps.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import attrs
import numpy as np
from nnet3_descriptors import indexes, values

from nnet3_computation.computation import MemoryPlan, NnetComputation, parts
from nnet3_computation.errors import OptionError
from nnet3_computation.memory import live
from nnet3_computation.memory.live import Blocks, Ints

Stretch = tuple[int, int]
"""Begin and end, in bytes."""

_NO_GAP = -1


class Gaps:
    """The free stretches of an arena, which grows only where nothing fits below its ceiling.

    Most blocks are of few sizes. A stretch that is given back waits, under its size, for the next
    block of that size. It is joined with its neighbours only when a block finds none of its size.

    A block takes the upper end of the gap under the ceiling, and the lower end of other gaps. In a
    chain, where each block is needed until the next one exists, blocks then lie at either end in
    turn, and the free room stays in one piece.

    Attributes:
        kept: For each size the begins of the stretches that were given back. Append one to give it
            back; take any.
    """

    def __init__(self, ceiling: int) -> None:
        """Makes the arena free from the ceiling on."""
        self.kept: defaultdict[int, list[int]] = defaultdict(list)
        self._ceiling = ceiling
        self._top = ceiling
        """Everything above is free."""
        self._stop_of: dict[int, int] = {}
        """The gaps below: from their begin to their end."""
        self._start_of: dict[int, int] = {}
        """The same from end to begin, to find a neighbour without a search."""

    def take(self, size: int) -> int:
        """Takes a stretch, as tight as possible, and returns its begin."""
        gap = self._tightest(size)
        if gap == _NO_GAP:
            self._join()
            gap = self._tightest(size)
        if gap == _NO_GAP:
            return self._grow(size)
        stop = self._stop_of[gap]
        place = stop - size if stop == self._ceiling else gap
        self._cut(gap, place, size)
        return place

    def take_clear(self, size: int, clear_of: Sequence[Stretch]) -> int:
        """Takes a stretch, as tight as possible, that overlaps none of some others.

        Args:
            size: Its size.
            clear_of: The others, by begin.
        """
        self._join()
        best, tightest, place = _NO_GAP, math.inf, _first_clear(self._top, size, clear_of)
        for start, stop in self._stop_of.items():
            if size <= stop - start < tightest:
                begin = _first_clear(start, size, clear_of)
                if begin + size <= stop:
                    best, tightest, place = start, stop - start, begin
        if best == _NO_GAP:
            self._cut_top(place, size)
        else:
            self._cut(best, place, size)
        return place

    def take_at(self, start: int, size: int) -> None:
        """Takes the bytes start, ..., start + size - 1, which must be free."""
        self._join()
        for gap, stop in self._stop_of.items():
            if gap <= start < stop:
                self._cut(gap, start, size)
                self._top = max(self._top, start + size)
                return
        self._cut_top(start, size)

    def _tightest(self, size: int) -> int:
        """Returns where the tightest gap begins that a stretch fits into."""
        best, tightest = _NO_GAP, math.inf
        for start, stop in self._stop_of.items():
            if size <= stop - start < tightest:
                best, tightest = start, stop - start
        return best

    def _grow(self, size: int) -> int:
        """Takes a stretch from the top, or from a gap under it on."""
        place = self._start_of.pop(self._top, self._top)
        self._stop_of.pop(place, None)
        self._top = place + size
        return place

    def _add(self, start: int, stop: int) -> None:
        self._stop_of[start] = stop
        self._start_of[stop] = start

    def _cut(self, gap: int, start: int, size: int) -> None:
        """Takes bytes out of a gap."""
        stop = self._stop_of.pop(gap)
        del self._start_of[stop]
        if gap < start:
            self._add(gap, start)
        if start + size < stop:
            self._add(start + size, stop)

    def _cut_top(self, start: int, size: int) -> None:
        """Takes bytes that lie above all gaps."""
        if self._top < start:
            self._add(self._start_of.pop(self._top, self._top), start)
        self._top = start + size

    def _join(self) -> None:
        """Turns the stretches that were given back into gaps, joined with their neighbours."""
        stop_of, start_of = self._stop_of, self._start_of
        for size, kept in self.kept.items():
            for start in kept:
                stop = stop_of.pop(start + size, start + size)
                start = start_of.pop(start, start)
                stop_of[start] = stop
                start_of[stop] = start
        self.kept.clear()


def _first_clear(start: int, size: int, clear_of: Sequence[Stretch]) -> int:
    """Returns the first place from `start` on that overlaps none of these stretches."""
    for begin, end in clear_of:
        if begin < start + size and start < end:
            start = end
    return start


class SeveralSpans(NamedTuple):
    """The spans in which a block is needed, and the places that it must avoid.

    Attributes:
        spans: Begin and end of each span, in order.
        clear_of: The stretches in which it would overlap stacked blocks, by offset.
        met: The other blocks with several spans that share some time with it.
    """

    spans: list[tuple[int, int]]
    clear_of: list[Stretch]
    met: list[int]

    def after(self, time: int) -> list[tuple[int, int]]:
        """Returns the spans that begin after a time."""
        return [span for span in self.spans if span[0] > time]

    def before(self, time: int) -> list[tuple[int, int]]:
        """Returns the spans that end up to a time, going back: minus their ends and begins."""
        return [(-end, -begin) for begin, end in reversed(self.spans) if end <= time]


def several_spans(blocks: Blocks, stack: Ints, edges: Ints) -> dict[int, SeveralSpans]:
    """Returns the spans of each block that has several, and the places that it must avoid.

    Args:
        blocks: The blocks.
        stack: (S,) int64, spans of blocks that are stacked, from the bottom.
        edges: (S + 1,) int64, the offsets between which they lie.
    """
    spans = blocks.spans_of_several
    if not len(spans):
        return {}
    block, begin, end = blocks.block[spans], blocks.begin[spans], blocks.end[spans]
    firsts = np.flatnonzero(np.diff(block, prepend=-1))
    numbers = block[firsts].tolist()

    meets = (begin[:, None] < blocks.end[stack]) & (end[:, None] > blocks.begin[stack])
    is_met = np.zeros((len(numbers), len(stack) + 2), dtype=np.bool_)
    is_met[:, 1:-1] = np.logical_or.reduceat(meets, firsts)
    # A stretch begins or ends where the block overlaps one of two neighbours.
    row, edge = np.nonzero(is_met[:, 1:] != is_met[:, :-1])
    ends = edges[edge].tolist()
    stretches = list(zip(ends[::2], ends[1::2], strict=True))
    times = list(zip(begin.tolist(), end.tolist(), strict=True))
    first_stretches = np.searchsorted(row[::2], np.arange(len(numbers) + 1)).tolist()
    first_times = [*firsts.tolist(), len(times)]
    result = {
        number: SeveralSpans(times[slice(*at)], stretches[slice(*of)], [])
        for number, at, of in zip(
            numbers, pairwise(first_times), pairwise(first_stretches), strict=True
        )
    }
    together = (begin[:, None] < end) & (end[:, None] > begin) & (block[:, None] != block)
    span, other = np.nonzero(together)
    for number, met in zip(block[span].tolist(), block[other].tolist(), strict=True):
        result[number].met.append(met)
    return result


_UNPLACED = -1


def from_the_peak(blocks: Blocks) -> Ints:
    """Stacks the blocks of the peak, then fills the gaps before and after.

    Returns:
        (B,) int64, the offset of each block.
    """
    peak, stack = blocks.peak, blocks.stack
    stacked = blocks.block[stack]
    edges = np.concatenate([[0], np.cumsum(blocks.sizes[stacked])])
    offsets = np.full(len(blocks.sizes), _UNPLACED, dtype=np.int64)
    offsets[stacked] = edges[:-1]
    several = several_spans(blocks, stack, edges)
    after, before = blocks.events_around_peak
    ends, begins = np.zeros((2, len(offsets)), dtype=np.int64)
    ends[blocks.block], begins[blocks.block] = blocks.end, blocks.begin
    places, sizes = offsets.tolist(), blocks.sizes.tolist()
    for events, ahead, last in (
        (after, {block: each.after(peak) for block, each in several.items()}, ends),
        (before, {block: each.before(peak) for block, each in several.items()}, -begins),
    ):
        gaps = Gaps(blocks.lower_bound)
        last_ends = last.tolist() if several else []  # nothing is reserved for others
        _place(events.tolist(), gaps, sizes, places, several, ahead, last_ends)
    return np.array(places, dtype=np.int64)


def _place(
    events: list[int],
    gaps: Gaps,
    sizes: list[int],
    offsets: list[int],
    several: dict[int, SeveralSpans],
    ahead: dict[int, list[tuple[int, int]]],
    ends: list[int],
) -> None:
    """Places blocks in the order in which they are needed, going away from the peak.

    The later spans of a block with several spans are reserved for it.

    Args:
        events: The block that is needed from then on, or ~block for one that no longer is.
        gaps: The free stretches at the peak.
        sizes: The size of each block.
        offsets: The offsets of blocks that are placed already, -1 for the others; those of the
            blocks that are met are filled in.
        several: The blocks that have several spans.
        ahead: The spans of these blocks that are met, in order.
        ends: For each of the other blocks when it is no longer needed.
    """
    reserved = sorted(
        (*span, block)
        for block, spans in ahead.items()
        if offsets[block] != _UNPLACED
        for span in spans
    )

    def stretches(of: Iterable[int]) -> list[Stretch]:
        """Returns where blocks lie."""
        return [(offsets[each], offsets[each] + sizes[each]) for each in of]

    kept = gaps.kept
    for block in events:
        if block < 0:
            kept[sizes[~block]].append(offsets[~block])
            continue
        size = sizes[block]
        if block in several:
            if offsets[block] != _UNPLACED:
                gaps.take_at(offsets[block], size)
                del reserved[[each for _, _, each in reserved].index(block)]
                continue
            met = [each for each in several[block].met if offsets[each] != _UNPLACED]
            clear_of = sorted(several[block].clear_of + stretches(met))
            offsets[block] = gaps.take_clear(size, clear_of)
            for span in ahead[block][1:]:
                insort(reserved, (*span, block))
        elif reserved and reserved[0][0] < ends[block]:
            until = [each for begin, _, each in reserved if begin < ends[block]]
            offsets[block] = gaps.take_clear(size, sorted(stretches(until)))
        else:
            exact = kept[size]
            offsets[block] = exact.pop() if exact else gaps.take(size)


STEPS_PER_BLOCK = 24
"""The most placements for each block in a search with one order of choices."""


def search(blocks: Blocks, capacity: int) -> Ints | None:
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

    def __init__(self, blocks: Blocks) -> None:
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


def pack(blocks: Blocks) -> Ints:
    """Finds an offset for every block, (B,) int64: those needed at one time do not overlap."""
    if not len(blocks.sizes):
        return blocks.sizes
    capacity = int(blocks.lower_bound * GOOD_ENOUGH)
    offsets = from_the_peak(blocks)
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
