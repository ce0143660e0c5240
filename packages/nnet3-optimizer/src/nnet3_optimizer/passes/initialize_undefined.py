"""Pass: matrices that are written before they are read are not set to zero first."""

from __future__ import annotations

import attrs
from nnet3_computation import commands as c

from nnet3_optimizer.draft import Draft


def initialize_undefined(draft: Draft) -> Draft:
    """Turns AllocMatrixZeroed into AllocMatrixUndefined where no zero is ever looked at.

    Legal if for each variable of the matrix either

    1. the first access after the allocation is a pure write, or
    2. there is no other access, and the matrix is not given to the user.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m1 = accept input
        m2 = zeros
        m2 = affine.propagate(m1)
        provide output = m2
        segment end
        free m1

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m1 = accept input
        m2 = undefined
        m2 = affine.propagate(m1)
        provide output = m2
        segment end
        free m1
    """
    at = draft.positions(c.AllocMatrixZeroed.OPCODE)
    if not len(at):
        return draft
    matrix = draft.layout.matrix_of[draft.table[at, c.FIRST_OPERAND_COLUMN]]
    needless = at[~draft.analysis.needs_zeros[matrix]]
    if not len(needless):
        return draft
    table = draft.table.copy()
    table[needless, c.OPCODE_COLUMN] = c.AllocMatrixUndefined.OPCODE
    return attrs.evolve(draft, table=table)
