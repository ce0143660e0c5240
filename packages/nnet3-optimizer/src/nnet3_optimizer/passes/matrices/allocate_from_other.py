"""Pass: memory that is freed goes to the next matrix of the same size."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from nnet3_computation.analysis import MATRIX
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    DeallocMatrix,
    SetConst,
    SwapMatrix,
    is_in_segments,
)

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit


def allocate_from_other(draft: Draft) -> Draft:
    """Replaces freeing one matrix and allocating another of the same size by SwapMatrix.

    1. The two matrices have the same number of rows and of columns.
    2. The allocation comes after the deallocation. The nearest one is taken, so that memory is not
       held for longer than needed.
    3. The new matrix has undefined elements: SetConst follows if it was allocated with zeros that
       something may look at.
    4. Loops, and computations in several segments that are to become loops, stay as they are.

    Before::

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

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = undefined
        m2 = affine.propagate(m1)
        m3 = take m1
        m3 = affine2.propagate(m2)
        free m2
        provide output = m3
        segment end
    """
    if is_in_segments(draft.table):
        return draft
    whole = draft.table[:, FIRST_OPERAND_COLUMN]
    frees: dict[tuple[int, int], list[int]] = {}
    takes: dict[tuple[int, int], list[int]] = {}
    for lists, opcodes in (
        (frees, (DeallocMatrix.OPCODE,)),
        (takes, (AllocMatrixUndefined.OPCODE, AllocMatrixZeroed.OPCODE)),
    ):
        for at in draft.positions(*opcodes).tolist():
            matrix = draft.submatrices[whole[at], MATRIX]
            rows, cols = draft.matrices[matrix].tolist()
            lists.setdefault((rows, cols), []).append(at)
    pairs = [pair for size, freed in frees.items() for pair in _nearest(freed, takes.get(size, []))]
    if not pairs:
        return draft
    edit = Edit(draft)
    needs_zeros = draft.analysis.needs_zeros
    for free, take in pairs:
        destination, source = int(whole[take]), int(whole[free])
        is_zeroed = draft.opcodes[take] == AllocMatrixZeroed.OPCODE
        if is_zeroed and needs_zeros[draft.submatrices[destination, MATRIX]]:
            zero = SetConst(output=destination, alpha=0.0)
            edit.insert(take + 1, np.array([zero.row], np.int32))
        edit.replace(take, SwapMatrix(destination=destination, source=source))
        edit.delete(free)
    return edit.draft()


def _nearest(frees: list[int], takes: list[int]) -> list[tuple[int, int]]:
    """Pairs each deallocation, the last one first, with the next allocation that is still free."""
    pairs = []
    left = list(takes)
    for free in reversed(frees):
        place = bisect_right(left, free)
        if place < len(left):
            pairs.append((free, left.pop(place)))
    return pairs
