"""The accesses to each matrix: which command, and which part of the matrix."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from nnet3_descriptors.indexes import distinct

from nnet3_computation.analysis.accesses import WRITE, SubmatrixAccesses
from nnet3_computation.analysis.layout import (
    COL_OFFSET,
    NUM_COLS,
    NUM_ROWS,
    ROW_OFFSET,
    Layout,
    overlap,
)
from nnet3_computation.arrays import Bools, Ids, expand_ranges, ordering, splits_of, where
from nnet3_computation.commands import AllocMatrixZeroed, Table

_COMMAND_BITS = 32
_FIRST_ROW = np.zeros(1, dtype=np.int32)


class Rectangle(NamedTuple):
    """A submatrix as numbers of Python: some rows and columns of a matrix."""

    matrix: int
    row: int
    rows: int
    col: int
    cols: int

    def contains(self, other: Rectangle) -> bool:
        """Returns whether another rectangle of the same matrix lies within this one."""
        return (
            self.row <= other.row
            and other.row + other.rows <= self.row + self.rows
            and self.col <= other.col
            and other.col + other.cols <= self.col + self.cols
        )


class Reads(NamedTuple):
    """Submatrices that commands read and do not write; each array is (N,).

    Attributes:
        command: The commands.
        submatrix: The submatrices.
        matrix: Their matrices.
    """

    command: Ids
    submatrix: Ids
    matrix: Ids


class Uses:
    """The accesses to submatrices, by matrix; not allocation.

    Attributes:
        matrix, command, submatrix: (A,) int64, ordered by matrix, then by command.
        writes: (A,) bool.
        splits: (M + 1,) int64; the accesses to matrix m are splits[m] <= a < splits[m + 1].
        last_write: (M,) int64, the last command that writes to each matrix, or -1.
    """

    def __init__(self, layout: Layout, accesses: SubmatrixAccesses, opcodes: Ids) -> None:
        """Sorts the accesses.

        Args:
            layout: The matrices and submatrices.
            accesses: The accesses by command.
            opcodes: (C,) int64, the kinds of the commands.
        """
        self._submatrices = layout.submatrices
        self._num_rows = layout.matrices[:, 0]
        self._accesses = accesses
        self._rectangles: dict[int, Rectangle] = {}
        self._matrix_of = layout.matrix_of
        counts = where(opcodes.take(accesses.command) != AllocMatrixZeroed.OPCODE)
        matrix = layout.matrix_of.take(accesses.submatrix.take(counts))
        order = ordering(matrix)
        at = counts.take(order)
        self.matrix: Ids = matrix.take(order)
        self.command: Ids = accesses.command.take(at)
        self.submatrix: Ids = accesses.submatrix.take(at)
        self.writes: Bools = (accesses.access.take(at) & WRITE) != 0
        self.splits = splits_of(np.bincount(matrix, minlength=len(layout.matrices)))
        self._users: dict[int, tuple[list[int], list[int]]] = {}
        self._last_writes: dict[tuple[int, int, int, int], tuple[Ids, Ids]] = {}

    @cached_property
    def last_write(self) -> Ids:
        """(M,) int64, the last command that writes to each matrix, or -1."""
        last = np.full(len(self.splits) - 1, -1, dtype=np.int64)
        # Of several assignments to one element the last one holds.
        last[self.matrix[self.writes]] = self.command[self.writes]
        return last

    def rectangle(self, submatrix: int) -> Rectangle:
        """Returns a submatrix as numbers of Python."""
        found = self._rectangles.get(submatrix)
        if found is None:
            found = self._rectangles[submatrix] = Rectangle(*self._submatrices[submatrix].tolist())
        return found

    def matrix_of(self, submatrix: int) -> int:
        """Returns the matrix that a submatrix is a part of."""
        return self.rectangle(submatrix).matrix

    def of_matrix(self, matrix: int) -> slice:
        """Returns the accesses to a matrix, in the order of the commands."""
        return slice(int(self.splits[matrix]), int(self.splits[matrix + 1]))

    def of_matrices(self, matrices: Ids) -> Ids:
        """Returns the accesses to some matrices, one matrix after the other."""
        begin = self.splits[matrices]
        return expand_ranges(begin, self.splits[matrices + 1] - begin)

    def around(self, matrices: Ids, command: int) -> tuple[Ids, Ids]:
        """Returns for matrices the last users before a command, and the first users from it on.

        Args:
            matrices: (N,) matrices that are used before and after the command.
            command: The command.
        """
        place = self._keys.searchsorted((matrices << _COMMAND_BITS) | command)
        return self.command[place - 1], self.command[place]

    @cached_property
    def _keys(self) -> Ids:
        """(A,) int64, ascending: matrix and command in one number."""
        keys: Ids = (self.matrix << _COMMAND_BITS) | self.command
        return keys

    def users_of(self, matrix: int, *, writing: bool) -> list[int]:
        """Returns the commands that write to a matrix, or only read it, each once, in order."""
        if matrix not in self._users:
            at = self.of_matrix(matrix)
            readers: dict[int, None] = {}
            writers: dict[int, None] = {}
            for command, writes in zip(
                self.command[at].tolist(), self.writes[at].tolist(), strict=True
            ):
                (writers if writes else readers)[command] = None
            self._users[matrix] = list(readers), list(writers)
        return self._users[matrix][writing]

    def reads_of(self, commands: Ids) -> Reads:
        """Returns the submatrices that commands read and do not write, command by command."""
        accesses = self._accesses
        begin = np.searchsorted(accesses.command, commands)
        count = np.searchsorted(accesses.command, commands, side="right") - begin
        at = expand_ranges(begin, count)
        at = at[(accesses.access[at] & WRITE) == 0]
        submatrix = accesses.submatrix[at]
        return Reads(accesses.command[at], submatrix, self._matrix_of.take(submatrix))

    def stay(self, reads: Reads, before: int) -> bool:
        """Returns whether all that was read is still unchanged when another command begins."""
        # Most matrices are not written to again; only the others need a look.
        changed = where(self.last_write[reads.matrix] > reads.command)
        return all(
            self.is_unchanged(int(reads.submatrix[at]), int(reads.command[at]), before)
            for at in changed.tolist()
        )

    def is_unchanged(self, submatrix: int, after: int, before: int) -> bool:
        """Returns whether no command between two others writes to a submatrix."""
        matrix = self.matrix_of(submatrix)
        if int(self.last_write[matrix]) <= after:
            return True
        key = matrix << _COMMAND_BITS
        begin, end = self._keys.searchsorted([key | (after + 1), key | before]).tolist()
        written = self.submatrix[begin:end][self.writes[begin:end]]
        parts = self._submatrices.take(written, axis=0)
        return not overlap(parts, self._submatrices[[submatrix]]).any()

    def rows_written_to(self, parts: Table, after: Ids, before: int) -> Bools | None:
        """Returns which rows of parts of a matrix later commands write to, before another one.

        Args:
            parts: (N, 5) submatrices, the same columns of one matrix.
            after: (N,) the command for each of them after which others count.
            before: The command before which they count.

        Returns:
            (total,) bool for each row of the first part, then of the next; None if no row is
            written.
        """
        matrix, _, _, col, cols = parts[0].tolist()
        if int(self.last_write[matrix]) <= int(after.min()):
            return None
        begins, last = self._last_writes_to(matrix, col, cols, before)
        row, rows = parts[:, [ROW_OFFSET, NUM_ROWS]].T.astype(np.int64)
        first = begins.searchsorted(row, side="right") - 1
        counts = begins.searchsorted(row + rows) - first
        piece = expand_ranges(first, counts)
        is_written: Bools = last[piece] > np.repeat(after, counts)
        if not is_written.any():
            return None
        ends = np.append(begins[1:], self._num_rows[matrix])
        lengths = np.minimum(ends[piece], np.repeat(row + rows, counts))
        lengths -= np.maximum(begins[piece], np.repeat(row, counts))
        return is_written.repeat(lengths)

    def _last_writes_to(self, matrix: int, col: int, cols: int, before: int) -> tuple[Ids, Ids]:
        """Returns the last commands before another that write to some columns of a matrix.

        Returns:
            Where ranges of rows begin, (R,) ascending from 0 on, and the last command that writes
            to each of them, (R,), or -1.
        """
        key = matrix, col, cols, before
        if key not in self._last_writes:
            at = self.of_matrix(matrix)
            counts = self.writes[at] & (self.command[at] < before)
            written = self._submatrices[self.submatrix[at][counts]]
            begin, end = written[:, COL_OFFSET], written[:, COL_OFFSET] + written[:, NUM_COLS]
            meets = (begin < col + cols) & (end > col)
            written = written[meets]
            row, rows = written[:, ROW_OFFSET], written[:, NUM_ROWS]
            begins = distinct(np.concatenate([_FIRST_ROW, row, row + rows]))
            begins = begins[begins < max(1, int(self._num_rows[matrix]))]
            first = begins.searchsorted(row)
            touched = begins.searchsorted(row + rows) - first
            last = np.full(len(begins), -1, dtype=np.int64)
            commands = self.command[at][counts][meets]
            last[expand_ranges(first, touched)] = np.repeat(commands, touched)
            self._last_writes[key] = begins, last
        return self._last_writes[key]
