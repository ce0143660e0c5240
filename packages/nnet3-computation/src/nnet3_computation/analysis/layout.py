"""The matrices of a computation, the submatrices that commands can name, and their finest parts.

Variables are the finest row and column ranges of matrices that submatrices tell apart. For each
matrix the rows are split wherever a submatrix begins or ends, and the columns likewise; a variable
is one cell of that grid. A submatrix is then exactly a rectangle of variables, and two submatrices
overlap if and only if they share a variable. Variables are numbered matrix by matrix, and row by
row within a matrix.
"""

from __future__ import annotations

from functools import cached_property
from typing import Self

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_computation.arrays import (
    Bools,
    Csr,
    Ids,
    ordering,
    positions_in_lists,
    run_starts,
    splits_of,
    where,
)
from nnet3_computation.commands.declaration import Table

MATRIX, ROW_OFFSET, NUM_ROWS, COL_OFFSET, NUM_COLS = range(5)
"""Columns of a table of submatrices."""

OFFSETS, _SIZES = [ROW_OFFSET, COL_OFFSET], [NUM_ROWS, NUM_COLS]
"""The columns of the first row and column of a submatrix, and those of its size."""


@attrs.frozen(kw_only=True, eq=False)
class Variables:
    """The variables of a computation.

    Attributes:
        starts: (M + 1,) int64; the variables of matrix m are starts[m] <= v < starts[m + 1].
        row_splits: For each matrix the rows at which ranges begin, and its number of rows.
        col_splits: Likewise for columns.
        first: (S,) int64, the first variable of each submatrix.
        heights, widths: (S,) int64, the numbers of its row ranges and column ranges.
        skipped: (S,) int64, the number of variables between its last one in a row range and its
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
        matrix, count = columns[MATRIX], len(matrices)
        # Both axes of all matrices are split at once: first the rows, then the columns.
        (splits, values), begins, ends = _splits(
            np.concatenate([matrix, matrix + count]),
            columns[[ROW_OFFSET, COL_OFFSET]].reshape(-1),
            columns[[NUM_ROWS, NUM_COLS]].reshape(-1),
            matrices.T.reshape(-1).astype(np.int64),
        )
        lengths = splits[1:] - splits[:-1] - 1
        across = lengths[count:]
        starts = splits_of(lengths[:count] * across)
        all_across = across.take(matrix)
        (row_begin, col_begin), extents = begins.reshape(2, -1), (ends - begins).reshape(2, -1)
        heights, widths = extents
        border = splits[count]
        return cls(
            starts=starts,
            row_splits=Csr(splits[: count + 1], values[:border]),
            col_splits=Csr(splits[count:] - border, values[border:]),
            first=starts.take(matrix) + row_begin * all_across + col_begin,
            heights=heights,
            widths=widths,
            skipped=(all_across - widths) * (heights > 1),
        )

    def __len__(self) -> int:
        """The number of variables."""
        return int(self.starts[-1])

    @cached_property
    def sizes(self) -> Ids:
        """(S,) int64, the number of variables of each submatrix."""
        return self.heights * self.widths

    @cached_property
    def matrix(self) -> Ids:
        """(V,) int64, the matrix of each variable."""
        return np.arange(len(self.starts) - 1).repeat(self.starts[1:] - self.starts[:-1])

    def of_submatrices(self, submatrices: npt.NDArray[np.integer]) -> Csr:
        """Returns for each of these submatrices its variables, ascending; none for submatrix 0."""
        counts = self.sizes.take(submatrices)
        splits = splits_of(counts)
        values = (self.first.take(submatrices) - splits[:-1]).repeat(counts)
        values += np.arange(len(values))
        # Variables of submatrices that have all columns follow one another; others skip some.
        gaps = where(self.skipped.take(submatrices) > 0)
        if len(gaps):
            counts = counts[gaps]
            inner = positions_in_lists(counts)
            rows = inner // self.widths[submatrices[gaps]].repeat(counts)
            at = splits[:-1][gaps].repeat(counts) + inner
            values[at] += rows * self.skipped[submatrices[gaps]].repeat(counts)
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


def overlap(a: Table | Ids, b: Table | Ids) -> Bools:
    """Returns for rows of two tables of submatrices, (N, 5) each, whether they share elements."""
    shares: Bools = (
        (a[:, MATRIX] == b[:, MATRIX])
        & (a[:, ROW_OFFSET] < b[:, ROW_OFFSET] + b[:, NUM_ROWS])
        & (b[:, ROW_OFFSET] < a[:, ROW_OFFSET] + a[:, NUM_ROWS])
        & (a[:, COL_OFFSET] < b[:, COL_OFFSET] + b[:, NUM_COLS])
        & (b[:, COL_OFFSET] < a[:, COL_OFFSET] + a[:, NUM_COLS])
    )
    return shares


def contain(outer: Table | Ids, inner: Table | Ids) -> Bools:
    """Returns for rows of two tables of submatrices whether one has all elements of the other.

    Args:
        outer: (N, 5), submatrices.
        inner: (N, 5), submatrices of the same matrices.
    """
    begin, own_begin = outer[:, OFFSETS], inner[:, OFFSETS]
    within = (begin <= own_begin) & (own_begin + inner[:, _SIZES] <= begin + outer[:, _SIZES])
    return within[:, 0] & within[:, 1]


def _splits(line: Ids, offset: Ids, count: Ids, size: Ids) -> tuple[Csr, Ids, Ids]:
    """Finds where lines are split.

    Args:
        line: (P,) the line that each part is of.
        offset: (P,) where a part begins.
        count: (P,) its length.
        size: (lines,) the length of each line; a line of length 0 is split at 0 alone.

    Returns:
        The split points of each line, and for each part the positions in them of its begin and of
        its end.
    """
    end = offset + count
    # Most parts begin and end where their line does: only the other points are sorted.
    late, early = where(offset > 0), where(end < size.take(line))
    owner = line.take(np.concatenate([late, early]))
    point = np.concatenate([offset.take(late), end.take(early)])
    order = ordering(owner, point)
    owners, points = owner.take(order), point.take(order)
    is_new = run_starts(points, owners)
    owners, points = owners[is_new], points[is_new]
    last = np.bincount(owners, minlength=len(size)) + 1
    last[size == 0] = 0  # the empty matrix begins where it ends
    splits = splits_of(last + 1)
    # The points of a line: 0, the points between, its size.
    inner = np.ones(splits[-1], dtype=np.bool_)
    inner[splits[:-1]] = inner[splits[1:] - 1] = False
    places = where(inner)
    values = np.zeros(splits[-1], dtype=np.int64)
    values[splits[1:] - 1] = size
    values[places] = points
    place = np.empty(len(order), dtype=np.int64)
    place[order] = (places - splits.take(owners)).take(is_new.cumsum() - 1)
    begins, ends = np.zeros(len(line), dtype=np.int64), last.take(line)
    begins[late], ends[early] = place[: len(late)], place[len(late) :]
    return Csr(splits, values), begins, ends


@attrs.frozen(kw_only=True, eq=False)
class Layout:
    """Matrices and submatrices, and the tables that follow from them.

    Attributes:
        matrices: (M, 2) int32: rows, columns; matrix 0 is empty.
        submatrices: (S, 5) int32: matrix, row_offset, num_rows, col_offset, num_cols; submatrix 0
            is empty.
    """

    matrices: Table
    submatrices: Table

    @cached_property
    def variables(self) -> Variables:
        """The finest parts of matrices that submatrices tell apart."""
        return Variables.of(self.matrices, self.submatrices)

    @cached_property
    def matrix_of(self) -> Ids:
        """(S,) int64: the matrix of each submatrix."""
        return self.submatrices[:, MATRIX].astype(np.int64)

    @cached_property
    def is_full_width(self) -> Bools:
        """(S,) bool: whether a submatrix has all columns of its matrix."""
        full: Bools = self.submatrices[:, NUM_COLS] == self.matrices[:, 1].take(self.matrix_of)
        return full

    @cached_property
    def is_whole(self) -> Bools:
        """(S,) bool: whether a submatrix covers its matrix; False for submatrix 0."""
        whole: Bools = self.submatrices[:, NUM_ROWS] == self.matrices[:, 0].take(self.matrix_of)
        whole &= self.is_full_width
        whole[0] = False
        return whole

    def overlap(self, one: Ids, other: Ids) -> Bools:
        """Returns for pairs of submatrices, (N,) each, whether they share elements."""
        shares: Bools = (self.matrix_of[one] == self.matrix_of[other]) & (one != 0)
        at = where(shares)  # few pairs lie in the same matrix
        if len(at):
            first, second = (self.submatrices.take(each[at], axis=0) for each in (one, other))
            shares[at] = overlap(first, second)
        return shares

    def are_whole(self, *submatrices: int) -> bool:
        """Whether each of these submatrices covers its matrix."""
        is_whole = self.is_whole
        return all(is_whole[each] for each in submatrices)

    @cached_property
    def whole_submatrix(self) -> Ids:
        """(M,) int64: for each matrix the first submatrix that covers it, or 0."""
        found = np.zeros(len(self.matrices), dtype=np.int64)
        whole = np.flatnonzero(self.is_whole)[::-1]
        found[self.matrix_of[whole]] = whole
        return found
