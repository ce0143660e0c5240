"""The memory plan of a computation has room for each matrix while it is needed."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from nnet3_computation.checks.subject import Subject
from nnet3_computation.memory import FLOAT_BYTES, Bytes
from nnet3_computation.memory.live import holdings


def check_memory_plan(subject: Subject) -> None:
    """Checks the memory plan, if there is one.

    1. Each allocated matrix has an offset, and each compressed form another one. They are multiples
        of the size of an element. A matrix that takes over memory has the offset of the one before.
    2. They lie within the arena.
    3. Matrices that are in use at the same time do not overlap.
    """
    computation = subject.computation
    plan = computation.memory_plan
    if plan is None:
        return
    held = holdings(computation)
    offsets = np.full(len(held.bytes), -1, dtype=np.int64)
    owner = np.zeros(len(held.bytes), dtype=np.int64)
    for name, block, places in (
        ("offsets", held.matrix_block, plan.offsets),
        ("compressed_offsets", held.compressed_block, plan.compressed_offsets),
    ):
        matrices = np.flatnonzero(block >= 0)
        numbers, found = block[matrices], places[matrices]
        wrong = (found < 0) | (found % FLOAT_BYTES != 0)
        wrong |= found + held.bytes[numbers] > plan.arena_bytes
        if wrong.any():
            bad = int(wrong.argmax())
            subject.fail(
                f"{name}[{matrices[bad]}] = {found[bad]} of the memory plan is no place for "
                f"{held.bytes[numbers[bad]]} bytes in an arena of {plan.arena_bytes}"
            )
        owner[numbers], offsets[numbers] = matrices, found
        moved = offsets[numbers] != found
        if moved.any():
            bad = int(moved.argmax())
            subject.fail(
                f"{name}[{matrices[bad]}] = {found[bad]} of the memory plan, expected "
                f"{offsets[numbers[bad]]}, the memory of matrix {owner[numbers[bad]]}, which it "
                "takes over"
            )
    clash = _first_overlap(offsets, offsets + held.bytes, held.block, held.begin, held.end)
    if clash is not None:
        one, other, command = clash
        subject.fail(
            f"matrices {owner[one]} and {owner[other]} overlap in the memory plan, and are both "
            "needed there",
            command,
        )


def _first_overlap(
    start: Bytes, stop: Bytes, block: Bytes, begin: Bytes, end: Bytes
) -> tuple[int, int, int] | None:
    """Returns two blocks that overlap while both are needed, and when; None if no two do.

    Args:
        start: (B,) the offset where each block begins.
        stop: (B,) the offset where it ends, above `start`.
        block: (P,) the block of each span of time; see `Holdings`.
        begin: (P,) when it begins to be needed.
        end: (P,) when it no longer is.
    """
    spans = block[begin < end].tolist()
    times = [*zip(begin[begin < end].tolist(), [1] * len(spans), spans, strict=True)]
    times += zip(end[begin < end].tolist(), [0] * len(spans), spans, strict=True)
    starts, stops = start.tolist(), stop.tolist()
    there: list[tuple[int, int]] = []  # where blocks start, and which, ascending
    for time, begins, number in sorted(times):
        place = starts[number], number
        position = bisect_left(there, place)
        if not begins:
            del there[position]
            continue
        for _, neighbour in there[max(position - 1, 0) : position + 1]:
            if starts[neighbour] < stops[number] and starts[number] < stops[neighbour]:
                return neighbour, number, time
        insort(there, place)
    return None
