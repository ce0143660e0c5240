"""Pass: copies and additions of consecutive rows need no list of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from nnet3_computation import commands as c

from nnet3_optimizer.draft import Draft, Edit


def optimize_row_ops(draft: Draft) -> Draft:
    """Turns CopyRows and AddRows of consecutive rows into MatrixCopy and MatrixAdd.

    1. The entries other than -1 follow one another, and count up by one.
    2. AddRows does nothing for an entry -1. CopyRows sets the row to zero: with such entries it is
       replaced only if the rows are zero already (allocated with zeros, and not accessed before).

    Before::

        m1 = 5 x 4
        m2 = 3 x 4
        i0 = 2:4
        m1 = accept input
        m2 = undefined
        m2 = m1[i0]
        provide output = m2
        segment end
        free m1

    After::

        m1 = 5 x 4
        m2 = 3 x 4
        i0 = 2:4
        m1 = accept input
        m2 = undefined
        m2 = m1(2:4, :)
        provide output = m2
        segment end
        free m1
    """
    edit: Edit | None = None
    for at, command, values in commands_with_lists(
        draft, (c.CopyRows, c.AddRows), _may_be_consecutive
    ):
        used = np.flatnonzero(values >= 0)
        if not len(used):
            continue
        begin, count, first = int(used[0]), len(used), int(values[used[0]])
        sets_zeros = count < len(values) and isinstance(command, c.CopyRows)
        if sets_zeros and not draft.analysis.writes_into_zeros[at]:
            continue
        if used[-1] - begin + 1 != count:
            continue
        if not (values[begin : begin + count] == np.arange(first, first + count)).all():
            continue
        edit = edit or Edit(draft)
        simpler = c.MatrixCopy if isinstance(command, c.CopyRows) else c.MatrixAdd
        edit.replace(
            at,
            simpler(
                output=edit.rows_of(command.output, begin, count),  # type: ignore[attr-defined]
                input=edit.rows_of(command.input, first, count),  # type: ignore[attr-defined]
                alpha=command.alpha,  # type: ignore[attr-defined]
            ),
        )
    return edit.draft() if edit else draft


def _may_be_consecutive(values: c.Table) -> bool:
    half = len(values) // 2
    first, middle, last = int(values[0]), int(values[half]), int(values[-1])
    return first < 0 or last < 0 or (last - first + 1 == len(values) and middle - first == half)


def commands_with_lists(
    draft: Draft, types: tuple[type[c.Command], ...], may_change: Callable[[c.Table], bool]
) -> Iterator[tuple[int, c.Command, c.Table]]:
    """Yields position, command and list of the commands that may have to be changed.

    Args:
        draft: The draft.
        types: The types of commands to look at; each has a list of rows, or of pairs of a submatrix
            and a row.
        may_change: A quick test for whether a list may have to change.
    """
    lists = {"indexes": draft.indexes, "indexes_multi": draft.indexes_multi}
    operands = {
        each.OPCODE: next((name, at) for name, at in c.columns(each).items() if name in lists)
        for each in types
    }
    by_opcode = {each.OPCODE: each for each in types}
    known: dict[tuple[str, int], bool] = {}
    positions = draft.positions(*by_opcode)
    rows = draft.table.take(positions, axis=0).tolist()
    for at, row in zip(positions.tolist(), rows, strict=True):
        name, column = operands[row[c.OPCODE_COLUMN]]
        values = lists[name][row[column]]
        key = name, row[column]
        if key not in known:
            known[key] = may_change(values)
        if known[key]:
            yield at, by_opcode[row[c.OPCODE_COLUMN]].from_row(row), values
