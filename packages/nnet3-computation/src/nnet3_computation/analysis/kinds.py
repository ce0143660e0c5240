"""Kinds of commands: sets of command classes that are looked up for many commands at once."""

from __future__ import annotations

from typing import Self

import attrs
import numpy as np

from nnet3_computation.arrays.csr import Bools, Ids, where
from nnet3_computation.commands import OPCODE_COLUMN, SCHEMA, Command, OperandKind
from nnet3_computation.commands.declaration import Table


def columns_of_kind(kind: OperandKind) -> Ids:
    """Returns by opcode the column of the operand of a kind, (opcodes,); 0 if there is none.

    No command has two operands of such a kind: a memo, or any one kind of lists.
    """
    is_kind = SCHEMA.kind == kind
    return np.where(is_kind.any(axis=1), is_kind.argmax(axis=1), 0)


MEMO_COLUMN = columns_of_kind(OperandKind.MEMO)
"""For each kind of command the column of its memo; 0 if it has none."""


def memos(table: Table) -> Ids:
    """Returns the memo that each command makes or uses, (C,); 0 for none."""
    column = MEMO_COLUMN.take(table[:, OPCODE_COLUMN])
    named = np.zeros(len(table), dtype=np.int64)
    may_name = where(column > 0)
    named[may_name] = table[may_name, column[may_name]]
    return named


@attrs.frozen(eq=False)
class CommandKinds:
    """A set of command classes.

    Attributes:
        has: (opcodes,) bool, whether the class with an opcode belongs to it.
    """

    has: Bools

    @classmethod
    def of(cls, *types: type[Command]) -> Self:
        """Returns the set of these classes."""
        has = np.zeros(len(SCHEMA.types), dtype=np.bool_)
        has[[each.OPCODE for each in types]] = True
        return cls(has)

    def among(self, opcodes: Ids | Table) -> Bools:
        """Returns which of these opcodes, (N,), belong to the set."""
        return self.has.take(opcodes)

    def positions(self, opcodes: Ids | Table) -> Ids:
        """Returns where among these opcodes, (N,), there is one of the set, ascending."""
        return where(self.has.take(opcodes))
