"""Memos that no command uses: code that the passes that leave them share."""

from __future__ import annotations

import numpy as np
from nnet3_computation.analysis import memos
from nnet3_computation.arrays import where
from nnet3_computation.commands import OPCODE_COLUMN, Propagate, Table, columns


def drop_unused_memos(table: Table) -> None:
    """Lets no Propagate make a memo that no other command uses; changes the table.

    Args:
        table: (C, TABLE_WIDTH) int32, the commands.
    """
    named = memos(table)
    makes = table[:, OPCODE_COLUMN] == Propagate.OPCODE
    used = named[~makes & (named != 0)]
    in_vain = where(makes & (named != 0) & ~np.isin(named, used, kind="sort"))
    table[in_vain, columns(Propagate)["memo"]] = 0
