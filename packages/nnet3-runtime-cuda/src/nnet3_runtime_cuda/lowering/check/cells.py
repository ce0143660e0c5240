"""Numbers that stand for the elements of matrices, in two executions of the same commands.

A cell is a row and a stretch of columns of a matrix. Its number is an element of a ring, the
integers modulo 2^64. Each result of a component is a new random number, whatever its input. Copies
and sums are copies and sums in the ring, and factors multiply. So two cells have the same number if
they hold the same sum of the same terms, added in any order. Other cells have the same number by
chance once in about 10^18 comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from nnet3_computation import NnetComputation

from nnet3_runtime_cuda.lowering.areas import Place

Numbers = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

PLAIN, PLANNED = 0, 1
BOTH, PLAIN_ONLY, PLANNED_ONLY = slice(0, 2), slice(0, 1), slice(1, 2)
"""The number of the execution: axis 0 of all arrays here."""


class Cells:
    """The cells of all matrices, (2, rows, stretches) each: by the commands, and by the plan.

    Attributes:
        all: (2, cells of all matrices).
    """

    def __init__(self, computation: NnetComputation, borders: Sequence[Sequence[int]]) -> None:
        """Makes cells for a computation.

        Args:
            computation: The computation.
            borders: Of each matrix, the columns at which a stretch begins, and the end of the last
                one.
        """
        self._rows: list[int] = computation.matrices[:, 0].tolist()
        self._stretches = [len(each) - 1 for each in borders]
        self._borders = borders
        self._numbers = [{column: n for n, column in enumerate(each)} for each in borders]
        sizes = [rows * count for rows, count in zip(self._rows, self._stretches, strict=True)]
        self._begins: list[int] = [0, *np.cumsum(sizes).tolist()]
        self._submatrices: list[list[int]] = computation.submatrices.tolist()
        self._views: dict[int, Numbers] = {}
        self._random = np.random.default_rng(0)
        self._terms: Numbers = self._numbers_at_random(max(sizes, default=0))
        self.all: Numbers = np.tile(self._numbers_at_random(sum(sizes)), (2, 1))
        self._first_cells = np.array([self._first_cell(each) for each in self._submatrices])
        self._strides = np.array([self._stretches[each[0]] for each in self._submatrices])

    def _numbers_at_random(self, count: int) -> Numbers:
        return self._random.integers(0, 1 << 64, count, np.uint64)

    def _first_cell(self, submatrix: Sequence[int]) -> int:
        matrix, row, _, column, _ = submatrix
        cells = self._begins[matrix] + row * self._stretches[matrix]
        return cells + self._numbers[matrix][column]

    # ---- views ----

    def of_matrix(self, matrix: int) -> Numbers:
        """(2, rows, stretches) of a matrix: a view."""
        begin, end = self._begins[matrix : matrix + 2]
        return self.all[:, begin:end].reshape(2, self._rows[matrix], self._stretches[matrix])

    def of_place(self, place: Place) -> Numbers:
        """The same of an area."""
        matrix, area = place
        return self._part(self.of_matrix(matrix), matrix, area.column, area.column_end)[
            :, area.row : area.row_end
        ]

    def of(self, submatrix: int) -> Numbers:
        """The same of a submatrix."""
        view = self._views.get(submatrix)
        if view is None:
            matrix, row, rows, column, columns = self._submatrices[submatrix]
            part = self._part(self.of_matrix(matrix), matrix, column, column + columns)
            view = self._views[submatrix] = part[:, row : row + rows]
        return view

    def _part(self, numbers: Numbers, matrix: int, column: int, column_end: int) -> Numbers:
        index = self._numbers[matrix]
        return numbers[..., index[column] : index[column_end]]

    def width(self, submatrix: int, columns: int) -> int:
        """The number of stretches of the first columns of a submatrix."""
        matrix, _, _, column, _ = self._submatrices[submatrix]
        return self._numbers[matrix][column + columns] - self._numbers[matrix][column]

    def column(self, submatrix: int, stretch: int) -> int:
        """The first column of a stretch of a submatrix."""
        matrix, _, _, column, _ = self._submatrices[submatrix]
        return self._borders[matrix][self._numbers[matrix][column] + stretch] - column

    def of_rows(self, pairs: npt.NDArray[np.int32], stretches: int) -> Positions:
        """The places in `all` of the cells of a list of (submatrix, row): (rows, stretches).

        A row of submatrix -1 names nothing; its place is that of the first cells.
        """
        submatrix, row = pairs.astype(np.int64).T
        first = self._first_cells[submatrix] + row * self._strides[submatrix]
        where: Positions = np.where(submatrix < 0, 0, first)[:, np.newaxis] + np.arange(stretches)
        return where

    # ---- new numbers ----

    def factor(self) -> np.uint64:
        """A random odd number."""
        return self._random.integers(0, 1 << 64, dtype=np.uint64) | np.uint64(1)

    def results(self, submatrix: int) -> Numbers:
        """New numbers for the cells of a submatrix: (rows, stretches)."""
        matrix, row, rows, column, columns = self._submatrices[submatrix]
        part = self._part(self._of_terms(matrix), matrix, column, column + columns)
        return part[row : row + rows] * self.factor()

    def matrix_results(self, matrix: int, factor: np.uint64) -> Numbers:
        """The numbers for the cells of a matrix that follow from a factor: (rows, stretches)."""
        return self._of_terms(matrix) * factor

    def _of_terms(self, matrix: int) -> Numbers:
        rows, stretches = self._rows[matrix], self._stretches[matrix]
        return self._terms[: rows * stretches].reshape(rows, stretches)
