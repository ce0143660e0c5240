"""Pass: commands on rows of several matrices become commands on rows of one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from nnet3_computation import commands as c

from nnet3_optimizer.draft import Draft, Edit
from nnet3_optimizer.passes.optimize_row_ops import commands_with_lists

WORTH_SPLITTING = 2
"""The most rows of a stretch for each row that a list names there, to split off the piece."""

_NOTHING = -1

_MULTI = (c.CopyRowsMulti, c.AddRowsMulti, c.CopyToRowsMulti, c.AddToRowsMulti)


def split_row_ops(draft: Draft) -> Draft:
    """Turns commands on rows of several matrices into one or two on rows of one matrix each.

    1. The list names one submatrix, or one submatrix and then another, and has no -1.
    2. The rows named in a submatrix are not fewer than one in two of the stretch they lie in.
    3. CopyToRowsMulti sets exactly the rows that it names, so it must name each row of the stretch.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 5 x 4
        j0 = m1[0:2], m2[3, 2]
        m1 = accept input
        m2 = accept ivector
        m3 = undefined
        m3 = rows(j0)
        provide output = m3
        segment end
        free m1
        free m2

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 5 x 4
        i0 = 1, 0
        j0 = m1[0:2], m2[3, 2]
        m1 = accept input
        m2 = accept ivector
        m3 = undefined
        m3(0:2, :) = m1(0:2, :)
        m3(3:4, :) = m2(2:3, :)[i0]
        provide output = m3
        segment end
        free m1
        free m2
    """
    edit: Edit | None = None
    for at, command, pairs in commands_with_lists(draft, _MULTI, _may_be_split):
        submatrix = pairs[:, 0]
        bounds = np.flatnonzero(submatrix[1:] != submatrix[:-1]) + 1
        if len(bounds) > 1 or (submatrix < 0).any():
            continue
        ranges = [*itertools.pairwise([0, *bounds.tolist(), len(pairs)])]
        if not all(_worth_splitting(command, pairs[begin:end, 1]) for begin, end in ranges):
            continue
        edit = edit or Edit(draft)
        pieces = [_piece(edit, command, pairs[begin:end], begin) for begin, end in ranges]
        edit.replace(at, pieces[0])
        if len(pieces) > 1:
            edit.insert(at + 1, np.array([pieces[1].row], np.int32))
    return edit.draft() if edit else draft


def _may_be_split(pairs: c.Table) -> bool:
    named = {int(pairs[at, 0]) for at in (0, len(pairs) // 2, -1)}
    return min(named) >= 0 and len(named) < 3


def _worth_splitting(command: c.Command, rows: c.Table) -> bool:
    stretch = int(rows.max()) - int(rows.min()) + 1
    if isinstance(command, c.CopyToRowsMulti):
        return stretch == len(rows)
    return stretch <= WORTH_SPLITTING * len(rows)


def _piece(edit: Edit, command: c.Command, pairs: c.Table, begin: int) -> c.Command:
    """Returns the command for a piece of a list that names one submatrix."""
    rows = pairs[:, 1]
    low = int(rows.min())
    stretch = int(rows.max()) - low + 1
    named = edit.rows_of(int(pairs[0, 0]), low, stretch)
    operands: dict[str, Any] = vars(command)
    gathers = "output" in operands
    own = edit.rows_of(operands["output" if gathers else "input"], begin, len(rows))
    sides = {"output": own, "input": named} if gathers else {"output": named, "input": own}
    copies = isinstance(command, c.CopyRowsMulti | c.CopyToRowsMulti)
    if stretch == len(rows) and bool((rows == np.arange(low, low + stretch)).all()):
        return (c.MatrixCopy if copies else c.MatrixAdd)(**sides, alpha=operands["alpha"])
    source = rows - low
    if not gathers:
        source = np.full(stretch, _NOTHING, dtype=np.int32)
        source[rows - low] = np.arange(len(rows))
    by_rows = c.CopyRows if copies else c.AddRows
    return by_rows(**sides, indexes=edit.indexes(source), alpha=operands["alpha"])
