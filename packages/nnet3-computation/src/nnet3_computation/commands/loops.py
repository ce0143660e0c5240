"""Loops: a computation that ends with GotoLabel runs again from a label, as often as you ask.

Just before the GotoLabel, SwapMatrix commands hand matrices over: the next round starts from the
last results of this one.
"""

from __future__ import annotations

import numpy as np

from nnet3_computation.commands.classes import GotoLabel, NoOperationMarker, SwapMatrix
from nnet3_computation.commands.declaration import OPCODE_COLUMN, Table


def is_loop(table: Table) -> bool:
    """Returns whether a table of commands ends with GotoLabel."""
    return len(table) > 0 and int(table[-1, OPCODE_COLUMN]) == GotoLabel.OPCODE


def hand_over_commands(table: Table) -> range:
    """Returns the positions of the SwapMatrix commands just before a GotoLabel at the end."""
    end = max(len(table) - 1, 0)
    if not is_loop(table):
        return range(end, end)
    begin = end
    while begin and int(table[begin - 1, OPCODE_COLUMN]) == SwapMatrix.OPCODE:
        begin -= 1
    return range(begin, end)


def is_in_segments(table: Table) -> bool:
    """Returns whether a computation consists of several segments, or loops over them."""
    markers = np.count_nonzero(table[:, OPCODE_COLUMN] == NoOperationMarker.OPCODE)
    return bool(markers > 1) or is_loop(table)
