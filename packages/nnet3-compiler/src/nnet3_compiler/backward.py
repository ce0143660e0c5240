"""Backward commands of descriptors: the derivatives of the sources of every sum.

They mirror the forward commands. One command may add to a row only once, unless it adds up a range
of rows. So a list of source rows must name each row once, or in one run; for runs the command is
AddRowRanges. Any other list is split into several lists that meet this rule. If there would be many
such lists, the rows are gathered first in a matrix of their own.

The rows of a step are ordered by frame, and within a frame by sequence. If every frame reads one
row of its sequence, such as an i-vector, then the rows whose derivatives belong to one sum lie far
apart. One command gathers them in a matrix of their own, sum by sum; then AddRowRanges adds them
up.
"""

from __future__ import annotations

import numpy as np
from nnet3_computation import commands, computation
from nnet3_computation.analysis import MATRIX, NUM_COLS, NUM_ROWS
from nnet3_computation.arrays import NONE, IntArray, run_starts, where
from nnet3_computation.commands import Table, command_rows
from nnet3_descriptors.indexes import distinct
from nnet3_descriptors.values import frozen
from numpy.typing import NDArray

from nnet3_compiler.forward import PLACES_PER_STEP, Emission
from nnet3_compiler.locations import PieceKind, Pieces
from nnet3_compiler.step_info import StepInfo

MOST_LISTS = 16
"""The number of commands, each with a list of rows, that take no longer than gathering."""


def is_worthwhile(num_lists: int, num_sources: int) -> bool:
    """Whether to gather rows from `num_sources` submatrices instead of `num_lists` commands."""
    return num_lists > max(MOST_LISTS, num_sources + 1)


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


