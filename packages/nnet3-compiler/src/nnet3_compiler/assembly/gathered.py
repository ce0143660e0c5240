"""Adds up derivatives of rows that are read many times, in few commands for any number of frames.

The rows of a step are ordered by frame, and within a frame by sequence. If every frame reads one
row of its sequence, such as an i-vector, then the rows whose derivatives belong to one sum lie far
apart. One command gathers them in a matrix of their own, sum by sum; then AddRowRanges adds them
up.
"""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation.arrays import NONE, IntArray, freeze, run_starts, where
from nnet3_computation.commands import (
    AddRowRanges,
    AllocMatrixZeroed,
    CopyRows,
    DeallocMatrix,
    IndexLists,
    Table,
    command_rows,
)
from nnet3_computation.computation import MatrixDebugInfo
from nnet3_descriptors.indexes import distinct

from nnet3_compiler.assembly.pieces import Pieces
from nnet3_compiler.assembly.step_info import NUM_COLS, NUM_ROWS, SubmatrixTable

MOST_LISTS = 16
"""The number of commands, each with a list of rows, that take no longer than gathering."""


def is_worthwhile(num_lists: int, num_sources: int) -> bool:
    """Whether to gather rows from `num_sources` submatrices instead of `num_lists` commands."""
    return num_lists > max(MOST_LISTS, num_sources + 1)


@attrs.define(eq=False)
class GatheredMatrices:
    """The matrices of gathered rows; they belong to no step.

    Attributes:
        first: The number of the first of them; the matrices of steps come before.
        sizes: Rows and columns of each.
        wholes: The submatrix that is all of each.
        pieces: The piece of the input locations that each matrix is made for.
        rows: For each matrix, and each of its rows, the row of the piece's step.
    """

    first: int
    sizes: list[tuple[int, int]] = attrs.Factory(list)
    wholes: list[int] = attrs.Factory(list)
    pieces: list[int] = attrs.Factory(list)
    rows: list[IntArray] = attrs.Factory(list)

    def add(self, submatrices: SubmatrixTable, piece: int, rows: IntArray, columns: int) -> int:
        """Adds a matrix; returns the submatrix that is all of it."""
        whole = [self.first + len(self.sizes), 0, len(rows), 0, columns]
        self.sizes.append((len(rows), columns))
        self.pieces.append(piece)
        self.rows.append(rows)
        self.wholes += submatrices.add(np.array([whole], np.int32)).tolist()
        return self.wholes[-1]

    @property
    def table(self) -> IntArray:
        """Rows and columns of each: (matrices, 2) int32."""
        return np.array(self.sizes, np.int32).reshape(-1, 2)

    def commands(self, command_type: type[AllocMatrixZeroed | DeallocMatrix]) -> Table:
        """Returns the commands that allocate or free all of them."""
        matrix = np.array(self.wholes, np.int32)
        return command_rows(command_type, len(matrix), matrix=matrix)

    def debug_info(self, pieces: Pieces) -> list[MatrixDebugInfo]:
        """Returns the cindexes of the rows of each matrix: those to which the rows are added."""
        steps = pieces.steps
        infos = []
        for piece, rows in zip(self.pieces, self.rows, strict=True):
            source = pieces.source_rows(piece)
            node = steps.node[steps.step_of_row[source]]
            pattern = np.column_stack([steps.indexes[source], node])
            block = int(steps.block[pieces.locations.step[piece]])
            cindexes = pieces.minibatch.indexes(pattern, block)[rows][:, [3, 0, 1, 2]]
            infos.append(MatrixDebugInfo(is_deriv=True, pattern=freeze(cindexes)))
        return infos


@attrs.frozen(kw_only=True, eq=False)
class GatheredSum:
    """Adds the rows of a derivative to rows that are each named many times.

    Attributes:
        piece: The piece of the input locations whose rows are added.
        deriv: The submatrix that has them, (a part of) the derivative of its step.
        targets: (K, 2) int32: submatrix and row to which row k is added, or (-1, -1) for none.
        alpha: The factor of the derivative.
    """

    piece: int
    deriv: int
    targets: IntArray
    alpha: float

    def commands(
        self, lists: IndexLists, submatrices: SubmatrixTable, matrices: GatheredMatrices
    ) -> Table:
        """Returns a CopyRows, and an AddRowRanges for each submatrix that is added to."""
        order = np.lexsort((self.targets[:, 1], self.targets[:, 0])).astype(np.int32)
        order = order[self.targets[order, 0] >= 0]
        columns = int(submatrices.table[self.deriv, NUM_COLS])
        gathered = matrices.add(submatrices, self.piece, order, columns)
        number = lists.indexes.add(order)
        tables = [command_rows(CopyRows, 1, 1.0, output=gathered, input=self.deriv, indexes=number)]
        submatrix, row = self.targets[order].T
        for output in distinct(submatrix).tolist():
            rows = np.where(submatrix == output, row, NONE).astype(np.int32)
            ranges = row_ranges(rows, int(submatrices.table[output, NUM_ROWS]))
            number = lists.ranges.add(ranges)
            tables.append(
                command_rows(
                    AddRowRanges,
                    1,
                    self.alpha,
                    output=output,
                    input=gathered,
                    indexes_ranges=number,
                )
            )
        return np.concatenate(tables)


def most_runs(rows: IntArray) -> int:
    """Returns the largest number of runs that any row has in a list.

    Args:
        rows: (K,) int32, rows or -1.
    """
    runs = rows[run_starts(rows)]
    return int(np.bincount(runs[runs >= 0]).max(initial=0))


def row_ranges(rows: IntArray, size: int) -> IntArray:
    """Returns for each of `size` rows the run of places that name it: (size, 2) begin, end."""
    ranges = np.full((size, 2), NONE, np.int32)
    present = where(rows >= 0)
    ranges[rows[present][::-1], 0] = present[::-1]
    ranges[rows[present], 1] = present + 1
    return ranges
