"""Operands of many commands at once, by name."""

from __future__ import annotations

import numpy as np
from nnet3_compiler.commands import SCHEMA
from nnet3_compiler.declaration import Command

from nnet3_optimizer.analysis.csr import Ids
from nnet3_optimizer.analysis.variables import Table

_COLUMNS = {
    each.OPCODE: {item.name: item.column for item in each.OPERANDS}
    for each in SCHEMA.types
    if each is not None
}


def columns(command_type: type[Command]) -> dict[str, int]:
    """Returns the column of the table for each operand of a command class."""
    return _COLUMNS[command_type.OPCODE]


def operand(table: Table, at: Ids, command_type: type[Command], name: str) -> Ids:
    """Returns an operand of the commands at these positions, (len(at),) int64.

    All of them have the operand in the column in which `command_type` has it.
    """
    column = columns(command_type)[name]
    values: Ids = table[at, column].astype(np.int64)
    return values
