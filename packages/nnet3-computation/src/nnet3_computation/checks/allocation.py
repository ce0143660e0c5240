"""Matrices: allocated before they are used, freed after, each once."""

from __future__ import annotations

import numpy as np

from nnet3_computation.analysis.variables import MATRIX
from nnet3_computation.arrays.csr import Bools, Ids, where
from nnet3_computation.checks.subject import Subject
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    SCHEMA,
    AcceptInput,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    DeallocMatrix,
    SwapMatrix,
)
from nnet3_computation.commands.declaration import Table
from nnet3_computation.commands.loops import hand_over_commands

_GIVING = AllocMatrixUndefined, AllocMatrixZeroed, AcceptInput, SwapMatrix
"""Commands that give a matrix memory."""


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
    in_loop_end[hand_over_commands(subject.table)] = True
    gives = subject.positions(*_GIVING)
    frees = subject.positions(DeallocMatrix)
    swaps = subject.positions(SwapMatrix)
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
    is_kept[_matrix(subject, subject.positions(*_GIVING), "first")] = True
    is_kept[_matrix(subject, subject.positions(DeallocMatrix), "first")] = False
    is_kept[_matrix(subject, subject.positions(SwapMatrix), "source")] = False
    kept = where(is_kept & ~subject.analysis.lifetimes.is_output)
    if len(kept):
        subject.fail(f"m{kept[0]} is never freed, and is no output")


def _matrix(subject: Subject, at: Ids, which: str) -> Table:
    """The matrix that the first operand, or the source of a swap, belongs to."""
    column = FIRST_OPERAND_COLUMN + (which == "source")
    matrix: Table = subject.computation.submatrices[subject.table[at, column], MATRIX]
    return matrix


def _check_swaps(subject: Subject, at: Ids) -> None:
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


def _only(subject: Subject, at: Ids, matrix: Table, what: str) -> Ids:
    """Checks that no matrix occurs twice; returns the command of each matrix, or -1."""
    found = np.full(len(subject.computation.matrices), -1, dtype=np.int64)
    found[matrix[::-1]] = at[::-1]
    again = found[matrix] != at
    again &= subject.opcodes[at] != AcceptInput.OPCODE
    subject.require(
        ~again, at, lambda i: f"m{matrix[i]} is {what} a second time (first by c{found[matrix[i]]})"
    )
    return found


def _check_use(subject: Subject, allocate: Ids, deallocate: Ids) -> None:
    accesses = subject.analysis.matrix_accesses
    lifetimes = subject.analysis.lifetimes
    first, last = accesses.first(absent=-1), accesses.last(absent=-1)
    is_named = (first >= 0) | _is_operand(subject)
    is_freed = deallocate >= 0
    # For each of these commands one of the conditions below holds.
    wrong = (allocate < 0) | (last < 0) | ((last == allocate) & ~lifetimes.is_input)
    wrong |= (first < allocate) | (is_freed & (deallocate <= np.maximum(last, allocate)))
    for matrix in where(is_named & wrong).tolist():
        begin, end = int(allocate[matrix]), int(deallocate[matrix])
        if begin < 0:
            subject.fail(f"m{matrix} is never allocated", _or_none(first[matrix]))
        if last[matrix] < 0 or (last[matrix] == begin and not lifetimes.is_input[matrix]):
            subject.fail(f"m{matrix} is never used", begin)
        if first[matrix] < begin:
            subject.fail(f"m{matrix} is accessed before c{begin} allocates it", int(first[matrix]))
        if 0 <= end <= last[matrix]:
            subject.fail(f"m{matrix} is accessed after c{end} freed it", int(last[matrix]))
        if 0 <= end <= begin:
            subject.fail(f"m{matrix} is freed before c{begin} allocates it", end)


def _is_operand(subject: Subject) -> Bools:
    """Returns (M,) bool: which matrices an operand of some command belongs to."""
    cells = where(SCHEMA.is_matrix.take(subject.opcodes, axis=0).reshape(-1))
    is_operand = np.zeros(len(subject.computation.matrices), dtype=np.bool_)
    is_operand[subject.analysis.layout.matrix_of.take(subject.table.take(cells))] = True
    is_operand[0] = False  # the empty matrix
    return is_operand


def _or_none(command: np.int64) -> int | None:
    return int(command) if command >= 0 else None
