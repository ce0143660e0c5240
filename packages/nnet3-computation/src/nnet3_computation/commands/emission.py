"""Commands in the making: rows of the command table, each with its place in the order."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_computation.arrays import IntArray, freeze
from nnet3_computation.commands.declaration import (
    ALPHA_COLUMN,
    OPCODE_COLUMN,
    TABLE_WIDTH,
    Command,
    Table,
)

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
    """
    table = np.zeros((count, TABLE_WIDTH), np.int32)
    table[:, OPCODE_COLUMN] = command_type.OPCODE
    if alpha is not None:
        table[:, ALPHA_COLUMN] = np.asarray(alpha, np.float32).view(np.int32)
    for declared in command_type.OPERANDS:
        if declared.name in operands:
            table[:, declared.column] = operands[declared.name]
    return table


@attrs.define(eq=False)
class Emission:
    """Commands with their places, and the lists of rows that they refer to.

    Attributes:
        tables: Pieces of the command table.
        places: For each piece the (count,) places; commands with equal places keep their order.
    """

    tables: list[Table] = attrs.Factory(list)
    places: list[NDArray[np.int64]] = attrs.Factory(list)

    def add(self, place: NDArray[np.int64] | NDArray[np.int32] | int, table: Table) -> None:
        """Adds commands; `place` is (count,) or one place for all."""
        if len(table):
            self.tables.append(table)
            self.places.append(np.broadcast_to(np.asarray(place, np.int64), len(table)))

    def ordered(self) -> tuple[Table, NDArray[np.int64]]:
        """Returns all commands in the order of their places, and the places."""
        if not self.tables:
            return np.zeros((0, TABLE_WIDTH), np.int32), np.zeros(0, np.int64)
        places = np.concatenate(self.places)
        order = np.argsort(places, kind="stable")
        return np.concatenate(self.tables)[order], places[order]


@attrs.define(eq=False)
class RowLists:
    """Lists of rows of one kind, numbered in the order in which they were added."""

    items: list[IntArray] = attrs.Factory(list)

    def add(self, rows: IntArray) -> int:
        """Adds a list, which no other object may hold; returns its number."""
        self.items.append(freeze(rows))
        return len(self.items) - 1


@attrs.define(eq=False)
class IndexLists:
    """The lists of rows that commands refer to by number; see the fields of `NnetComputation`."""

    indexes: RowLists = attrs.Factory(RowLists)
    multi: RowLists = attrs.Factory(RowLists)
    ranges: RowLists = attrs.Factory(RowLists)