class DescriptorBackward:
    """Emits the commands that add derivatives of descriptors to the derivatives of their sources.

    Attributes:
        gathered: The matrices of gathered rows, which belong to no step: for each the piece that it
            is made for, and for each of its rows the row of the piece's step.
    """

    def __init__(self, pieces: Pieces, info: StepInfo, emission: Emission) -> None:
        """Prepares to emit.

        Args:
            pieces: The input locations.
            info: The submatrices of derivatives.
            emission: Receives the commands.
        """
        self._pieces, self._info, self._emission = pieces, info, emission
        self.gathered: list[tuple[int, IntArray]] = []
        self._wholes: list[int] = []

    def emit(self) -> None:
        """Adds the commands of all descriptors that have a derivative."""
        pieces, info = self._pieces, self._info
        has_deriv = info.deriv[pieces.step] > 0
        source_has_deriv = info.deriv[pieces.source_step] > 0
        scattered = pieces.kind == PieceKind.SCATTERED
        chosen = has_deriv & (pieces.kind != PieceKind.EMPTY) & (source_has_deriv | scattered)
        ranges = where(chosen & (pieces.kind == PieceKind.RANGE)).astype(np.int32)
        self._emit_ranges(ranges)
        for piece in where(chosen & (pieces.kind == PieceKind.ROWS)).tolist():
            self._emit_rows(piece)
        for piece in where(chosen & scattered).tolist():
            self._emit_scattered(piece)

    def sizing(
        self, command_type: type[commands.AllocMatrixZeroed | commands.DeallocMatrix]
    ) -> Table:
        """Returns the commands that allocate or free all matrices of gathered rows."""
        matrix = np.array(self._wholes, np.int32)
        return command_rows(command_type, len(matrix), matrix=matrix)

    @property
    def sizes(self) -> IntArray:
        """Rows and columns of each matrix of gathered rows: (matrices, 2) int32."""
        return self._info.submatrices.table[self._wholes][:, [NUM_ROWS, NUM_COLS]]

    def debug_info(self) -> list[computation.MatrixDebugInfo]:
        """Returns the cindexes of the rows of these matrices: those to which the rows are added."""
        pieces, steps = self._pieces, self._pieces.steps
        infos = []
        for piece, rows in self.gathered:
            source = pieces.source_rows(piece)
            node = steps.node[steps.step_of_row[source]]
            pattern = np.column_stack([steps.indexes[source], node])
            block = int(steps.block[pieces.step[piece]])
            cindexes = pieces.minibatch.indexes(pattern, block)[rows][:, [3, 0, 1, 2]]
            infos.append(computation.MatrixDebugInfo(is_deriv=True, pattern=frozen(cindexes)))
        return infos

    def _deriv(self, pieces: IntArray | int) -> IntArray:
        step, part = self._pieces.step[pieces], self._pieces.part[pieces]
        submatrix: IntArray = self._info.deriv_part[step] + part
        return submatrix

    def _place(self, pieces: IntArray | int) -> NDArray[np.int64]:
        step = self._pieces.step[pieces].astype(np.int64)
        place: NDArray[np.int64] = (len(self._pieces.steps) - step) * PLACES_PER_STEP + pieces
        return place

    def _emit_ranges(self, chosen: IntArray) -> None:
        pieces, size = self._pieces, self._pieces.minibatch.size
        output = self._info.submatrices.parts(
            self._info.deriv[pieces.source_step[chosen]],
            pieces.source_first[chosen] * size,
            pieces.num_rows[chosen] * size,
        )
        alpha = pieces.alpha[chosen]
        deriv = self._deriv(chosen)
        rows = command_rows(commands.MatrixAdd, len(chosen), alpha, output=output, input=deriv)
        self._emission.add(self._place(chosen), rows)

    def _emit_rows(self, piece: int) -> None:
        """Emits a piece whose rows come from one step."""
        pieces, minibatch = self._pieces, self._pieces.minibatch
        source_step, step = int(pieces.source_step[piece]), int(pieces.step[piece])
        source_block = int(pieces.steps.block[source_step])
        block = int(pieces.steps.block[step])
        used, output = self._used_range(pieces.rows(piece), source_step, source_block)
        num_used = int(self._info.submatrices.table[output, NUM_ROWS]) // minibatch.size
        reverse = reversed_rows(used, num_used)
        if reverse is not None:
            full = minibatch.rows(reverse, block, source_block)
            self._emit_unique(piece, output, full)
            return
        full = minibatch.rows(used, source_block, block)
        if is_worthwhile(most_runs(full), 1):
            targets = np.stack([np.where(full >= 0, output, NONE), full], axis=1).astype(np.int32)
            self._emit_gathered(piece, targets)
            return
        for part in contiguous_lists(full):
            reverse = reversed_rows(part, num_used * minibatch.size)
            if reverse is not None:
                self._emit_unique(piece, output, reverse)
                continue
            ranges = row_ranges(part, num_used * minibatch.size)
            number = self._emission.add_list("indexes_ranges", ranges)
            self._emit(piece, commands.AddRowRanges, output=output, indexes_ranges=number)

    def _emit(self, piece: int, command_type: type[commands.Command], **operands: int) -> None:
        """Emits a command that adds the derivative of a piece, with its scale."""
        alpha = float(self._pieces.alpha[piece])
        deriv = int(self._deriv(piece))
        rows = command_rows(command_type, 1, alpha, input=deriv, **operands)
        self._emission.add(int(self._place(piece)), rows)

    def _used_range(
        self, rows: IntArray, source_step: int, source_block: int
    ) -> tuple[IntArray, int]:
        """Narrows the derivative of a source to the blocks of rows that are used.

        Returns:
            The rows, counted from the first one kept (-1 for none), and the submatrix.
        """
        block = source_block if self._pieces.minibatch.size > 1 else 1
        first = int(rows[rows >= 0].min()) // block * block
        end = -(-(int(rows.max()) + 1) // block) * block
        size = self._pieces.minibatch.size
        submatrix = self._info.submatrices.parts(
            self._info.deriv[source_step : source_step + 1],
            np.array([first * size], np.int32),
            np.array([(end - first) * size], np.int32),
        )
        return np.where(rows >= 0, rows - first, NONE).astype(np.int32), int(submatrix[0])

    def _emit_unique(self, piece: int, output: int, reverse: IntArray) -> None:
        number = self._emission.add_list("indexes", reverse)
        self._emit(piece, commands.AddRows, output=output, indexes=number)

    def _emit_gathered(self, piece: int, targets: IntArray) -> None:
        """Emits a piece whose rows are added to few others, each named many times.

        These are a CopyRows, and an AddRowRanges for each submatrix that is added to.

        Args:
            piece: The piece.
            targets: (K, 2) int32: submatrix and row to which row k is added; (-1, -1) for none.
        """
        submatrices, deriv = self._info.submatrices, int(self._deriv(piece))
        order = np.lexsort((targets[:, 1], targets[:, 0])).astype(np.int32)
        order = order[targets[order, 0] >= 0]
        columns = int(submatrices.table[deriv, NUM_COLS])
        matrix = len(self._info.matrices) + len(self.gathered)
        whole = np.array([[matrix, 0, len(order), 0, columns]], np.int32)
        gathered = int(submatrices.add(whole)[0])
        self.gathered.append((piece, order))
        self._wholes.append(gathered)
        number = self._emission.add_list("indexes", order)
        tables = [
            command_rows(commands.CopyRows, 1, 1.0, output=gathered, input=deriv, indexes=number)
        ]
        alpha = float(self._pieces.alpha[piece])
        submatrix, row = targets[order].T
        for output in distinct(submatrix).tolist():
            rows = np.where(submatrix == output, row, NONE).astype(np.int32)
            ranges = row_ranges(rows, int(submatrices.table[output, NUM_ROWS]))
            number = self._emission.add_list("indexes_ranges", ranges)
            operands = {"input": gathered, "indexes_ranges": number}
            tables.append(command_rows(commands.AddRowRanges, 1, alpha, output=output, **operands))
        self._emission.add(int(self._place(piece)), np.concatenate(tables))

    def _emit_scattered(self, piece: int) -> None:
        """Emits a piece whose rows come from several steps."""
        pairs = self._pieces.pairs(piece, self._info.deriv)
        list_of_row = list_numbers(pairs, self._info.submatrices.table[:, MATRIX])
        sources = pairs[list_of_row >= 0, 0]
        if is_worthwhile(int(list_of_row.max(initial=NONE)) + 1, len(distinct(sources))):
            self._emit_gathered(piece, self._pieces.repeated(piece, pairs))
            return
        for part in unique_lists(pairs, list_of_row):
            number = self._emission.add_list("indexes_multi", self._pieces.repeated(piece, part))
            self._emit(piece, commands.AddToRowsMulti, indexes_multi=number)


def reversed_rows(rows: IntArray, size: int) -> IntArray | None:
    """Returns the inverse of a mapping of rows.

    Args:
        rows: (K,) int32, for each row one of `size` others, or -1.
        size: The number of other rows.

    Returns:
        (size,) int32, for each of the others the row that maps to it, or -1; None if several do.
    """
    present = where(rows >= 0)
    reverse = np.full(size, NONE, np.int32)
    reverse[rows[present]] = present
    if int(np.count_nonzero(reverse >= 0)) < len(present):
        return None
    return reverse


def contiguous_lists(rows: IntArray) -> list[IntArray]:
    """Splits a list into lists that have each row in one run at most.

    Args:
        rows: (K,) int32, rows or -1.

    Returns:
        Lists of (K,) int32; together they have the entries of `rows` at their places. The r-th run
        of a row goes to list r.
    """
    is_first = run_starts(rows)
    runs = rows[is_first]
    number = occurrence(runs)
    number[runs < 0] = NONE
    run_of_place = np.cumsum(is_first) - 1
    return [
        np.where(number[run_of_place] == part, rows, NONE).astype(np.int32)
        for part in range(int(number.max()) + 1)
    ]


def unique_lists(pairs: IntArray, number: NDArray[np.int64]) -> list[IntArray]:
    """Splits a list of (submatrix, row) into lists that have each row of a matrix once.

    Args:
        pairs: (K, 2) int32; (-1, -1) for none.
        number: (K,), the number of the list to which each goes; see `list_numbers`.

    Returns:
        Lists of (K, 2) int32; together they have the entries of `pairs` at their places.
    """
    last = int(number.max(initial=NONE))
    if last <= 0:
        return [pairs] * (last + 1)
    return [np.where((number == part)[:, None], pairs, np.int32(NONE)) for part in range(last + 1)]


def list_numbers(pairs: IntArray, matrix_of_submatrix: IntArray) -> NDArray[np.int64]:
    """Returns for each place how often its row of a matrix stands before it; -1 for none.

    Submatrices of one matrix count as overlapping, since two dim-range nodes may overlap.

    Args:
        pairs: (K, 2) int32, submatrix and row; (-1, -1) for none.
        matrix_of_submatrix: (S,) int32.
    """
    present = pairs[:, 0] >= 0
    number = np.full(len(pairs), NONE, np.int64)
    if present.any():
        matrix = matrix_of_submatrix[pairs[present, 0]].astype(np.int64)
        number[present] = occurrence(matrix * (int(pairs[:, 1].max()) + 1) + pairs[present, 1])
    return number


def occurrence(values: NDArray[np.int64] | IntArray) -> NDArray[np.int64]:
    """Returns for each place how often its value occurs before it: (K,) int64."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begin = np.maximum.accumulate(np.where(run_starts(ordered), np.arange(len(ordered)), 0))
    number = np.empty(len(ordered), np.int64)
    number[order] = np.arange(len(ordered)) - begin
    return number
