"""Variables: the finest row and column ranges of matrices that submatrices tell apart.

For each matrix the rows are split wherever a submatrix begins or ends, and the columns likewise; a
variable is one cell of that grid. A submatrix is then exactly a rectangle of variables, and two
submatrices overlap if and only if they share a variable. Variables are numbered matrix by matrix,
and row by row within a matrix.
"""

from __future__ import annotations

from functools import cached_property
from typing import Self

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_optimizer.analysis.csr import (
    Bools,
    Csr,
    Ids,
    ordering,
    positions_in_lists,
    splits_of,
    where,
)

MATRIX, ROW_OFFSET, NUM_ROWS, COL_OFFSET, NUM_COLS = range(5)
"""Columns of a table of submatrices."""

Table = npt.NDArray[np.int32]


@attrs.frozen(kw_only=True, eq=False)
class Variables:
    """The variables of a computation.

    Attributes:
        starts: (M + 1,) int64; the variables of matrix m are starts[m] <= v < starts[m + 1].
        row_splits: For each matrix the rows at which ranges begin, and its number of rows.
        col_splits: Likewise for columns.
        first: (S,) int64, the first variable of each submatrix.
        heights, widths: (S,) int64, over how many row ranges and column ranges it extends.
        skipped: (S,) int64, how many variables lie between its last one in a row range and its
            first one in the next; 0 if it has only one row range.
    """

    starts: Ids
    row_splits: Csr
    col_splits: Csr
    first: Ids
    heights: Ids
    widths: Ids
    skipped: Ids

    @classmethod
    def of(cls, matrices: Table, submatrices: Table) -> Self:
        """Finds the variables that these submatrices tell apart.

        Args:
            matrices: (M, 2) int32: rows, columns; matrix 0 is empty.
            submatrices: (S, 5) int32; submatrix 0 is empty.
        """
        columns = np.ascontiguousarray(submatrices.T, dtype=np.int64)
        matrix, row, rows, col, cols = columns
        row_splits, row_begin, row_end = _splits(matrix, row, rows, matrices[:, 0])
        col_splits, col_begin, col_end = _splits(matrix, col, cols, matrices[:, 1])
        across = col_splits.splits[1:] - col_splits.splits[:-1] - 1
        starts = splits_of((row_splits.splits[1:] - row_splits.splits[:-1] - 1) * across)
        heights, widths = row_end - row_begin, col_end - col_begin
        all_across = across[matrix]
        return cls(
            starts=starts,
            row_splits=row_splits,
            col_splits=col_splits,
            first=starts[matrix] + row_begin * all_across + col_begin,
            heights=heights,
            widths=widths,
            skipped=(all_across - widths) * (heights > 1),
        )

    def __len__(self) -> int:
        """The number of variables."""
        return int(self.starts[-1])

    @cached_property
    def matrix(self) -> Ids:
        """(V,) int64, the matrix of each variable."""
        return np.repeat(np.arange(len(self.starts) - 1), self.starts[1:] - self.starts[:-1])

    def of_submatrices(self, submatrices: npt.NDArray[np.integer]) -> Csr:
        """Returns for each of these submatrices its variables, ascending; none for submatrix 0."""
        first = self.first[submatrices]
        counts = (self.heights * self.widths)[submatrices]
        splits = splits_of(counts)
        values = np.repeat(first - splits[:-1], counts)
        values += np.arange(len(values))
        # Variables of submatrices that have all columns follow one another; others skip some.
        gaps = where(self.skipped[submatrices] > 0)
        if len(gaps):
            counts = counts[gaps]
            inner = positions_in_lists(counts)
            rows = inner // np.repeat(self.widths[submatrices[gaps]], counts)
            at = np.repeat(splits[:-1][gaps], counts) + inner
            values[at] += rows * np.repeat(self.skipped[submatrices[gaps]], counts)
        return Csr(splits, values)

    def ranges(self, variable: int) -> tuple[int, int, int, int, int]:
        """Returns matrix, row_offset, num_rows, col_offset, num_cols of a variable."""
        matrix = int(np.searchsorted(self.starts, variable, side="right")) - 1
        rows, cols = self.row_splits[matrix], self.col_splits[matrix]
        row, col = divmod(variable - int(self.starts[matrix]), len(cols) - 1)
        row_offset, col_offset = int(rows[row]), int(cols[col])
        num_rows, num_cols = int(rows[row + 1]) - row_offset, int(cols[col + 1]) - col_offset
        return matrix, row_offset, num_rows, col_offset, num_cols

    def describe(self, variable: int) -> str:
        """Returns a variable in the form "m3(0:9, 20:39)", last row and column included."""
        matrix, row_offset, num_rows, col_offset, num_cols = self.ranges(variable)
        if self.starts[matrix + 1] - self.starts[matrix] == 1:
            return f"m{matrix}"
        rows = f"{row_offset}:{row_offset + num_rows - 1}"
        return f"m{matrix}({rows}, {col_offset}:{col_offset + num_cols - 1})"


def overlap(a: Table, b: Table) -> Bools:
    """Returns for rows of two tables of submatrices, (N, 5) each, whether they share elements."""
    shares: Bools = (
        (a[:, MATRIX] == b[:, MATRIX])
        & (a[:, ROW_OFFSET] < b[:, ROW_OFFSET] + b[:, NUM_ROWS])
        & (b[:, ROW_OFFSET] < a[:, ROW_OFFSET] + a[:, NUM_ROWS])
        & (a[:, COL_OFFSET] < b[:, COL_OFFSET] + b[:, NUM_COLS])
        & (b[:, COL_OFFSET] < a[:, COL_OFFSET] + a[:, NUM_COLS])
    )
    return shares


def _splits(matrix: Ids, offset: Ids, count: Ids, size: Table) -> tuple[Csr, Ids, Ids]:
    """Finds split points along one axis.

    Returns:
        The split points of each matrix, and for each submatrix the positions in them of its begin
        and of its end.
    """
    num_matrices = len(size)
    end = offset + count
    # Most submatrices begin and end where their matrix does: only the other points are sorted.
    late, early = where(offset > 0), where(end < size[matrix])
    owner = matrix[np.concatenate([late, early])]
    point = np.concatenate([offset[late], end[early]])
    order = ordering(owner, point)
    owners, points = owner[order], point[order]
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = (points[1:] != points[:-1]) | (owners[1:] != owners[:-1])
    owners, points = owners[is_new], points[is_new]
    last = np.bincount(owners, minlength=num_matrices) + 1
    last[0] = 0  # the empty matrix begins where it ends
    splits = splits_of(last + 1)
    # The points of a matrix: 0, those between, its size.
    inner = np.ones(splits[-1], dtype=np.bool_)
    inner[splits[:-1]] = inner[splits[1:] - 1] = False
    places = where(inner)
    values = np.zeros(splits[-1], dtype=np.int64)
    values[splits[1:] - 1] = size
    values[places] = points
    place = np.empty(len(order), dtype=np.int64)
    place[order] = (places - splits[owners])[np.cumsum(is_new) - 1]
    begins, ends = np.zeros(len(matrix), dtype=np.int64), last[matrix]
    begins[late], ends[early] = place[: len(late)], place[len(late) :]
    return Csr(splits, values), begins, ends
