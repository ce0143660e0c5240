"""The matrices of a computation, and the parts of them that commands can name."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np

from nnet3_optimizer.analysis.csr import Bools, Ids
from nnet3_optimizer.analysis.variables import MATRIX, NUM_COLS, NUM_ROWS, Table, Variables


@attrs.frozen(kw_only=True, eq=False)
class Layout:
    """Matrices and submatrices, and what follows from them alone.

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
    def is_whole(self) -> Bools:
        """(S,) bool: whether a submatrix covers its matrix; False for submatrix 0."""
        size = self.matrices[self.submatrices[:, MATRIX]]
        whole: Bools = self.submatrices[:, NUM_ROWS] == size[:, 0]
        whole &= self.submatrices[:, NUM_COLS] == size[:, 1]
        whole[0] = False
        return whole

    def are_whole(self, *submatrices: int) -> bool:
        """Whether each of these submatrices covers its matrix."""
        return bool(self.is_whole[list(submatrices)].all())

    @cached_property
    def whole_submatrix(self) -> Ids:
        """(M,) int64: for each matrix the first submatrix that covers it, or 0."""
        found = np.zeros(len(self.matrices), dtype=np.int64)
        whole = np.flatnonzero(self.is_whole)[::-1]
        found[self.submatrices[whole, MATRIX]] = whole
        return found
