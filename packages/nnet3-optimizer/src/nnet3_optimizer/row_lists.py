"""Commands with lists of rows: code that the passes on such lists share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nnet3_computation.commands import (
    OPCODE_COLUMN,
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    Command,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    Table,
    columns,
)

from nnet3_optimizer.draft import Draft

MULTI = (CopyRowsMulti, AddRowsMulti, CopyToRowsMulti, AddToRowsMulti)
"""Commands on rows of several matrices."""

WITH_LISTS = (AddRows, CopyRows, AddRowRanges, *MULTI)
"""Commands with a list of rows."""

_LIST_OPERANDS = {
    each.OPCODE: next(item for item in columns(each).items() if item[0].startswith("indexes"))
    for each in WITH_LISTS
}


def commands_with_lists(
    draft: Draft, types: tuple[type[Command], ...], may_change: Callable[[str, Table], bool]
) -> Iterator[tuple[int, Command, Table]]:
    """Yields position, command and list of the commands that may have to be changed.

    Args:
        draft: The draft.
        types: The types of commands to look at.
        may_change: A quick test for whether a list may have to change; it gets the list and the
            name of its operand.
    """
    lists = {
        "indexes": draft.indexes,
        "indexes_multi": draft.indexes_multi,
        "indexes_ranges": draft.indexes_ranges,
    }
    known: dict[tuple[str, int], bool] = {}
    by_opcode = {each.OPCODE: (each, *list_operand(each)) for each in types}
    positions = draft.positions(*by_opcode)
    rows = draft.table.take(positions, axis=0).tolist()
    for at, row in zip(positions.tolist(), rows, strict=True):
        command_type, name, column = by_opcode[row[OPCODE_COLUMN]]
        values = lists[name][row[column]]
        key = name, row[column]
        if key not in known:
            known[key] = may_change(name, values)
        if known[key]:
            yield at, command_type.from_row(row), values


def list_operand(command_type: type[Command]) -> tuple[str, int]:
    """Returns the name of the operand that is a list, and its column."""
    return _LIST_OPERANDS[command_type.OPCODE]


def may_leave_out(draft: Draft, at: int, command: Command) -> bool:
    """Whether the command does nothing for rows without an entry, so that they can be left out."""
    sets_to_zero = isinstance(command, CopyRows | CopyRowsMulti)
    return not sets_to_zero or bool(draft.analysis.writes_into_zeros[at])
