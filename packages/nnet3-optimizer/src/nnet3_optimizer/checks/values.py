"""Elements are set before they are read; what the compiler emits never changes them afterwards."""

from __future__ import annotations

import numpy as np
from nnet3_compiler.commands import (
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    CompressMatrix,
    DeallocMatrix,
    NoOperation,
    SwapMatrix,
)

from nnet3_optimizer.analysis.accesses import READ, WRITE
from nnet3_optimizer.analysis.csr import where
from nnet3_optimizer.analysis.kinds import CommandKinds
from nnet3_optimizer.checks.subject import Subject

_IDLE = CommandKinds.of(
    AllocMatrixUndefined, AllocMatrixZeroed, DeallocMatrix, SwapMatrix, NoOperation
)
"""Commands that compute nothing."""


def check_undefined(subject: Subject) -> None:
    """Checks that no variable is read before it is written.

    The first access to each variable must be a pure write. Undefined elements may be compressed
    together with others: what matters is whether they are read afterwards.
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
    """Checks that nothing is computed in vain.

    A command without side effects writes something that another command reads, or makes a memo that
    one uses. Loops are not looked at: a later round may read what an earlier one wrote.
    """
    if subject.is_loop:
        return
    analysis = subject.analysis
    feeds = analysis.flow.feeding(len(subject.table))
    is_idle = _IDLE.among(subject.opcodes)
    at = where(~feeds & ~analysis.has_side_effects & ~is_idle)
    if len(at):
        subject.fail(f"{subject.name(int(at[0]))}: nothing reads the result", int(at[0]))


def check_rewrite(subject: Subject) -> None:
    """Checks that no variable is written after it was only read.

    This holds for what the compiler emits; optimized computations use memory again.
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
