"""Lists of rows in the backward part: each row of a derivative is added to one row.

In the forward part a list may name a row many times. The matching backward command then reads each
row of its input once, because each row of a sum has one source in each list.
"""

from __future__ import annotations

import numpy as np
from nnet3_computation.analysis import MATRIX
from nnet3_computation.arrays import Bools, Ids
from nnet3_computation.checks import Subject
from nnet3_computation.commands import (
    AcceptInput,
    AddRowRanges,
    AddRows,
    Backprop,
    BackpropNoModelUpdate,
    CopyRows,
    Table,
)


def check_backward_lists(subject: Subject) -> None:
    """Checks AddRows, CopyRows and AddRowRanges after the marker that read derivatives.

    Commands after the marker may also read values: to compute others again, or to gather them for
    model updates.

    1. `indexes` name no row twice.
    2. `indexes_ranges` share no rows; a missing range is (-1, -1).
    """
    if len(subject.segment_ends) != 1:
        return
    marker = int(subject.segment_ends[0])
    by_rows = _after(subject.positions(AddRows, CopyRows), marker)
    by_ranges = _after(subject.positions(AddRowRanges), marker)
    if not len(by_rows) and not len(by_ranges):
        return
    is_derivative = _derivatives(subject, marker)
    at = by_rows[is_derivative[_input_matrix(subject, by_rows)]]
    if len(at):
        _check_indexes(subject, at)
    at = by_ranges[is_derivative[_input_matrix(subject, by_ranges)]]
    if len(at):
        _check_ranges(subject, at)


def _after(at: Ids, marker: int) -> Ids:
    return at[np.searchsorted(at, marker) :]


def _input_matrix(subject: Subject, at: Ids) -> Table:
    matrix: Table = subject.computation.submatrices[subject.operand(at, AddRows, "input"), MATRIX]
    return matrix


def _derivatives(subject: Subject, marker: int) -> Bools:
    """Returns (M,) bool: which matrices hold derivatives, according to the commands."""
    accepted = _after(subject.positions(AcceptInput), marker)
    backward = subject.positions(Backprop, BackpropNoModelUpdate)
    named = np.concatenate(
        [
            subject.operand(accepted, AcceptInput, "matrix"),
            subject.operand(backward, Backprop, "output_deriv"),
            subject.operand(backward, Backprop, "input_deriv"),
        ]
    )
    is_derivative = np.zeros(len(subject.computation.matrices), dtype=np.bool_)
    is_derivative[subject.computation.submatrices[named, MATRIX]] = True
    return is_derivative


def _check_indexes(subject: Subject, at: Ids) -> None:
    numbers = subject.operand(at, AddRows, "indexes")
    given = subject.operand(at, AddRows, "input")
    for which, number in enumerate(numbers.tolist()):
        rows = subject.computation.indexes[number]
        counts = np.bincount(rows[rows >= 0])
        if counts.max(initial=0) > 1:
            subject.fail(
                f"{subject.name(int(at[which]))}: indexes name row {int(counts.argmax())} of "
                f"input = {subject.describe(int(given[which]))} twice, which is not expected in "
                "the backward part",
                int(at[which]),
            )


def _check_ranges(subject: Subject, at: Ids) -> None:
    numbers = subject.operand(at, AddRowRanges, "indexes_ranges")
    lists = [subject.computation.indexes_ranges[number] for number in numbers.tolist()]
    ranges = np.concatenate(lists).astype(np.int64)
    owner = np.repeat(np.arange(len(at)), [len(each) for each in lists])
    empty = ranges[:, 0] >= ranges[:, 1]
    odd = np.flatnonzero(empty & (ranges[:, 0] >= 0))
    if len(odd):
        begin, end = ranges[odd[0]].tolist()
        subject.fail(
            f"AddRowRanges: indexes_ranges have {begin}..{end}, expected rows or none",
            int(at[owner[odd[0]]]),
        )
    begin, end, owner = ranges[~empty, 0], ranges[~empty, 1], owner[~empty]
    order = np.lexsort((begin, owner))
    begin, end, owner = begin[order], end[order], owner[order]
    shared = np.flatnonzero((owner[1:] == owner[:-1]) & (begin[1:] < end[:-1]))
    if len(shared):
        first = int(shared[0])
        given = subject.operand(at, AddRowRanges, "input")[owner[first]]
        subject.fail(
            f"AddRowRanges: indexes_ranges name row {begin[first + 1]} of input = "
            f"{subject.describe(int(given))} twice, which is not expected in the backward part",
            int(at[owner[first]]),
        )
