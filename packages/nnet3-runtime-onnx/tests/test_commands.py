"""Each command gives the result of its definition in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from exported_programs import INPUT, OUTPUT, run
from nnet3_computation import (
    AcceptInput,
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    Command,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    DeallocMatrix,
    GotoLabel,
    MatrixAdd,
    MatrixCopy,
    NoOperationLabel,
    NoOperationMarker,
    ProvideOutput,
    SetConst,
    SwapMatrix,
)
from nnet3_runtime_onnx import OnnxComputer
from small_networks import computation, identity

GIVEN = np.arange(24, dtype=np.float32).reshape(6, 4) + 1
ONES = [AllocMatrixUndefined(matrix=2), SetConst(output=2, alpha=1.0)]


def assert_equal(found: np.ndarray, expected: np.ndarray) -> None:
    """Compares small numbers, which are exact."""
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_copy() -> None:
    """A copy is alpha times the source."""
    copy = MatrixCopy(output=2, input=1, alpha=-2.0)

    assert_equal(run(GIVEN, [GIVEN.shape], [AllocMatrixUndefined(matrix=2), copy]), -2 * GIVEN)


def test_add() -> None:
    """A sum adds alpha times the source."""
    add = MatrixAdd(output=2, input=1, alpha=0.5)

    assert_equal(run(GIVEN, [GIVEN.shape], [*ONES, add]), 1 + 0.5 * GIVEN)


def test_add_to_zeros() -> None:
    """Adding to zeros takes no addition."""
    commands = [AllocMatrixZeroed(matrix=2), MatrixAdd(output=2, input=1, alpha=0.5)]

    assert_equal(run(GIVEN, [GIVEN.shape], commands), 0.5 * GIVEN)


def test_parts_of_matrices() -> None:
    """Parts of one matrix are copied to parts of another; the other elements stay."""
    parts = [(1, 1, 3, 0, 2), (2, 2, 3, 1, 2)]
    expected = np.ones((6, 4))
    expected[2:5, 1:3] = GIVEN[1:4, 0:2]

    found = run(GIVEN, [(6, 4)], [*ONES, MatrixCopy(output=4, input=3)], parts=parts)

    assert_equal(found, expected)


@pytest.mark.parametrize(
    "rows",
    [[0, 1, 2, 3, 4, 5], [1, 3, 5], [5, 4, 3], [2, 2, 2], [0, -1, 1], [-1, -1], [4, 0, 1, 4]],
    ids=str,
)
def test_copy_rows(rows: list[int]) -> None:
    """Rows are copied by number; -1 gives zeros."""
    numbers = np.array(rows)
    expected = 2 * GIVEN[numbers] * (numbers >= 0)[:, None]
    commands = [
        AllocMatrixUndefined(matrix=2),
        CopyRows(output=2, input=1, indexes=0, alpha=2.0),
    ]

    assert_equal(run(GIVEN, [(len(rows), 4)], commands, indexes=[rows]), expected)


def test_add_rows() -> None:
    """Rows are added by number; -1 adds nothing."""
    commands = [*ONES, AddRows(output=2, input=1, indexes=0, alpha=2.0)]
    expected = 1 + 2 * np.stack([GIVEN[3], 0 * GIVEN[0], GIVEN[3]])

    assert_equal(run(GIVEN, [(3, 4)], commands, indexes=[[3, -1, 3]]), expected)


PLACES = [(4, 1), (5, 0), (-1, -1), (4, 0), (5, 2), (5, 1)]
PARTS = [(1, 0, 3, 0, 2), (1, 2, 3, 2, 2)]


def rows_of_parts() -> np.ndarray:
    """The rows of PARTS in the order of PLACES."""
    first, second, none = GIVEN[0:3, 0:2], GIVEN[2:5, 2:4], np.zeros(2)
    return np.stack([first[1], second[0], none, first[0], second[2], second[1]])


@pytest.mark.parametrize("command", [CopyRowsMulti, AddRowsMulti])
def test_rows_of_several(command: type[CopyRowsMulti] | type[AddRowsMulti]) -> None:
    """Rows of several submatrices are copied or added."""
    parts = [(2, 0, 6, 0, 2), *PARTS]
    commands = [*ONES, command(output=3, indexes_multi=0, alpha=3.0)]
    expected = np.ones((6, 4))
    before = 1 if command is AddRowsMulti else 0
    expected[:, :2] = before + 3 * rows_of_parts()

    found = run(GIVEN, [(6, 4)], commands, parts=parts, indexes_multi=[PLACES])

    assert_equal(found, expected)


@pytest.mark.parametrize("command", [CopyToRowsMulti, AddToRowsMulti])
def test_to_rows_of_several(command: type[CopyToRowsMulti] | type[AddToRowsMulti]) -> None:
    """Rows of several submatrices are set, or added to; others stay."""
    places = [(4, 1), (-1, -1), (3, 0), (3, 2), (-1, -1), (-1, -1)]
    parts = [(2, 0, 3, 0, 4), (2, 3, 3, 0, 4)]
    expected = np.ones((6, 4))
    before = 1 if command is AddToRowsMulti else 0
    for row, target in ((0, 4), (2, 0), (3, 2)):
        expected[target] = before + 2 * GIVEN[row]
    commands = [*ONES, command(input=1, indexes_multi=0, alpha=2.0)]

    found = run(GIVEN, [(6, 4)], commands, parts=parts, indexes_multi=[places])

    assert_equal(found, expected)


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 2), (2, 4), (4, 6)],
        [(0, 1), (3, 4), (-1, -1)],
        [(0, 6), (0, 6), (1, 3), (-1, -1)],
        [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6)],
        [(1, 2), (2, 3), (0, 6), (2, 6), (2, 4), (3, 6)],
        [(0, 1), (1, 2), (2, 3), (3, 4), (4, 6)],
    ],
    ids=str,
)
def test_sums_of_ranges(ranges: list[tuple[int, int]]) -> None:
    """Ranges of rows are summed, by each of the methods."""
    commands = [*ONES, AddRowRanges(output=2, input=1, indexes_ranges=0, alpha=2.0)]
    sums = [GIVEN[max(begin, 0) : max(end, 0)].sum(axis=0) for begin, end in ranges]

    found = run(GIVEN, [(len(ranges), 4)], commands, indexes_ranges=[ranges])

    assert_equal(found, 1 + 2 * np.stack(sums))


def test_swap() -> None:
    """A matrix is handed over."""
    commands: list[Command] = [
        *ONES,
        SwapMatrix(destination=4, source=2),
        AllocMatrixUndefined(matrix=3),
        MatrixCopy(output=3, input=1),
        MatrixAdd(output=4, input=3),
        DeallocMatrix(matrix=3),
    ]

    assert_equal(run(GIVEN, [(6, 4)] * 3, commands), 1 + GIVEN)


def test_a_round_frees_what_the_start_kept() -> None:
    """A matrix that exists before a round, which accepts it again and frees it, is no state."""
    rounds = [
        AcceptInput(matrix=1, node=INPUT),
        MatrixCopy(output=2, input=1),
        ProvideOutput(matrix=2, node=OUTPUT),
        NoOperationMarker(),
    ]
    program = [
        AllocMatrixUndefined(matrix=2),
        *rounds,
        NoOperationLabel(),
        *rounds[:2],
        DeallocMatrix(matrix=1),
        *rounds[2:],
        GotoLabel(label=5),
    ]
    computer = OnnxComputer(identity(2), computation([(3, 2)] * 2, program))

    for number in range(3):
        rows = GIVEN[:3, :2] + number
        np.testing.assert_array_equal(computer.forward({"input": rows})["output"], rows)


def test_a_second_segment_copies_rows_that_nothing_reads() -> None:
    """A matrix of the first segment without used rows is not state, but exists."""
    program = [
        AcceptInput(matrix=1, node=INPUT),
        AllocMatrixZeroed(matrix=2),
        MatrixCopy(output=2, input=1),
        ProvideOutput(matrix=2, node=OUTPUT),
        NoOperationMarker(),
        AcceptInput(matrix=3, node=INPUT),
        AllocMatrixZeroed(matrix=4),
        MatrixCopy(output=4, input=2),
        MatrixCopy(output=4, input=3),
        ProvideOutput(matrix=4, node=OUTPUT),
        NoOperationMarker(),
    ]
    computer = OnnxComputer(identity(2), computation([(3, 2)] * 4, program))

    for number in range(2):
        rows = GIVEN[:3, :2] + number
        np.testing.assert_array_equal(computer.forward({"input": rows})["output"], rows)
