"""Pass: matrices are allocated as late, and freed as early, as possible."""

from __future__ import annotations

import numpy as np
from nnet3_computation import commands as c

from nnet3_optimizer.draft import Draft


def move_sizing_commands(draft: Draft) -> Draft:
    """Moves allocation to just before the first use, and deallocation to just after the last use.

    1. Only AllocMatrixUndefined, AllocMatrixZeroed and DeallocMatrix move, and none of them past an
       access to its matrix. Nothing else of the matrix changes between the two places.
    2. Where one matrix is freed after a command and another allocated before the next one, freeing
       comes first.
    3. Loops stay as they are: an allocation outside the loop serves all its rounds.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = undefined
        m3 = undefined
        m2 = affine.propagate(m1)
        m3 = affine2.propagate(m2)
        provide output = m3
        segment end
        free m1
        free m2

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = undefined
        m2 = affine.propagate(m1)
        free m1
        m3 = undefined
        m3 = affine2.propagate(m2)
        free m2
        provide output = m3
        segment end
    """
    if c.is_loop(draft.table):
        return draft
    first, last = draft.analysis.matrix_use
    place = 3 * np.arange(len(draft.table), dtype=np.int64)
    for opcodes, use, shift in (
        ((c.AllocMatrixUndefined.OPCODE, c.AllocMatrixZeroed.OPCODE), first, -1),
        ((c.DeallocMatrix.OPCODE,), last, 1),
    ):
        at = draft.positions(*opcodes)
        matrix = draft.layout.matrix_of.take(draft.table[at, c.FIRST_OPERAND_COLUMN])
        used = use[matrix] >= 0
        place[at[used]] = 3 * use[matrix[used]] + shift
    order = np.argsort(place, kind="stable")
    moved = draft.in_order(order)
    new = np.empty(len(order) + 1, dtype=np.int64)
    new[order] = np.arange(len(order))
    new[-1] = -1  # for matrices without a use
    moved.analysis.matrix_use = new.take(first), new.take(last)
    return moved
