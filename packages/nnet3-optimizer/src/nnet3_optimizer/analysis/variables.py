"""Variables: the finest row and column ranges of matrices that submatrices tell apart.

For each matrix the rows are split wherever a submatrix begins or ends, and the columns likewise; a
variable is one cell of that grid. A submatrix is then exactly a rectangle of variables, and two
submatrices overlap if and only if they share a variable. Variables are numbered matrix by matrix,
and row by row within a matrix.
"""

from __future__ import annotations

from typing import Self

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_optimizer.analysis.csr import Bools, Csr, Ids, ordering, positions_in_lists, splits_of

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
        row_begin, row_end, col_begin, col_end: (S,) int64; submatrix s consists of the row ranges
            row_begin[s] <= r < row_end[s] and column ranges col_begin[s] <= c < col_end[s] of its
            matrix.
        submatrix_matrix: (S,) int64, the matrix of each submatrix.
    """

    starts: Ids
    row_splits: Csr
    col_splits: Csr
    row_begin: Ids
    row_end: Ids
    col_begin: Ids
    col_end: Ids
    submatrix_matrix: Ids

    @classmethod
    def of(cls, matrices: Table, submatrices: Table) -> Self:
        """Finds the variables that these submatrices tell apart.

        Args:
            matrices: (M, 2) int32: rows, columns; matrix 0 is empty.
            submatrices: (S, 5) int32; submatrix 0 is empty.
        """
        matrix = submatrices[:, MATRIX].astype(np.int64)
        row_splits, row_begin, row_end = _splits(
            matrix, submatrices[:, ROW_OFFSET], submatrices[:, NUM_ROWS], matrices[:, 0]
        )
        col_splits, col_begin, col_end = _splits(
            matrix, submatrices[:, COL_OFFSET], submatrices[:, NUM_COLS], matrices[:, 1]
        )
        counts = (np.diff(row_splits.splits) - 1) * (np.diff(col_splits.splits) - 1)
        return cls(
            starts=splits_of(counts),
            row_splits=row_splits,
            col_splits=col_splits,
            row_begin=row_begin,
            row_end=row_end,
            col_begin=col_begin,
            col_end=col_end,
            submatrix_matrix=matrix,
        )

    def __len__(self) -> int:
        """The number of variables."""
        return int(self.starts[-1])

    @property
    def matrix(self) -> Ids:
        """(V,) int64, the matrix of each variable."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def of_submatrices(self, submatrices: npt.NDArray[np.integer]) -> Csr:
        """Returns for each of these submatrices its variables, ascending; none for submatrix 0."""
        matrix = self.submatrix_matrix[submatrices]
        row_begin, col_begin = self.row_begin[submatrices], self.col_begin[submatrices]
        heights = self.row_end[submatrices] - row_begin
        widths = self.col_end[submatrices] - col_begin
        matrix_widths = self.col_splits.splits[matrix + 1] - self.col_splits.splits[matrix] - 1
        first = self.starts[matrix] + row_begin * matrix_widths + col_begin
        counts = heights * widths
        splits = splits_of(counts)
        position = np.arange(splits[-1]) - np.repeat(splits[:-1], counts)
        values = np.repeat(first, counts) + position
        # Variables of submatrices that have all columns follow one another; others skip some.
        gaps = np.flatnonzero((widths != matrix_widths) & (heights > 1))
        if len(gaps):
            inner = Csr(splits_of(counts[gaps]), positions_in_lists(counts[gaps]))
            skipped = np.repeat((matrix_widths - widths)[gaps], counts[gaps])
            rows = inner.values // np.repeat(widths[gaps], counts[gaps])
            where = np.repeat(splits[:-1][gaps], counts[gaps]) + inner.values
            values[where] += rows * skipped
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


def _splits(matrix: Ids, offset: Table, count: Table, size: Table) -> tuple[Csr, Ids, Ids]:
    """Finds split points along one axis.

    Returns:
        The split points of each matrix, and for each submatrix the positions in them of its begin
        and of its end.
    """
    num_submatrices, num_matrices = len(matrix), len(size)
    everywhere = np.arange(num_matrices, dtype=np.int64)
    owner = np.concatenate([matrix, matrix, everywhere, everywhere])
    begin = offset.astype(np.int64)
    point = np.concatenate([begin, begin + count, np.zeros(num_matrices, np.int64), size])
    order = ordering(owner, point)
    owners, points = owner[order], point[order]
    is_new = np.ones(len(order), dtype=np.bool_)
    np.not_equal(points[1:], points[:-1], out=is_new[1:])
    is_new[1:] |= owners[1:] != owners[:-1]
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(is_new) - 1
    splits = splits_of(np.bincount(owners[is_new], minlength=num_matrices))
    begins, ends = ranks[:num_submatrices], ranks[num_submatrices : 2 * num_submatrices]
    first = splits[matrix]
    return Csr(splits, points[is_new]), begins - first, ends - first
