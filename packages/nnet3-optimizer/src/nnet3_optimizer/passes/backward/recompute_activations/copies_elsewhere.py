"""Matrices that are made again from their own copies."""

from __future__ import annotations

import numpy as np
from nnet3_computation.analysis import (
    COL_OFFSET,
    MATRIX,
    NUM_COLS,
    NUM_ROWS,
    ROW_OFFSET,
    CommandKinds,
)
from nnet3_computation.arrays import Ids
from nnet3_computation.commands import OPCODE_COLUMN, CopyRows, MatrixCopy, Table

from nnet3_optimizer.passes.backward.recompute_activations.kept import (
    INDEXES,
    INPUT,
    OUTPUT,
    Kept,
    Recipe,
    by_key,
    copy_of,
)
from nnet3_optimizer.passes.backward.recompute_activations.row_mappings import (
    NO_ROW,
    Rows,
    as_array,
    count_up,
    inverted,
    members,
)

_FROM_ONE_MATRIX = CommandKinds.of(MatrixCopy, CopyRows)


class CopiesElsewhere:
    """Matrices whose rows were all copied to one other matrix."""

    def __init__(self, kept: Kept) -> None:
        self._kept, self._draft, self._uses = kept, kept.draft, kept.uses
        self._copied = self._copies(kept.reads_by(_FROM_ONE_MATRIX))

    def _copies(self, reads: Ids) -> dict[int, list[int]]:
        """By matrix the commands that copy some of its rows, whole ones, to other matrices."""
        matrix, command = self._uses.matrix[reads], self._uses.command[reads]
        given, output = self._operands(command)
        num_rows, num_cols = self._draft.matrices.T
        fits = (given[:, NUM_COLS] == num_cols[matrix]) & (output[:, MATRIX] != matrix)
        copied = np.bincount(matrix, output[:, NUM_ROWS] * fits, minlength=len(num_rows))
        fits &= copied[matrix] >= num_rows[matrix]
        return by_key(matrix[fits], command[fits].tolist())

    def _operands(self, commands: Ids) -> tuple[Table, Table]:
        """The submatrices that copies read and write, (N, 5) each."""
        rows = self._draft.table[commands]
        return self._draft.submatrices[rows[:, INPUT]], self._draft.submatrices[rows[:, OUTPUT]]

    def find(self, matrix: int) -> Recipe | None:
        """Returns the recipe for a matrix; None if there is none."""
        if matrix not in self._copied:
            return None
        commands = np.array(self._copied[matrix])
        given, output = self._operands(commands)
        num_rows = int(self._draft.matrices[matrix, 0])
        first_backward = self._kept.first_backward(matrix)
        places = output[:, [MATRIX, COL_OFFSET]].tolist()
        for source, column in dict.fromkeys(map(tuple, places)):
            there = (output[:, MATRIX] == source) & (output[:, COL_OFFSET] == column)
            counts = output[there, NUM_ROWS].astype(np.int64)
            if counts.sum() < num_rows:
                continue
            lost = self._uses.rows_written_to(output[there], commands[there], first_backward)
            if lost is not None and counts.sum() - lost.sum() < num_rows:
                continue
            from_rows = self._rows_copied(commands[there], given[there], counts)
            if lost is not None:
                from_rows = np.where(lost, NO_ROW, as_array(from_rows))
            there_rows = members(output[there, ROW_OFFSET], counts)
            rows = inverted(from_rows, there_rows, num_rows)
            if rows is not None:
                step = self._gather(matrix, source, column, rows)
                return self._kept.recipe(matrix, np.array([step], np.int32), {source})
        return None

    def _rows_copied(self, commands: Ids, given: Table, counts: Ids) -> Rows:
        """Which rows of a matrix commands copy, or NO_ROW, one command after the other.

        Args:
            commands: (N,) the commands.
            given: (N, 5) what they copy from.
            counts: (N,) how many rows they copy.
        """
        table = self._draft.table[commands]
        if (table[:, OPCODE_COLUMN] == MatrixCopy.OPCODE).all():
            return members(given[:, ROW_OFFSET], counts)
        rows = []
        for row, first, count in zip(
            table.tolist(), given[:, ROW_OFFSET].tolist(), counts.tolist(), strict=True
        ):
            if row[OPCODE_COLUMN] == CopyRows.OPCODE:
                indexes = self._draft.indexes[row[INDEXES]]
                rows.append(np.where(indexes < 0, NO_ROW, indexes + first) if first else indexes)
            else:
                rows.append(np.arange(first, first + count, dtype=np.int32))
        return np.concatenate(rows)

    def _gather(self, matrix: int, source: int, column: int, rows: Rows) -> list[int]:
        """The command that copies these rows of a matrix, from a column on, to another matrix."""
        cols = int(self._draft.matrices[matrix, 1])
        whole = int(self._draft.layout.whole_submatrix[matrix])
        given = [source, int(rows[0]), len(rows), column, cols]
        if isinstance(rows, range) or count_up(rows):
            return copy_of(whole, int(self._kept.edit.submatrices(np.array([given]))[0]))
        # Only up to the rows that are read: the others may not be written yet.
        first, last = int(rows.min()), int(rows.max())
        given[ROW_OFFSET], given[NUM_ROWS] = first, last + 1 - first
        row = copy_of(whole, int(self._kept.edit.submatrices(np.array([given]))[0]))
        row[OPCODE_COLUMN], row[INDEXES] = CopyRows.OPCODE, self._kept.edit.indexes(rows - first)
        return row
