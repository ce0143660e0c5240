"""Pass: the first addition to zeros is a copy."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation import analysis, arrays
from nnet3_computation import commands as c

from nnet3_optimizer.draft import Draft

_COPIES: dict[type[c.Command], type[c.Command]] = {
    c.MatrixAdd: c.MatrixCopy,
    c.AddRows: c.CopyRows,
    c.AddRowsMulti: c.CopyRowsMulti,
    c.AddToRowsMulti: c.CopyToRowsMulti,
}
_ADDITIONS = analysis.CommandKinds.of(*_COPIES)
_COPY_OF = np.arange(len(c.SCHEMA.types), dtype=np.int32)
for _addition, _copy in _COPIES.items():
    _COPY_OF[_addition.OPCODE] = _copy.OPCODE


def convert_addition(draft: Draft) -> Draft:
    """Turns additions into copies where they find only the zeros of the allocation.

    Legal if for each variable that the addition writes to

    1. the matrix is allocated with zeros, and
    2. the addition is the first access after that.

    CopyRows and CopyRowsMulti set rows without a source to zero, which they are already;
    CopyToRowsMulti leaves rows that it does not name as they are.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m1 = accept input
        m2 = zeros
        m2 += m1
        m2 += 0.5 * m1
        provide output = m2
        segment end
        free m1

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m1 = accept input
        m2 = zeros
        m2 = m1
        m2 += 0.5 * m1
        provide output = m2
        segment end
        free m1
    """
    adds = _ADDITIONS.among(draft.opcodes)
    if not adds.any():
        return draft
    adds &= draft.analysis.writes_into_zeros
    convertible = arrays.where(adds)
    if not len(convertible):
        return draft
    table = draft.table.copy()
    table[convertible, c.OPCODE_COLUMN] = _COPY_OF[table[convertible, c.OPCODE_COLUMN]]
    # A command that adds rows to other matrices may leave some of their rows unchanged.
    sets = adds & (draft.opcodes != c.AddToRowsMulti.OPCODE)
    after = attrs.evolve(draft, table=table)
    after.analysis.submatrix_accesses = draft.analysis.submatrix_accesses.setting(sets)
    after.analysis.take_over(draft.analysis, "lifetimes")
    return after
