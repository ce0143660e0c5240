"""Operands of commands by name, without making objects of them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3_computation.arrays.csr import Ids
from nnet3_computation.commands.classes import SCHEMA
from nnet3_computation.commands.declaration import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    Command,
    Table,
)

_COLUMNS = {
    each.OPCODE: {item.name: item.column for item in each.OPERANDS}
    for each in SCHEMA.types
    if each is not None
}

_VIEWS: dict[int, Any] = {
    each.OPCODE: namedtuple(each.__name__, [item.name for item in each.OPERANDS])
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


def operands_of(row: Sequence[int]) -> Any:
    """Returns the operands of a row of the table as attributes of their names.

    Unlike a `Command` it is not validated again.
    """
    view = _VIEWS[row[OPCODE_COLUMN]]
    end = FIRST_OPERAND_COLUMN + len(view._fields)
    return view._make(row[FIRST_OPERAND_COLUMN:end])
