"""Passes on commands with lists of rows: smaller lists, simpler commands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from nnet3_compiler.commands import (
    OPCODE_COLUMN,
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    Command,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    MatrixAdd,
    MatrixCopy,
)
from nnet3_optimizer.analysis.csr import Bools
from nnet3_optimizer.analysis.variables import Table
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.operands import columns

_NOTHING = -1

WORTH_SPLITTING = 2
"""A piece of a list is split off if the rows it names are at least one in so many."""


def snip_row_operations(draft: Draft) -> Draft:
    """Leaves out rows at the beginning and the end of a list for which nothing is done.

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
    for at, command, values in _commands(draft, _SNIPPED, _may_be_snipped):
        used = np.flatnonzero(_is_used(_list_operand(type(command))[0], values))
        if not _may_leave_out(draft, at, command):
            continue
        edit = edit or Edit(draft)
        if not len(used):
            edit.delete(at)
            continue
        begin, end = int(used[0]), int(used[-1]) + 1
        target = "input" if isinstance(command, CopyToRowsMulti | AddToRowsMulti) else "output"
        part = edit.rows_of(getattr(command, target), begin, end - begin)
        _replace(edit, at, command, {target: part}, values[begin:end])
    return edit.draft() if edit else draft


def split_row_operations(draft: Draft) -> Draft:
    """Turns commands on rows of several matrices into one or two on rows of one matrix each.

    1. The list names one submatrix, or one submatrix and after that another, and has no -1.
    2. The rows named in a submatrix are not fewer than one in two of the stretch they lie in.
    3. CopyToRowsMulti sets exactly the rows that it names, so that stretch must be named in full.

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
    for at, command, pairs in _commands(draft, _MULTI, _may_be_split):
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


def simplify_row_operations(draft: Draft) -> Draft:
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
    for at, command, values in _commands(draft, (CopyRows, AddRows), _may_be_consecutive):
        used = np.flatnonzero(values >= 0)
        if not len(used):
            continue
        begin, count, first = int(used[0]), len(used), int(values[used[0]])
        if count < len(values) and not _may_leave_out(draft, at, command):
            continue
        if used[-1] - begin + 1 != count:
            continue
        if not (values[begin : begin + count] == np.arange(first, first + count)).all():
            continue
        edit = edit or Edit(draft)
        simpler = MatrixCopy if isinstance(command, CopyRows) else MatrixAdd
        edit.replace(
            at,
            simpler(
                output=edit.rows_of(command.output, begin, count),  # type: ignore[attr-defined]
                input=edit.rows_of(command.input, first, count),  # type: ignore[attr-defined]
                alpha=command.alpha,  # type: ignore[attr-defined]
            ),
        )
    return edit.draft() if edit else draft


_MULTI = (CopyRowsMulti, AddRowsMulti, CopyToRowsMulti, AddToRowsMulti)
_SNIPPED = (AddRows, CopyRows, AddRowRanges, *_MULTI)
_LIST_OPERANDS = {
    each.OPCODE: next(item for item in columns(each).items() if item[0].startswith("indexes"))
    for each in _SNIPPED
}


def _commands(
    draft: Draft, types: tuple[type[Command], ...], may_change: Callable[[str, Table], bool]
) -> Iterator[tuple[int, Command, Table]]:
    """Yields position, command and list of the commands that may have to be changed.

    Args:
        draft: The draft.
        types: The types of commands to look at.
        may_change: Whether there may be something to do for a list; a quick test. It is given the
            name of its operand, too.
    """
    known: dict[tuple[str, int], bool] = {}
    by_opcode = {each.OPCODE: (each, *_list_operand(each)) for each in types}
    positions = draft.positions(*by_opcode)
    rows = draft.table.take(positions, axis=0).tolist()
    for at, row in zip(positions.tolist(), rows, strict=True):
        command_type, name, column = by_opcode[row[OPCODE_COLUMN]]
        values = getattr(draft, name)[row[column]]
        key = name, row[column]
        if key not in known:
            known[key] = may_change(name, values)
        if known[key]:
            yield at, command_type.from_row(row), values


def _list_operand(command_type: type[Command]) -> tuple[str, int]:
    """Returns the operand that is a list, called what a draft calls such lists; its column."""
    return _LIST_OPERANDS[command_type.OPCODE]


def _may_be_snipped(name: str, values: Table) -> bool:
    return not _is_used(name, values[:: max(1, len(values) - 1)]).all()  # the first and the last


def _may_be_split(name: str, pairs: Table) -> bool:
    named = {int(pairs[at, 0]) for at in (0, len(pairs) // 2, -1)}
    return min(named) >= 0 and len(named) < 3


def _may_be_consecutive(name: str, values: Table) -> bool:
    if not len(values):
        return False
    half = len(values) // 2
    first, middle, last = int(values[0]), int(values[half]), int(values[-1])
    return first < 0 or last < 0 or (last - first + 1 == len(values) and middle - first == half)


def _may_leave_out(draft: Draft, at: int, command: Command) -> bool:
    """Whether rows for which the list names nothing can be left out."""
    sets_to_zero = isinstance(command, CopyRows | CopyRowsMulti)
    return not sets_to_zero or bool(draft.analysis.writes_into_zeros[at])


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


def _replace(edit: Edit, at: int, command: Command, changes: dict[str, int], values: Table) -> None:
    """Replaces a command by the same with other operands and another list."""
    name, _ = _list_operand(type(command))
    changes[name] = getattr(edit, name)(values)
    for operand, value in changes.items():
        edit.table[at, columns(type(command))[operand]] = value


def _worth_splitting(command: Command, rows: Table) -> bool:
    stretch = int(rows.max()) - int(rows.min()) + 1
    if isinstance(command, CopyToRowsMulti):
        return stretch == len(rows)
    return stretch <= WORTH_SPLITTING * len(rows)


def _piece(edit: Edit, command: Command, pairs: Table, begin: int) -> Command:
    """Returns the command for a piece of a list that names one submatrix."""
    rows = pairs[:, 1]
    low = int(rows.min())
    stretch = int(rows.max()) - low + 1
    named = edit.rows_of(int(pairs[0, 0]), low, stretch)
    alpha: float = command.alpha  # type: ignore[attr-defined]
    in_order = stretch == len(rows) and bool((rows == np.arange(low, low + stretch)).all())
    if isinstance(command, CopyRowsMulti | AddRowsMulti):
        own = edit.rows_of(command.output, begin, len(rows))
        copies = isinstance(command, CopyRowsMulti)
        if in_order:
            simple = MatrixCopy if copies else MatrixAdd
            return simple(output=own, input=named, alpha=alpha)
        by_rows = CopyRows if copies else AddRows
        return by_rows(output=own, input=named, indexes=edit.indexes(rows - low), alpha=alpha)
    own = edit.rows_of(command.input, begin, len(rows))  # type: ignore[attr-defined]
    copies = isinstance(command, CopyToRowsMulti)
    if in_order:
        simple = MatrixCopy if copies else MatrixAdd
        return simple(output=named, input=own, alpha=alpha)
    source = np.full(stretch, _NOTHING, dtype=np.int32)
    source[rows - low] = np.arange(len(rows))
    by_rows = CopyRows if copies else AddRows
    return by_rows(output=named, input=own, indexes=edit.indexes(source), alpha=alpha)
