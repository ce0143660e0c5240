"""Pass: rows that are gathered twice in the same way are gathered once."""

from __future__ import annotations

import numpy as np
from nnet3_computation.analysis import LIST_COLUMN, MATRIX
from nnet3_computation.arrays import where
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    SCHEMA,
    CopyRows,
    CopyRowsMulti,
    Table,
    is_in_segments,
)

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.unused_matrices import SIZING

_OUTPUT, _SECOND, _THIRD = range(FIRST_OPERAND_COLUMN, FIRST_OPERAND_COLUMN + 3)


def share_equal_copies(draft: Draft) -> Draft:
    """Lets the readers of a second copy of the same rows read the first copy.

    If two branches of a network read one recurrent layer, each gathers its outputs of all times.

    1. Two CopyRows, or two CopyRowsMulti, set all of a matrix each, with the same scale, the same
       rows and the same sources. Nothing else writes to these matrices, so they stay equal; neither
       is an input or an output.
    2. Nothing writes to the sources between the two.
    3. The first matrix is freed after the last use of the second one.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        i0 = 2, 0, 1, 1
        m1 = accept input
        m2 = undefined
        m3 = undefined
        m2 = m1[i0]
        m3 = m1[i0]
        m4 = zeros
        m4 = affine.propagate(m2)
        m4 += m3
        provide output = m4
        segment end
        free m1
        free m2
        free m3

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        i0 = 2, 0, 1, 1
        m1 = accept input
        m2 = undefined
        m2 = m1[i0]
        m4 = zeros
        m4 = affine.propagate(m2)
        m4 += m2
        provide output = m4
        segment end
        free m1
        free m2
    """
    at = draft.positions(CopyRows.OPCODE, CopyRowsMulti.OPCODE)
    at = at[draft.layout.is_whole[draft.table[at, _OUTPUT]]]
    if len(at) < 2 or is_in_segments(draft.table):
        return draft
    firsts: dict[tuple[int, ...], list[tuple[int, Table]]] = {}
    edit: Edit | None = None
    for command in at.tolist():
        alike, rows = _what(draft, command)
        others = firsts.setdefault(alike, [])
        # Lists are long: they are compared only for copies that are otherwise alike.
        earlier = next((other for other, theirs in others if np.array_equal(theirs, rows)), None)
        if earlier is None:
            others.append((command, rows))
        elif _stay_equal(draft, earlier, command):
            edit = edit or Edit(draft)
            _share(draft, edit, earlier, command)
    return edit.draft() if edit else draft


def _what(draft: Draft, command: int) -> tuple[tuple[int, ...], Table]:
    """The kind, scale, source and list of rows of a copy."""
    row = draft.table[command].tolist()
    if row[OPCODE_COLUMN] == CopyRows.OPCODE:
        source = draft.submatrices[row[_SECOND]].tolist()
        return (*row[:_OUTPUT], *source), draft.indexes[row[_THIRD]]
    return tuple(row[:_OUTPUT]), draft.indexes_multi[row[_SECOND]]


def _stay_equal(draft: Draft, one: int, other: int) -> bool:
    """Checks the rules for two commands that copy the same."""
    uses, lifetimes = draft.analysis.uses, draft.analysis.lifetimes
    matrices = draft.submatrices[draft.table[[one, other], _OUTPUT], MATRIX].tolist()
    for matrix, command in zip(matrices, (one, other), strict=True):
        if uses.users_of(matrix, writing=True) != [command]:
            return False
        if lifetimes.is_input[matrix] or lifetimes.is_output[matrix]:
            return False
        if _is_in_lists(draft, matrix):
            return False
    if not uses.stay(uses.reads_of(np.array([one])), other):
        return False
    last = int(uses.command[uses.of_matrix(matrices[1])][-1])
    return int(lifetimes.deallocate[matrices[0]]) > last


def _is_in_lists(draft: Draft, matrix: int) -> bool:
    """Whether a list of (submatrix, row) pairs names a matrix."""
    uses = draft.analysis.uses
    commands = uses.command[uses.of_matrix(matrix)]
    commands = commands[LIST_COLUMN.take(draft.opcodes.take(commands)) > 0]
    named = draft.table[commands, _OUTPUT]
    return bool((draft.layout.matrix_of.take(named[named > 0]) != matrix).any())


def _share(draft: Draft, edit: Edit, one: int, other: int) -> None:
    """Removes a copy, and lets commands name the first copy instead."""
    kept, dropped = draft.submatrices[draft.table[[one, other], _OUTPUT], MATRIX].tolist()
    at = where(draft.submatrices[:, MATRIX] == dropped)
    places = draft.submatrices[at]
    places[:, MATRIX] = kept
    numbers = np.arange(len(draft.submatrices))
    numbers[at] = edit.submatrices(places)
    uses = draft.analysis.uses
    users = uses.command[uses.of_matrix(dropped)]
    before, rows = draft.table[users], edit.table[users]  # may already name another copy
    named = SCHEMA.is_matrix[before[:, OPCODE_COLUMN]] & np.isin(before, at)
    rows[named] = numbers[before[named]]
    edit.table[users] = rows
    edit.delete([other, *_sizing_of(draft, dropped)])


def _sizing_of(draft: Draft, matrix: int) -> list[int]:
    """The commands that allocate and free a matrix."""
    at = SIZING.positions(draft.opcodes)
    of_each = draft.submatrices[draft.table[at, _OUTPUT], MATRIX]
    sizing: list[int] = at[of_each == matrix].tolist()
    return sizing
