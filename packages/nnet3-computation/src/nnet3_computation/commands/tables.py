"""Commands as rows of the table: made in numbers, their operands by name, loops, compression."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nnet3_computation.arrays import Ids
from nnet3_computation.commands.classes import SCHEMA, GotoLabel, NoOperationMarker, SwapMatrix
from nnet3_computation.commands.declaration import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    TABLE_WIDTH,
    Command,
    Table,
)
from nnet3_computation.errors import CommandError

INT8, UINT8, INT16, UINT16, ONE_BIT = 1, 2, 3, 4, 5
"""Numbers of the types, as CompressMatrix has them."""

COMPRESSED_BITS: Final = {INT8: 8, UINT8: 8, INT16: 16, UINT16: 16, ONE_BIT: 1}
"""Bits that each type keeps of an element."""


def keeps_sign_only(compression_type: int, alpha: float) -> bool:
    """Returns whether the compressed matrix stores only which elements are positive."""
    return compression_type in (ONE_BIT, UINT8) and alpha == 0.0


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


def command_table(commands: Iterable[Command]) -> Table:
    """Returns commands as rows of a table, (commands, TABLE_WIDTH) int32."""
    rows = [item.row for item in commands]
    return np.array(rows, dtype=np.int32).reshape(len(rows), TABLE_WIDTH)


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


Operand = NDArray[np.int32] | NDArray[np.int64] | int


def command_rows(
    command_type: type[Command],
    count: int,
    alpha: NDArray[np.float32] | float | None = None,
    **operands: Operand,
) -> Table:
    """Returns rows of the command table, one command each.

    Args:
        command_type: The command.
        count: The number of commands.
        alpha: (count,) float32 or one value, for commands that have it.
        operands: (count,) values of each operand, or one value; those not given are 0.

    Raises:
        CommandError: The command has no such operand.
    """
    table = np.zeros((count, TABLE_WIDTH), np.int32)
    table[:, OPCODE_COLUMN] = command_type.OPCODE
    if alpha is not None:
        table[:, ALPHA_COLUMN] = np.asarray(alpha, np.float32).view(np.int32)
    places = columns(command_type)
    for name, values in operands.items():
        if name not in places:
            raise CommandError(
                f"{command_type.__name__} has no operand '{name}'; expected "
                f"{', '.join(places) or 'none'}"
            )
        table[:, places[name]] = values
    return table


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


def origins(swaps: Iterable[SwapMatrix]) -> dict[int, int]:
    """Returns the source of the contents of each destination, for consecutive SwapMatrix commands.

    A source has no contents afterwards.
    """
    origin: dict[int, int] = {}
    for swap in swaps:
        origin[swap.destination] = origin.pop(swap.source, swap.source)
    return origin


def is_in_segments(table: Table) -> bool:
    """Returns whether a computation consists of several segments, or loops over them."""
    markers = np.count_nonzero(table[:, OPCODE_COLUMN] == NoOperationMarker.OPCODE)
    return bool(markers > 1) or is_loop(table)
