"""Copies and sums fit: sizes, lists of rows, no row named twice, nothing overlaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3_computation.analysis.kinds import CommandKinds
from nnet3_computation.analysis.variables import ROW_OFFSET
from nnet3_computation.arrays.csr import Ids, where
from nnet3_computation.checks.components import same_place
from nnet3_computation.checks.subject import COLS, ROWS, Subject
from nnet3_computation.commands import (
    ALPHA_COLUMN,
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    MatrixAdd,
    MatrixCopy,
    SetConst,
    alpha_bits,
)
from nnet3_computation.commands.declaration import Table

_ONE = alpha_bits(1.0)
_SETTING = CommandKinds.of(SetConst)
_TO_ROWS = CommandKinds.of(CopyToRowsMulti, AddToRowsMulti)


def check_rows(subject: Subject) -> None:
    """Checks SetConst and all copies and sums of matrices and rows.

    1. Input and output have the same number of columns, and of rows where no list selects rows.
    2. A list has an entry for each row, and every row that it names exists.
    3. Input and output do not overlap; only MatrixCopy may have one matrix as both, to scale it by
       something other than 1.
    4. A list that names the rows to write to names no element twice.
    """
    for types, check in (
        ((MatrixCopy, MatrixAdd), _check_matrix_commands),
        ((CopyRows, AddRows), _check_lists_of_rows),
        ((AddRowRanges,), _check_ranges),
        (
            (CopyRowsMulti, AddRowsMulti, CopyToRowsMulti, AddToRowsMulti),
            _check_lists_of_submatrices,
        ),
    ):
        at = subject.positions(*types)
        if len(at):
            check(subject, at)


def _check_matrix_commands(subject: Subject, at: Ids) -> None:
    output = subject.operand(at, MatrixCopy, "output")
    given = subject.operand(at, MatrixCopy, "input")
    for axis, text in ((ROWS, "the rows of output"), (COLS, "the columns of output")):
        expected = subject.computation.submatrices[output, axis]
        subject.require_size(at, "input", given, axis, expected, text)
    scales_itself = same_place(subject, output, given)
    scales_itself &= subject.opcodes[at] == MatrixCopy.OPCODE
    scales_itself &= subject.table[at, ALPHA_COLUMN] != _ONE
    _require_apart(subject, at[~scales_itself], output[~scales_itself], given[~scales_itself])


def _require_apart(subject: Subject, at: Ids, output: Ids, given: Ids) -> None:
    subject.require(
        ~subject.analysis.layout.overlap(output, given),
        at,
        lambda i: (
            f"output = {subject.describe(int(output[i]))} overlaps "
            f"input = {subject.describe(int(given[i]))}"
        ),
    )


def _require_length(subject: Subject, at: Ids, name: str, lists: Sequence[Table]) -> None:
    """Checks that the list each command names has an entry for each row of its first operand."""
    first = subject.table[at, 2]
    rows = subject.rows(first)
    lengths = np.array([len(each) for each in lists], dtype=np.int64)
    subject.require(
        lengths == rows,
        at,
        lambda i: (
            f"{name} has {lengths[i]} entries, expected {rows[i]} "
            f"(the rows of {subject.describe(int(first[i]))})"
        ),
    )


def _check_lists_of_rows(subject: Subject, at: Ids) -> None:
    output = subject.operand(at, CopyRows, "output")
    given = subject.operand(at, CopyRows, "input")
    numbers = subject.operand(at, CopyRows, "indexes").tolist()
    lists = [subject.computation.indexes[number] for number in numbers]
    cols = subject.cols(output)
    subject.require_size(at, "input", given, COLS, cols, "the columns of output")
    _require_length(subject, at, "indexes", lists)
    largest = np.array([each.max(initial=-1) for each in lists], dtype=np.int64)
    subject.require(
        largest < subject.rows(given),
        at,
        lambda i: (
            f"indexes name row {largest[i]} of input = {subject.describe(int(given[i]))}, "
            f"which has {subject.rows(given[i])} rows"
        ),
    )
    _require_apart(subject, at, output, given)


def _check_ranges(subject: Subject, at: Ids) -> None:
    output = subject.operand(at, AddRowRanges, "output")
    given = subject.operand(at, AddRowRanges, "input")
    numbers = subject.operand(at, AddRowRanges, "indexes_ranges").tolist()
    lists = [subject.computation.indexes_ranges[number] for number in numbers]
    cols = subject.cols(output)
    subject.require_size(at, "input", given, COLS, cols, "the columns of output")
    _require_length(subject, at, "indexes_ranges", lists)
    largest = np.array([each.max(initial=-1) for each in lists], dtype=np.int64)
    subject.require(
        largest <= subject.rows(given),
        at,
        lambda i: (
            f"indexes_ranges end at row {largest[i]} of input = "
            f"{subject.describe(int(given[i]))}, which has {subject.rows(given[i])} rows"
        ),
    )
    _require_apart(subject, at, output, given)


def _check_lists_of_submatrices(subject: Subject, at: Ids) -> None:
    first = subject.operand(at, CopyRowsMulti, "output")
    numbers = subject.operand(at, CopyRowsMulti, "indexes_multi")
    lists = [subject.computation.indexes_multi[number] for number in numbers.tolist()]
    _require_length(subject, at, "indexes_multi", lists)
    splits, submatrix = subject.analysis.pair_lists.of(numbers)
    counts = splits[1:] - splits[:-1]
    owner, firsts = np.repeat(at, counts), np.repeat(first, counts)
    cols = subject.cols(firsts)
    subject.require_size(
        owner, "a submatrix in indexes_multi", submatrix, COLS, cols, "the columns of the other"
    )
    _require_apart(subject, owner, firsts, submatrix)
    for which in _TO_ROWS.positions(subject.opcodes[at]).tolist():
        _require_distinct_targets(subject, int(at[which]), lists[which])


def _require_distinct_targets(subject: Subject, command: int, pairs: Table) -> None:
    """Checks that no two entries share elements, even through different submatrices."""
    submatrix, row = pairs.T
    given = where(submatrix > 0)
    submatrix = submatrix[given]
    row = row[given] + subject.computation.submatrices[:, ROW_OFFSET].take(submatrix)
    # Most lists name no row of a matrix twice; then the columns do not matter.
    rows = (subject.analysis.layout.matrix_of.take(submatrix) << 32) | row
    rows.sort()
    if (rows[1:] != rows[:-1]).all():
        return
    places = subject.computation.submatrices.take(submatrix, axis=0)
    order = np.lexsort((places[:, 3], row, places[:, 0]))
    matrix, row, col = places[order, 0], row[order], places[order, 3]
    col_end = col + places[order, 4]
    clash = (matrix[1:] == matrix[:-1]) & (row[1:] == row[:-1]) & (col[1:] < col_end[:-1])
    if clash.any():
        bad = int(np.flatnonzero(clash)[0])
        one, other = sorted(given[order[bad : bad + 2]].tolist())
        subject.fail(
            f"{subject.name(command)}: entries {one} and {other} of indexes_multi, "
            f"{pairs[one].tolist()} and {pairs[other].tolist()}, name the same elements of "
            f"m{matrix[bad]}",
            command,
        )
