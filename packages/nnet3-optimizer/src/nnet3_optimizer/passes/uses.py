"""Who uses which part of a matrix, looked up matrix by matrix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from nnet3_compiler.arrays import expand_ranges
from nnet3_compiler.commands import AllocMatrixZeroed
from nnet3_optimizer.analysis.accesses import WRITE
from nnet3_optimizer.analysis.csr import Bools, Ids, ordering, splits_of
from nnet3_optimizer.analysis.variables import COL_OFFSET, MATRIX, NUM_COLS, NUM_ROWS, ROW_OFFSET
from nnet3_optimizer.program import Program


class Part(NamedTuple):
    """A submatrix: some rows and columns of a matrix."""

    matrix: int
    row: int
    rows: int
    col: int
    cols: int

    def contains(self, other: Part) -> bool:
        """Returns whether another part of the same matrix lies within this one."""
        return (
            self.row <= other.row
            and other.row + other.rows <= self.row + self.rows
            and self.col <= other.col
            and other.col + other.cols <= self.col + self.cols
        )


class Parts:
    """The submatrices of a program, by number, as numbers of Python."""

    def __init__(self, program: Program) -> None:
        self._submatrices = program.submatrices
        self._known: dict[int, Part] = {}

    def __getitem__(self, submatrix: int) -> Part:
        """Returns a submatrix."""
        part = self._known.get(submatrix)
        if part is None:
            part = self._known[submatrix] = Part(*self._submatrices[submatrix].tolist())
        return part


class Uses:
    """The accesses of a program to submatrices, by matrix and by command; not allocation.

    Attributes:
        parts: The submatrices of the program.
        command, submatrix: (A,) int64, ordered by command.
        writes: (A,) bool.
    """

    def __init__(self, program: Program) -> None:
        accesses = program.analysis.submatrix_accesses
        counts = program.opcodes[accesses.command] != AllocMatrixZeroed.OPCODE
        self._submatrices = program.submatrices
        self._num_rows = program.matrices[:, 0]
        self.parts = Parts(program)
        self.command = accesses.command[counts]
        self.submatrix = accesses.submatrix[counts]
        self.writes: Bools = (accesses.access[counts] & WRITE) != 0
        matrix = program.submatrices[self.submatrix, MATRIX].astype(np.int64)
        self._by_matrix = ordering(matrix)
        self._splits = splits_of(np.bincount(matrix, minlength=len(program.matrices)))
        self._by_command = np.searchsorted(self.command, np.arange(len(program.table) + 1))
        self._last_write = np.full(len(program.matrices), -1, dtype=np.int64)
        # Of several assignments to one element the last one holds.
        self._last_write[matrix[self.writes]] = self.command[self.writes]
        self._last_writes: dict[tuple[int, int, int, int], Ids] = {}

    def of_matrix(self, matrix: int) -> Ids:
        """Returns the accesses to a matrix, in the order of the commands."""
        return self._by_matrix[self._splits[matrix] : self._splits[matrix + 1]]

    def users_of(self, matrix: int, *, writing: bool) -> list[int]:
        """Returns the commands that write to a matrix, or only read it, each once, in order."""
        at = self.of_matrix(matrix)
        commands = self.command[at[self.writes[at] == writing]]
        return list(dict.fromkeys(commands.tolist()))

    def read_by(self, command: int) -> list[int]:
        """Returns the submatrices that a command reads and does not write."""
        at = slice(int(self._by_command[command]), int(self._by_command[command + 1]))
        submatrices: list[int] = self.submatrix[at][~self.writes[at]].tolist()
        return submatrices

    def reads_of(self, commands: Ids) -> Ids:
        """Returns the accesses of commands to submatrices that they read and do not write."""
        begin, end = self._by_command[commands], self._by_command[commands + 1]
        at = expand_ranges(begin, end - begin)
        reads: Ids = at[~self.writes[at]]
        return reads

    def matrix_of(self, accesses: Ids) -> Ids:
        """Returns the matrix of each access."""
        matrix: Ids = self._submatrices[self.submatrix[accesses], MATRIX].astype(np.int64)
        return matrix

    def may_be_changed(self, accesses: Ids) -> Bools:
        """Returns of which accesses the submatrix may be written to after them.

        This is quick; those of which it is True have to be looked at with `is_unchanged`.
        """
        may: Bools = self._last_write[self.matrix_of(accesses)] > self.command[accesses]
        return may

    def is_unchanged(self, submatrix: int, after: int, before: int) -> bool:
        """Returns whether no command between two others writes to a submatrix."""
        matrix, row, rows, col, cols = self.parts[submatrix]
        if int(self._last_write[matrix]) <= after:
            return True
        last = self.last_writes_to(matrix, col, cols, before)
        return bool(last[row : row + rows].max() <= after)

    def last_writes_to(self, matrix: int, col: int, cols: int, before: int) -> Ids:
        """Returns the last command that writes to some columns of each row, (rows,); or -1."""
        key = matrix, col, cols, before
        if key not in self._last_writes:
            at = self.of_matrix(matrix)
            at = at[self.writes[at] & (self.command[at] < before)]
            written = self._submatrices[self.submatrix[at]]
            begin, end = written[:, COL_OFFSET], written[:, COL_OFFSET] + written[:, NUM_COLS]
            meets = (begin < col + cols) & (end > col)
            counts = written[meets, NUM_ROWS]
            rows = expand_ranges(written[meets, ROW_OFFSET], counts)
            last = np.full(self._num_rows[matrix], -1, dtype=np.int64)
            last[rows] = np.repeat(self.command[at[meets]], counts)
            self._last_writes[key] = last
        return self._last_writes[key]
