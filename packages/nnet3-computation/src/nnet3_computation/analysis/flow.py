"""The flow of values from writing commands to reading commands."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from nnet3_computation.analysis.accesses import READ, WRITE, AccessLists
from nnet3_computation.analysis.kinds import memos
from nnet3_computation.arrays import Bools, Ids, where
from nnet3_computation.commands import OPCODE_COLUMN, Propagate, Table


class Flow(NamedTuple):
    """Pairs of commands: one reads the result of the other.

    Attributes:
        reader: (P,) int64, commands that read a variable, or use a memo.
        writer: (P,) int64, the command that wrote the variable last before, or made the memo.
    """

    reader: Ids
    writer: Ids

    @classmethod
    def of(cls, table: Table, lists: AccessLists) -> Self:
        """Finds the pairs, through variables and through memos.

        Args:
            table: (C, TABLE_WIDTH) int32, the commands.
            lists: The accesses to each variable.
        """
        writes = (lists.access & WRITE) != 0
        # The last write before each access; it is of another variable if there is none.
        last_write = np.maximum.accumulate(np.where(writes, np.arange(len(writes)), 0))
        last_write = np.concatenate([last_write[:1], last_write[:-1]])
        thing = lists.thing
        reads = (lists.access & READ) != 0
        reads &= (thing[last_write] == thing) & (last_write < np.arange(len(writes)))
        reads &= writes[last_write]
        memo_reader, memo_writer = _memo_edges(table)
        return cls(
            np.concatenate([lists.command[reads], memo_reader]),
            np.concatenate([lists.command[last_write[reads]], memo_writer]),
        )


def feeding(table: Table, lists: AccessLists) -> Bools:
    """Returns which commands, (C,) bool, write something that another one reads, or make a memo.

    A result is read if the next access to its elements does not set all of them.

    Args:
        table: (C, TABLE_WIDTH) int32, the commands.
        lists: The accesses to each variable.
    """
    is_read = ((lists.access[1:] & READ) != 0) & lists.follows[1:]
    is_read &= (lists.access[:-1] & WRITE) != 0
    feeds = np.zeros(len(table), dtype=np.bool_)
    feeds[lists.command[:-1][is_read]] = True
    feeds[_memo_edges(table)[1]] = True
    return feeds


def _memo_edges(table: Table) -> tuple[Ids, Ids]:
    named = memos(table)
    command = where(named != 0)
    # A file may have any numbers, so a table by number could need gigabytes.
    memo = np.unique(named[command], return_inverse=True)[1]
    makes = table[command, OPCODE_COLUMN] == Propagate.OPCODE
    maker = np.full(int(memo.max(initial=0)) + 1, -1)
    maker[memo[makes]] = command[makes]
    used = ~makes & (maker[memo] >= 0)
    return command[used], maker[memo[used]]
