"""Pass: matrices that are written before they are read need not be set to zero."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_compiler.commands import AllocMatrixUndefined, AllocMatrixZeroed
from nnet3_compiler.declaration import FIRST_OPERAND_COLUMN, OPCODE_COLUMN
from nnet3_optimizer.analysis.accesses import WRITE
from nnet3_optimizer.analysis.csr import where
from nnet3_optimizer.program import Program


def remove_needless_zeroing(program: Program) -> Program:
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
    analysis = program.analysis
    at = program.positions(AllocMatrixZeroed.OPCODE)
    if not len(at):
        return program
    matrix = program.layout.matrix_of[program.table[at, FIRST_OPERAND_COLUMN]]
    first_access = np.append(analysis.variable_accesses.access, 0).take(analysis.first_use)
    variable = where(first_access != WRITE)
    owner = analysis.variables.matrix.take(variable)
    needs_zero = (first_access[variable] != 0) | analysis.lifetimes.is_output[owner]
    matrix_needs_zero = np.zeros(len(program.matrices), dtype=np.bool_)
    matrix_needs_zero[owner[needs_zero]] = True
    needless = at[~matrix_needs_zero[matrix]]
    if not len(needless):
        return program
    table = program.table.copy()
    table[needless, OPCODE_COLUMN] = AllocMatrixUndefined.OPCODE
    # Allocation is no use of a matrix.
    return attrs.evolve(program, table=table).knowing(matrix_use=analysis.matrix_use)
