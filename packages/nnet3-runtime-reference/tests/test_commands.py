"""Each command gives the result of its definition, on matrices computed by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from nnet3_computation import commands as c
from nnet3_runtime_reference import ReferenceComputer
from small_networks import identity, program_of

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
NAN = np.nan


def run(
    given: np.ndarray,
    matrices: Sequence[tuple[int, int]],
    commands: Sequence[c.Command],
    **more: Any,
) -> np.ndarray:
    """The output of commands; see `program_of`."""
    program = program_of(given, matrices, commands, **more)
    return ReferenceComputer(identity(given.shape[1]), program).forward({"input": given})["output"]


def check(found: np.ndarray, expected: object) -> None:
    """Asserts equality, NaN where NaN is expected."""
    np.testing.assert_array_equal(found, np.array(expected, dtype=np.float64))


def test_allocated_elements() -> None:
    """Undefined matrices are NaN, zeroed ones 0; a constant can be set in a part."""
    half = [(2, 0, 1, 0, 2)]
    constant = c.SetConst(output=3, alpha=2.5)

    undefined = run(X, [(2, 2)], [c.AllocMatrixUndefined(matrix=2), constant], parts=half)
    zeroed = run(X, [(2, 2)], [c.AllocMatrixZeroed(matrix=2), constant], parts=half)

    check(undefined, [[2.5, 2.5], [NAN, NAN]])
    check(zeroed, [[2.5, 2.5], [0.0, 0.0]])


def test_matrix_that_is_allocated_again() -> None:
    """A matrix that is allocated again loses its contents."""
    again = [c.DeallocMatrix(matrix=2), c.AllocMatrixUndefined(matrix=2)]
    found = run(X, [(1, 2)], [c.AllocMatrixZeroed(matrix=2), *again])

    check(found, [[NAN, NAN]])


def test_matrix_copy_and_add() -> None:
    """Copies and sums scale by alpha; a copy is not a view of its source."""
    copy, change = c.MatrixCopy(output=2, input=1, alpha=2.0), c.SetConst(output=1, alpha=9.0)
    add = c.MatrixAdd(output=2, input=1, alpha=-1.0)
    alloc = c.AllocMatrixUndefined(matrix=2)

    check(run(X, [(3, 2)], [alloc, copy, change]), 2 * X)
    check(run(X, [(3, 2)], [alloc, copy, add]), X)
    check(run(X, [(3, 2)], [alloc, add]), np.full((3, 2), NAN))


def test_copy_of_overlapping_parts() -> None:
    """The whole source is read before anything is written."""
    shift = c.MatrixCopy(output=4, input=3)
    found = run(
        X,
        [(3, 2)],
        [c.AllocMatrixUndefined(matrix=2), c.MatrixCopy(output=2, input=1), shift],
        parts=[(2, 0, 2, 0, 2), (2, 1, 2, 0, 2)],
    )

    check(found, [[1, 2], [1, 2], [3, 4]])


def test_copy_rows_and_add_rows() -> None:
    """Rows are found by number; for -1, a copy sets zero and a sum adds nothing."""
    rows = {"indexes": [[2, -1, 2, 0]]}
    copy, add = (kind(output=2, input=1, indexes=0, alpha=2.0) for kind in (c.CopyRows, c.AddRows))

    copied = run(X, [(4, 2)], [c.AllocMatrixUndefined(matrix=2), copy], **rows)
    added = run(X, [(4, 2)], [c.AllocMatrixZeroed(matrix=2), copy, add], **rows)

    check(copied, [[10, 12], [0, 0], [10, 12], [2, 4]])
    check(added, 2 * copied)


def test_rows_of_several_matrices() -> None:
    """Pairs have a submatrix and a row."""
    # Submatrix 2 is the result; 3 and 4 are columns of the input.
    lists = {"indexes_multi": [[(4, 0), (-1, -1), (3, 2), (4, 1)]]}
    columns = [(1, 0, 3, 0, 1), (1, 1, 2, 1, 1)]
    copy = c.CopyRowsMulti(output=2, indexes_multi=0, alpha=3.0)
    add = c.AddRowsMulti(output=2, indexes_multi=0)

    copied = run(X, [(4, 1)], [c.AllocMatrixUndefined(matrix=2), copy], parts=columns, **lists)
    added = run(X, [(4, 1)], [c.AllocMatrixZeroed(matrix=2), copy, add], parts=columns, **lists)

    check(copied, [[12], [0], [15], [18]])
    check(added, [[16], [0], [20], [24]])


def test_to_rows_of_several_matrices() -> None:
    """Rows that no pair names are unchanged."""
    lists = {"indexes_multi": [[(3, 1), (-1, -1), (4, 0)]]}
    rows = [(2, 0, 2, 0, 2), (2, 2, 2, 0, 2)]
    copy = c.CopyToRowsMulti(input=1, indexes_multi=0, alpha=2.0)
    add = c.AddToRowsMulti(input=1, indexes_multi=0, alpha=-1.0)
    start = [c.AllocMatrixZeroed(matrix=2), c.SetConst(output=2, alpha=1.0)]

    copied = run(X, [(4, 2)], [*start, copy], parts=rows, **lists)
    added = run(X, [(4, 2)], [*start, add], parts=rows, **lists)

    check(copied, [[1, 1], [2, 4], [10, 12], [1, 1]])
    check(added, [[1, 1], [0, -1], [-4, -5], [1, 1]])


def test_add_row_ranges() -> None:
    """Sums of rows from begin to before end are added; (-1, -1) and empty ranges add nothing."""
    lists = {"indexes_ranges": [[(0, 2), (-1, -1), (1, 3), (2, 2)]]}
    add = c.AddRowRanges(output=2, input=1, indexes_ranges=0, alpha=0.5)
    start = [c.AllocMatrixZeroed(matrix=2), c.SetConst(output=2, alpha=1.0)]

    check(run(X, [(4, 2)], [*start, add], **lists), [[3, 4], [1, 1], [5, 6], [1, 1]])


def test_no_operation() -> None:
    """NoOperation has no effect."""
    check(run(X, [(3, 2)], [c.NoOperation(), c.SwapMatrix(destination=2, source=1)]), X)


def round_trip(x: object, kind: int, limit: float, *, truncate: bool) -> np.ndarray:
    """Values after compression and decompression."""
    compress = c.CompressMatrix(
        matrix=1, compression_type=kind, truncate=int(truncate), alpha=limit
    )
    back = [c.DecompressMatrix(matrix=1), c.SwapMatrix(destination=2, source=1)]
    array = np.atleast_2d(np.array(x, dtype=np.float64))
    return run(array, [array.shape], [compress, *back])[0]


@pytest.mark.parametrize(
    ("kind", "smallest", "largest"),
    [(1, -128, 127), (2, 0, 255), (3, -32768, 32767), (4, 0, 65535)],
)
def test_compression_to_integers(kind: int, smallest: int, largest: int) -> None:
    """Values become multiples of range / largest, rounded to even, within bounds."""
    limit = 3.0
    unit = limit / largest
    multiples = np.array([smallest - 9, smallest, 0.2, 0.5, 1.5, 1.7, largest, largest + 9])
    expected = np.array([smallest, smallest, 0, 0, 2, 2, largest, largest]) * unit

    truncated = round_trip(multiples * unit, kind, limit, truncate=True)
    trusted = round_trip(multiples * unit, kind, limit, truncate=False)

    np.testing.assert_allclose(truncated, expected, rtol=1e-12)
    np.testing.assert_array_equal(np.isnan(trusted), [True, *[False] * 6, True])
    np.testing.assert_allclose(trusted[1:-1], expected[1:-1], rtol=1e-12)


@pytest.mark.parametrize("kind", [2, 5])
def test_compression_to_signs(kind: int) -> None:
    """With uint8 and no range, or with one bit, only whether a value is positive is kept."""
    found = round_trip([-1e9, -1.0, 0.0, 1e-30, 7.0], kind, 0.0, truncate=False)

    check(found, [0, 0, 0, 1, 1])
