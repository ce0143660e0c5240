"""Pass: the first addition to a matrix of zeros is a copy."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_compiler.commands import (
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    MatrixAdd,
    MatrixCopy,
)
from nnet3_compiler.declaration import OPCODE_COLUMN
from nnet3_optimizer.program import Program

_COPIES = {
    MatrixAdd.OPCODE: MatrixCopy.OPCODE,
    AddRows.OPCODE: CopyRows.OPCODE,
    AddRowsMulti.OPCODE: CopyRowsMulti.OPCODE,
    AddToRowsMulti.OPCODE: CopyToRowsMulti.OPCODE,
}


def convert_additions(program: Program) -> Program:
    """Turns additions into copies where they find only the zeros of the allocation.

    Legal if for each variable that the addition writes to

    1. the matrix is allocated with zeros, and
    2. the addition is the first access after that.

    CopyRows and CopyRowsMulti set rows without a source to zero, which they are already;
    CopyToRowsMulti leaves rows that it does not name as they are. Before::

        m1 = zeros
        m1 += 1.0 * m2

    After::

        m1 = zeros
        m1 = 1.0 * m2
    """
    adds = np.isin(program.opcodes, list(_COPIES))
    if not adds.any():
        return program
    adds &= program.analysis.writes_into_zeros
    convertible = np.flatnonzero(adds)
    if not len(convertible):
        return program
    copy_of = np.arange(max(_COPIES) + 1, dtype=np.int32)
    copy_of[list(_COPIES)] = list(_COPIES.values())
    table = program.table.copy()
    table[convertible, OPCODE_COLUMN] = copy_of[table[convertible, OPCODE_COLUMN]]
    return attrs.evolve(program, table=table)
