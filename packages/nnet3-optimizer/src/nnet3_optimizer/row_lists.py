"""Commands with lists of rows: code that the passes on such lists share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nnet3_computation.commands import OPCODE_COLUMN, Command, Table, columns

from nnet3_optimizer.draft import Draft


def commands_with_lists(
    draft: Draft, types: tuple[type[Command], ...], may_change: Callable[[Table], bool]
) -> Iterator[tuple[int, Command, Table]]:
    """Yields position, command and list of the commands that may have to be changed.

    Args:
        draft: The draft.
        types: The types of commands to look at; each has a list of rows, or of pairs of a submatrix
            and a row.
        may_change: A quick test for whether a list may have to change.
    """
    lists = {"indexes": draft.indexes, "indexes_multi": draft.indexes_multi}
    operands = {
        each.OPCODE: next((name, at) for name, at in columns(each).items() if name in lists)
        for each in types
    }
    by_opcode = {each.OPCODE: each for each in types}
    known: dict[tuple[str, int], bool] = {}
    positions = draft.positions(*by_opcode)
    rows = draft.table.take(positions, axis=0).tolist()
    for at, row in zip(positions.tolist(), rows, strict=True):
        name, column = operands[row[OPCODE_COLUMN]]
        values = lists[name][row[column]]
        key = name, row[column]
        if key not in known:
            known[key] = may_change(values)
        if known[key]:
            yield at, by_opcode[row[OPCODE_COLUMN]].from_row(row), values
