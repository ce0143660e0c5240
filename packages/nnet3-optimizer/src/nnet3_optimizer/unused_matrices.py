"""Matrices that are only allocated and freed: code that the passes that leave them share."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation.analysis import CommandKinds
from nnet3_computation.arrays import Bools, where
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    DeallocMatrix,
    SwapMatrix,
)

from nnet3_optimizer.draft import Draft

SIZING = CommandKinds.of(AllocMatrixUndefined, AllocMatrixZeroed, DeallocMatrix, SwapMatrix)
"""Commands that give a matrix memory or take it away, and access no element."""


def sizing_without_use(draft: Draft, needed: Bools) -> Bools:
    """Returns which sizing commands, (C,) bool, are of matrices that no needed command accesses.

    Args:
        draft: The draft.
        needed: (C,) bool, the commands that are kept.
    """
    is_sizing = SIZING.among(draft.opcodes)
    accesses = draft.analysis.submatrix_accesses
    counts = (needed & ~is_sizing).take(accesses.command)
    matrix_of = draft.layout.matrix_of
    used = np.zeros(len(draft.matrices), dtype=np.bool_)
    used[matrix_of.take(accesses.submatrix[counts])] = True
    swaps = draft.positions(SwapMatrix.OPCODE)
    for column in (0, 1):
        used[matrix_of[draft.table[swaps, FIRST_OPERAND_COLUMN + column]]] = True
    sizing = where(is_sizing)
    matrix = matrix_of.take(draft.table[sizing, FIRST_OPERAND_COLUMN])
    without = np.zeros(len(draft.table), dtype=np.bool_)
    without[sizing] = ~used[matrix]
    return without


def without_unused_matrices(draft: Draft) -> Draft:
    """Returns the draft without the sizing commands of matrices that nothing accesses."""
    unused = sizing_without_use(draft, np.ones(len(draft.table), dtype=np.bool_))
    if not unused.any():
        return draft
    return attrs.evolve(draft, table=draft.table.compress(~unused, axis=0))
