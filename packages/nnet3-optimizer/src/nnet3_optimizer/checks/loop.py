"""Loops come round: a round ends with the matrices that it began with."""

from __future__ import annotations

from nnet3_computation.analysis import MATRIX
from nnet3_computation.checks import Subject
from nnet3_computation.commands import (
    AcceptInput,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    DeallocMatrix,
    GotoLabel,
    NoOperationLabel,
    SwapMatrix,
)

_TAKING = (AllocMatrixUndefined.OPCODE, AllocMatrixZeroed.OPCODE, AcceptInput.OPCODE)


def check_loop(subject: Subject) -> None:
    """Checks a computation that goes back to a label.

    1. If there is a label, a GotoLabel goes to it. (`check_rounds` of the compiler looks at
       GotoLabel itself.)
    2. At the end of a round, the same matrices are allocated as at the label. Matrices that the
        next round allocates anew do not count: inputs (AcceptInput), and outputs that the user has
        taken.
    """
    gotos, labels = subject.positions(GotoLabel), subject.positions(NoOperationLabel)
    if not len(gotos):
        if len(labels):
            subject.fail("there is a label, but nothing goes to it", int(labels[0]))
        return
    label = int(subject.table[gotos[0], 2])
    at_label, at_end = _held(subject, label), _held(subject, int(gotos[0]))
    lifetimes = subject.analysis.lifetimes
    renewed = {
        matrix
        for matrix in at_end - at_label
        if lifetimes.is_output[matrix] or lifetimes.is_input[matrix]
    }
    if at_end - renewed != at_label:
        lost, extra = sorted(at_label - at_end), sorted(at_end - renewed - at_label)
        text = " and ".join(
            part
            for part in (
                f"m{lost[0]} is allocated at the label, but not at the end" if lost else "",
                f"m{extra[0]} is allocated at the end, but not at the label" if extra else "",
            )
            if part
        )
        subject.fail(f"GotoLabel: {text}", int(gotos[0]))


def _held(subject: Subject, until: int) -> set[int]:
    """Returns the matrices that are allocated before a command."""
    held: set[int] = set()
    submatrices = subject.computation.submatrices[:, MATRIX].tolist()
    for row in subject.table[:until].tolist():
        opcode, first, second = row[0], row[2], row[3]
        if opcode in _TAKING:
            held.add(submatrices[first])
        elif opcode == DeallocMatrix.OPCODE:
            held.discard(submatrices[first])
        elif opcode == SwapMatrix.OPCODE:
            held.discard(submatrices[second])
            held.add(submatrices[first])
    return held
