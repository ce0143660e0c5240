"""The matrices of a computation, and the submatrices that commands can name."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np

from nnet3_computation.analysis.variables import MATRIX, NUM_COLS, NUM_ROWS, Variables, overlap
from nnet3_computation.arrays.csr import Bools, Ids, where
from nnet3_computation.commands.declaration import Table


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
