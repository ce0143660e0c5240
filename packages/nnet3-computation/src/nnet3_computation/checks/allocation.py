"""Matrices have memory when they are used, and the memory plan has room for each."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from nnet3_computation import arrays, commands
from nnet3_computation.analysis.accesses import ALLOCATING
from nnet3_computation.analysis.layout import MATRIX
from nnet3_computation.checks.subject import Subject
from nnet3_computation.memory import FLOAT_BYTES, Bytes, live


def check_allocation(subject: Subject) -> None:
    """Checks where matrices get their memory from and when they lose it.

    1. Every matrix that a command names is given memory by exactly one command: an allocation,
       AcceptInput, or SwapMatrix to it. (AcceptInput of one matrix in several segments is one.)
    2. At most one command takes the memory away, DeallocMatrix or SwapMatrix from it; an output
       keeps its memory.
    3. SwapMatrix is between matrices of one size.
    4. No command accesses a matrix before it has memory or after it has lost it. Every matrix that
       is not an input is accessed.

    `check_loop` looks at the SwapMatrix commands at the end of a loop.
    """
    in_loop_end = np.zeros(len(subject.table), dtype=np.bool_)
    in_loop_end[commands.hand_over_commands(subject.table)] = True
    gives = ALLOCATING.positions(subject.opcodes)
    frees = subject.positions(commands.DeallocMatrix)
    swaps = subject.positions(commands.SwapMatrix)
    _check_swaps(subject, swaps)
    given = _matrix(subject, gives, "first")
    allocate = _only(subject, gives[~in_loop_end[gives]], given[~in_loop_end[gives]], "allocated")
    lost_at = np.concatenate([frees, swaps])
    lost = np.concatenate([_matrix(subject, frees, "first"), _matrix(subject, swaps, "source")])
    order = np.argsort(lost_at, kind="stable")
    deallocate = _only(subject, lost_at[order], lost[order], "freed")
    _check_use(subject, allocate, deallocate)
    is_output = subject.analysis.lifetimes.is_output
    freed = _matrix(subject, frees, "first")
    subject.require(~is_output[freed], frees, lambda i: f"m{freed[i]} is an output")


def check_freed(subject: Subject) -> None:
    """Checks that, except in loops, every matrix that is not an output is freed."""
    if subject.is_loop:
        return
    is_kept = np.zeros(len(subject.computation.matrices), dtype=np.bool_)
    is_kept[_matrix(subject, ALLOCATING.positions(subject.opcodes), "first")] = True
    is_kept[_matrix(subject, subject.positions(commands.DeallocMatrix), "first")] = False
    is_kept[_matrix(subject, subject.positions(commands.SwapMatrix), "source")] = False
    kept = arrays.where(is_kept & ~subject.analysis.lifetimes.is_output)
    if len(kept):
        subject.fail(f"m{kept[0]} is never freed, and is no output")


def _matrix(subject: Subject, at: arrays.Ids, which: str) -> commands.Table:
    """The matrix that the first operand, or the source of a swap, belongs to."""
    column = commands.FIRST_OPERAND_COLUMN + (which == "source")
    matrix: commands.Table = subject.computation.submatrices[subject.table[at, column], MATRIX]
    return matrix


def _check_swaps(subject: Subject, at: arrays.Ids) -> None:
    destination, source = _matrix(subject, at, "first"), _matrix(subject, at, "source")
    matrices = subject.computation.matrices
    subject.require(destination != source, at, lambda i: f"m{source[i]} is handed to itself")
    subject.require(
        (matrices[destination] == matrices[source]).all(axis=1),
        at,
        lambda i: (
            f"m{source[i]} has the size {tuple(matrices[source[i]].tolist())}, expected "
            f"{tuple(matrices[destination[i]].tolist())} (the size of m{destination[i]})"
        ),
    )


def _only(subject: Subject, at: arrays.Ids, matrix: commands.Table, what: str) -> arrays.Ids:
    """Checks that no matrix occurs twice; returns the command of each matrix, or -1."""
    found = np.full(len(subject.computation.matrices), -1, dtype=np.int64)
    found[matrix[::-1]] = at[::-1]
    again = found[matrix] != at
    again &= subject.opcodes[at] != commands.AcceptInput.OPCODE
    subject.require(
        ~again, at, lambda i: f"m{matrix[i]} is {what} a second time (first by c{found[matrix[i]]})"
    )
    return found


def _check_use(subject: Subject, allocate: arrays.Ids, deallocate: arrays.Ids) -> None:
    accesses = subject.analysis.matrix_accesses
    lifetimes = subject.analysis.lifetimes
    first, last = accesses.first(absent=-1), accesses.last(absent=-1)
    cells = arrays.where(commands.SCHEMA.is_matrix.take(subject.opcodes, axis=0).reshape(-1))
    is_named = first >= 0
    is_named[subject.analysis.layout.matrix_of.take(subject.table.take(cells))] = True
    is_named[0] = False  # the empty matrix
    is_freed = deallocate >= 0
    # For each of these commands one of the conditions below holds.
    wrong = (allocate < 0) | (last < 0) | ((last == allocate) & ~lifetimes.is_input)
    wrong |= (first < allocate) | (is_freed & (deallocate <= np.maximum(last, allocate)))
    for matrix in arrays.where(is_named & wrong).tolist():
        begin, end = int(allocate[matrix]), int(deallocate[matrix])
        if begin < 0:
            subject.fail(
                f"m{matrix} is never allocated", int(first[matrix]) if first[matrix] >= 0 else None
            )
        if last[matrix] < 0 or (last[matrix] == begin and not lifetimes.is_input[matrix]):
            subject.fail(f"m{matrix} is never used", begin)
        if first[matrix] < begin:
            subject.fail(f"m{matrix} is accessed before c{begin} allocates it", int(first[matrix]))
        if 0 <= end <= last[matrix]:
            subject.fail(f"m{matrix} is accessed after c{end} freed it", int(last[matrix]))
        if 0 <= end <= begin:
            subject.fail(f"m{matrix} is freed before c{begin} allocates it", end)


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
    held = live.holdings(computation)
    sizes = held.blocks.sizes
    offsets = np.full(len(sizes), -1, dtype=np.int64)
    owner = np.zeros(len(sizes), dtype=np.int64)
    for name, block, places in (
        ("offsets", held.matrix_block, plan.offsets),
        ("compressed_offsets", held.compressed_block, plan.compressed_offsets),
    ):
        matrices = np.flatnonzero(block >= 0)
        numbers, found = block[matrices], places[matrices]
        wrong = (found < 0) | (found % FLOAT_BYTES != 0)
        wrong |= found + sizes[numbers] > plan.arena_bytes
        if wrong.any():
            bad = int(wrong.argmax())
            subject.fail(
                f"{name}[{matrices[bad]}] = {found[bad]} of the memory plan is no place for "
                f"{sizes[numbers[bad]]} bytes in an arena of {plan.arena_bytes}"
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
    clash = _first_overlap(held.blocks, offsets)
    if clash is not None:
        one, other, command = clash
        subject.fail(
            f"matrices {owner[one]} and {owner[other]} overlap in the memory plan, and are both "
            "needed there",
            command,
        )


def _first_overlap(blocks: live.Blocks, offsets: Bytes) -> tuple[int, int, int] | None:
    """Returns two blocks that overlap while both are needed, and when; None if no two do.

    Args:
        blocks: The blocks.
        offsets: (B,) the offset where each begins.
    """
    is_needed = blocks.begin < blocks.end
    spans = blocks.block[is_needed].tolist()
    times = [*zip(blocks.begin[is_needed].tolist(), [1] * len(spans), spans, strict=True)]
    times += zip(blocks.end[is_needed].tolist(), [0] * len(spans), spans, strict=True)
    starts, stops = offsets.tolist(), (offsets + blocks.sizes).tolist()
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
