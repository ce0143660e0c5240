"""Memos that no command uses: code that the passes that leave them share."""

from __future__ import annotations

import numpy as np
from nnet3_compiler.accesses import memos
from nnet3_compiler.arrays import where
from nnet3_compiler.commands import OPCODE_COLUMN, Propagate, Table, columns


def drop_unused_memos(table: Table) -> None:
    """Lets no Propagate make a memo that no other command uses; changes the table.

    Args:
        table: (C, TABLE_WIDTH) int32, the commands.
    """
    named = memos(table)
    makes = table[:, OPCODE_COLUMN] == Propagate.OPCODE
    is_used = np.zeros(int(named.max(initial=0)) + 1, dtype=np.bool_)
    is_used[named[~makes]] = True
    in_vain = where(makes & ~is_used[named])
    table[in_vain, columns(Propagate)["memo"]] = 0
