"""Who uses which part of a matrix, looked up matrix by matrix."""

from __future__ import annotations

import numpy as np
from nnet3_compiler.commands import AllocMatrixZeroed
from nnet3_optimizer.analysis.accesses import WRITE
from nnet3_optimizer.analysis.csr import Bools, Ids, ordering, splits_of
from nnet3_optimizer.analysis.variables import MATRIX, overlap
from nnet3_optimizer.program import Program


class Uses:
    """The accesses of a program to submatrices, by matrix and by command; not allocation.

    Attributes:
        command, submatrix: (A,) int64, ordered by command.
        writes: (A,) bool.
    """

    def __init__(self, program: Program) -> None:
        accesses = program.analysis.submatrix_accesses
        counts = program.opcodes[accesses.command] != AllocMatrixZeroed.OPCODE
        self._submatrices = program.submatrices
        self.command = accesses.command[counts]
        self.submatrix = accesses.submatrix[counts]
        self.writes: Bools = (accesses.access[counts] & WRITE) != 0
        matrix = program.submatrices[self.submatrix, MATRIX].astype(np.int64)
        self._by_matrix = ordering(matrix)
        self._splits = splits_of(np.bincount(matrix, minlength=len(program.matrices)))
        self._by_command = np.searchsorted(self.command, np.arange(len(program.table) + 1))

    def of_matrix(self, matrix: int) -> Ids:
        """Returns the accesses to a matrix, in the order of the commands."""
        return self._by_matrix[self._splits[matrix] : self._splits[matrix + 1]]

    def of_command(self, command: int) -> Ids:
        """Returns the accesses of a command."""
        return np.arange(self._by_command[command], self._by_command[command + 1])

    def read_by(self, command: int) -> list[int]:
        """Returns the submatrices that a command reads and does not write."""
        at = self.of_command(command)
        submatrices: list[int] = self.submatrix[at[~self.writes[at]]].tolist()
        return submatrices

    def is_unchanged(self, submatrix: int, after: int, before: int) -> bool:
        """Returns whether no command between two others writes to a submatrix."""
        at = self.of_matrix(int(self._submatrices[submatrix, MATRIX]))
        at = at[self.writes[at] & (self.command[at] > after) & (self.command[at] < before)]
        part = self._submatrices[[submatrix]]
        return not overlap(self._submatrices[self.submatrix[at]], part).any()
