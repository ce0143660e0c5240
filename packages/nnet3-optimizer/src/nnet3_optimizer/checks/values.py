"""Elements are set before they are read; the compiler's commands do not change them afterwards."""

from __future__ import annotations

import numpy as np
from nnet3_computation.analysis import MATRIX, READ, WRITE, CommandKinds
from nnet3_computation.arrays import where
from nnet3_computation.checks import COMPUTING, SUMS, Subject
from nnet3_computation.commands import (
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    CompressMatrix,
    DeallocMatrix,
    NoOperation,
    SwapMatrix,
)

_IDLE = CommandKinds.of(
    AllocMatrixUndefined, AllocMatrixZeroed, DeallocMatrix, SwapMatrix, NoOperation
)
"""Commands that compute nothing."""


def check_undefined(subject: Subject) -> None:
    """Checks that no variable is read before it is written.

    The first access to each variable must be a pure write. A compression may include undefined
    elements: only a later read of them matters.
    """
    lists = subject.analysis.variable_accesses
    begins = where(lists.is_accessed)
    first = lists.splits[begins]
    command = lists.command[first]
    defined = lists.access[first] == WRITE
    defined |= subject.opcodes[command] == CompressMatrix.OPCODE
    if not defined.all():
        which = np.flatnonzero(~defined)
        worst = which[np.argmin(command[which])]
        variable = subject.analysis.variables.describe(int(begins[worst]))
        subject.fail(
            f"{subject.name(int(command[worst]))}: {variable} is read, but nothing wrote it before",
            int(command[worst]),
        )


def check_unused(subject: Subject) -> None:
    """Checks that every result is used.

    1. A command without side effects writes something that another command reads, or makes a memo
       that another command uses.
    2. No value is overwritten before a command reads it.

    Loops are left out: a later round may read what an earlier one wrote.
    """
    if subject.is_loop:
        return
    analysis = subject.analysis
    is_idle = _IDLE.among(subject.opcodes)
    at = where(~analysis.feeds & ~analysis.has_side_effects & ~is_idle)
    if len(at):
        subject.fail(f"{subject.name(int(at[0]))}: nothing reads the result", int(at[0]))
    _check_overwritten(subject)


def _check_overwritten(subject: Subject) -> None:
    lists = subject.analysis.variable_accesses
    overwrites = (lists.access[1:] == WRITE) & ((lists.access[:-1] & WRITE) != 0)
    overwrites &= lists.follows[1:]
    if not overwrites.any():
        return
    first = where(overwrites)
    first = first[COMPUTING.among(subject.opcodes[lists.command[first]])]
    if len(first):
        worst = int(first[np.argmin(lists.command[first + 1])])
        variable = subject.analysis.variables.describe(int(lists.thing[worst]))
        command = int(lists.command[worst + 1])
        subject.fail(
            f"{subject.name(command)}: {variable} is overwritten, but nothing has read what "
            f"c{lists.command[worst]} wrote there",
            command,
        )


def check_rewrite(subject: Subject) -> None:
    """Checks that no variable is written after it was only read.

    This holds for the output of the compiler; optimized computations use memory again.
    """
    lists = subject.analysis.variable_accesses
    reads = np.where(lists.access == READ, np.arange(len(lists.access)), len(lists.access))
    accessed = np.flatnonzero(lists.is_accessed)
    if not len(accessed):
        return
    first_read = np.full(len(lists.splits) - 1, len(lists.access), dtype=np.int64)
    first_read[accessed] = np.minimum.reduceat(reads, lists.splits[:-1][accessed])
    owner = np.repeat(np.arange(len(lists.splits) - 1), np.diff(lists.splits))
    late = ((lists.access & WRITE) != 0) & (np.arange(len(owner)) > first_read[owner])
    if late.any():
        places = np.flatnonzero(late)
        worst = int(places[np.argmin(lists.command[places])])
        variable = int(owner[worst])
        reader = int(lists.command[first_read[variable]])
        subject.fail(
            f"{subject.name(int(lists.command[worst]))}: "
            f"{subject.analysis.variables.describe(variable)} is changed after c{reader} read it, "
            "which is not expected before optimization",
            int(lists.command[worst]),
        )


def check_direction(subject: Subject) -> None:
    """Checks that the compiler's copies and sums keep values and derivatives apart.

    1. After the marker they read only matrices that were written after it: derivatives. (Optimized
       computations also gather values for model updates.)
    2. No command writes into a matrix that the user gives.
    """
    if len(subject.segment_ends) != 1:
        return
    marker = int(subject.segment_ends[0])
    accesses = subject.analysis.submatrix_accesses
    matrix = subject.computation.submatrices[accesses.submatrix, MATRIX]
    opcodes = subject.opcodes[accesses.command]
    first, _ = subject.analysis.matrix_use
    wrong = ((accesses.access & READ) != 0) & (accesses.command > marker) & SUMS.among(opcodes)
    wrong &= first[matrix] < marker
    for entry in where(wrong)[:1].tolist():
        at, which = int(accesses.command[entry]), int(accesses.submatrix[entry])
        subject.fail(
            f"{subject.name(at)}: {subject.describe(which)} is read, which was written before the "
            "marker, but derivatives are sums of derivatives",
            at,
        )
    wrong = ((accesses.access & WRITE) != 0) & subject.analysis.lifetimes.is_input[matrix]
    wrong &= COMPUTING.among(opcodes)
    for entry in where(wrong)[:1].tolist():
        at, which = int(accesses.command[entry]), int(accesses.submatrix[entry])
        subject.fail(
            f"{subject.name(at)}: {subject.describe(which)} is written, but the user gives it", at
        )
