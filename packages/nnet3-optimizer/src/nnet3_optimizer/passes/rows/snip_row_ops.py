"""Pass: lists of rows lose the entries at both ends for which nothing is done."""

from __future__ import annotations

import numpy as np
from nnet3_computation.arrays import Bools
from nnet3_computation.commands import AddToRowsMulti, CopyToRowsMulti, Table, columns

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.row_lists import WITH_LISTS, commands_with_lists, list_operand, may_leave_out

_FROM_ROWS = (CopyToRowsMulti, AddToRowsMulti)
"""Commands whose list gives the target of each row of the input."""


def snip_row_ops(draft: Draft) -> Draft:
    """Leaves out entries at the beginning and the end of a list for which nothing is done.

    1. Commands that add, and CopyToRowsMulti, do nothing for an entry -1 (or an empty range).
    2. CopyRows and CopyRowsMulti set rows to zero for -1. They are snipped if the rows are zero
       already: allocated with zeros, and not accessed before.
    3. A command that does nothing for any row is removed.

    Before::

        m1 = 4 x 4
        m2 = 5 x 4
        i0 = -1, -1, 3, 0, -1
        m1 = accept input
        m2 = zeros
        m2 += m1[i0]
        provide output = m2
        segment end
        free m1

    After::

        m1 = 4 x 4
        m2 = 5 x 4
        i0 = -1, -1, 3, 0, -1
        i1 = 3, 0
        m1 = accept input
        m2 = zeros
        m2(2:3, :) += m1[i1]
        provide output = m2
        segment end
        free m1
    """
    edit: Edit | None = None
    for at, command, values in commands_with_lists(draft, WITH_LISTS, _may_be_snipped):
        name, column = list_operand(type(command))
        used = np.flatnonzero(_is_used(name, values))
        if not may_leave_out(draft, at, command):
            continue
        edit = edit or Edit(draft)
        if not len(used):
            edit.delete(at)
            continue
        begin, end = int(used[0]), int(used[-1]) + 1
        target = columns(type(command))["input" if isinstance(command, _FROM_ROWS) else "output"]
        part = edit.rows_of(int(draft.table[at, target]), begin, end - begin)
        edit.table[at, target] = part
        edit.table[at, column] = _add_list(edit, name, values[begin:end])
    return edit.draft() if edit else draft


def _may_be_snipped(name: str, values: Table) -> bool:
    return not _is_used(name, values[:: max(1, len(values) - 1)]).all()  # the first and the last


def _is_used(name: str, values: Table) -> Bools:
    """Returns for which entries of a list, the operand of this name, something is done."""
    used: Bools
    match name:
        case "indexes":
            used = values >= 0
        case "indexes_ranges":
            used = values[:, 1] > values[:, 0]
        case _:
            used = values[:, 0] > 0
    return used


def _add_list(edit: Edit, name: str, values: Table) -> int:
    """Adds a list for the operand of this name; returns its number."""
    match name:
        case "indexes":
            return edit.indexes(values)
        case "indexes_ranges":
            return edit.indexes_ranges(values)
        case _:
            return edit.indexes_multi(values)
