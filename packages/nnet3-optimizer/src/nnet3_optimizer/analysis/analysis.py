"""All analyses of one computation, each made when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler.commands import SCHEMA, AllocMatrixZeroed
from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.declaration import OPCODE_COLUMN
from nnet3_compiler.steps.network import component_properties

from nnet3_optimizer.analysis.accesses import (
    READ,
    WRITE,
    Accesses,
    AccessLists,
    Lifetimes,
    SubmatrixAccesses,
    matrix_accesses,
    variable_accesses,
)
from nnet3_optimizer.analysis.csr import Bools, Csr, Ids, where
from nnet3_optimizer.analysis.flow import Flow
from nnet3_optimizer.analysis.layout import Layout
from nnet3_optimizer.analysis.pair_lists import PairLists
from nnet3_optimizer.analysis.variables import MATRIX, Table, Variables
from nnet3_optimizer.loops import is_loop

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


@attrs.frozen(kw_only=True, eq=False)
class CommandAttributes:
    """What one command does; each array is ascending and has no duplicates.

    A command that changes only a part of a matrix both reads and writes the matrix.
    """

    variables_read: Ids
    variables_written: Ids
    submatrices_read: Ids
    submatrices_written: Ids
    matrices_read: Ids
    matrices_written: Ids
    has_side_effects: bool


@attrs.frozen(kw_only=True, eq=False)
class Analysis:
    """What the commands of a computation read, write, allocate and free.

    Attributes:
        layout: The matrices and submatrices.
        table: (C, TABLE_WIDTH) int32, the commands.
        pair_lists: The lists of submatrices and rows that commands refer to.
        component_properties: (components,) int32, bits of `ComponentProperties`.
    """

    layout: Layout
    table: Table
    pair_lists: PairLists
    component_properties: npt.NDArray[np.int32]

    @property
    def opcodes(self) -> Table:
        """(C,) int32."""
        return self.table[:, OPCODE_COLUMN]

    @property
    def matrices(self) -> Table:
        """(M, 2) int32: rows, columns."""
        return self.layout.matrices

    @property
    def submatrices(self) -> Table:
        """(S, 5) int32: matrix, row_offset, num_rows, col_offset, num_cols."""
        return self.layout.submatrices

    @property
    def variables(self) -> Variables:
        """The finest parts of matrices that submatrices tell apart."""
        return self.layout.variables

    @cached_property
    def submatrix_accesses(self) -> SubmatrixAccesses:
        """The submatrices that commands read and write, by command."""
        return SubmatrixAccesses.of(self.table, self.pair_lists, self.component_properties)

    @cached_property
    def variable_accesses(self) -> AccessLists:
        """The commands that access each variable."""
        return variable_accesses(self.variables, self.submatrix_accesses)

    @cached_property
    def matrix_accesses(self) -> AccessLists:
        """The commands that access each matrix; allocation with zeros counts as a write."""
        return matrix_accesses(self.layout, self.submatrix_accesses)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """Where matrices are allocated and freed, and which are inputs and outputs."""
        return Lifetimes.of(self.table, self.matrices, self.submatrices)

    @cached_property
    def matrix_use(self) -> tuple[Ids, Ids]:
        """The first and the last command that accesses each matrix, (M,) each; -1 for none.

        Allocation with zeros does not count.
        """
        accesses = self.submatrix_accesses
        counts = self.opcodes[accesses.command] != AllocMatrixZeroed.OPCODE
        command = accesses.command[counts]
        matrix = self.submatrices[accesses.submatrix[counts], MATRIX]
        first, last = np.full((2, len(self.matrices)), -1, dtype=np.int64)
        # Of several assignments to one element the last one holds.
        first[matrix[::-1]] = command[::-1]
        last[matrix] = command
        return first, last

    def accesses_to_matrix(self, matrix: int) -> tuple[Ids, Accesses]:
        """Returns the commands that access one matrix, ascending, and how.

        A write to a part of the matrix reads and writes it.
        """
        return self.matrix_accesses[matrix]

    @cached_property
    def has_side_effects(self) -> Bools:
        """(C,) bool: whether a command does more than write to its operands."""
        opcodes = self.opcodes
        has: Bools = SCHEMA.side_effects[opcodes].copy()
        column = SCHEMA.component_column[opcodes]
        runs = where(column > 0)
        component = self.table[runs, column[runs]]
        properties = self.component_properties[component]
        has[runs] |= (SCHEMA.side_effects_if[opcodes[runs]] & properties) != 0
        return has

    @cached_property
    def flow(self) -> Flow:
        """Who reads what another command wrote last."""
        return Flow.of(self.table, self.variable_accesses)

    @cached_property
    def nontrivial_accesses(self) -> AccessLists:
        """The accesses to each variable other than allocation with zeros."""
        lists = self.variable_accesses
        return lists.only(self.opcodes[lists.command] != AllocMatrixZeroed.OPCODE)

    def named_submatrices(self, commands: Bools) -> Ids:
        """Returns the submatrices that commands name, also in lists and without accessing them.

        Args:
            commands: (C,) bool: which commands to look at.
        """
        is_named = np.zeros(len(self.submatrices), dtype=np.bool_)
        table = self.table if commands.all() else self.table[commands]
        is_named[table[SCHEMA.is_matrix[table[:, OPCODE_COLUMN]]]] = True
        accesses = self.submatrix_accesses
        is_named[accesses.submatrix[commands[accesses.command]]] = True
        is_named[0] = False
        return where(is_named)

    @cached_property
    def writes_into_zeros(self) -> Bools:
        """(C,) bool: whether all that a command writes to is as allocated with zeros.

        In a loop, where a command finds what an earlier round left, this is not claimed of any.
        """
        if is_loop(self.table):
            return np.zeros(len(self.table), dtype=np.bool_)
        every, nontrivial = self.variable_accesses, self.nontrivial_accesses
        is_zeroed = (every.splits - nontrivial.splits)[1:] > (every.splits - nontrivial.splits)[:-1]
        is_first = np.zeros(len(nontrivial.command), dtype=np.bool_)
        is_first[nontrivial.splits[:-1][nontrivial.is_accessed]] = True
        late = ((nontrivial.access & WRITE) != 0) & ~(is_first & is_zeroed[nontrivial.thing])
        finds = np.ones(len(self.table), dtype=np.bool_)
        finds[nontrivial.command[late]] = False
        return finds

    def command_attributes(self, command: int) -> CommandAttributes:
        """Returns what one command reads and writes."""
        accesses = self.submatrix_accesses
        begin, end = np.searchsorted(accesses.command, [command, command + 1])
        submatrix, access = accesses.submatrix[begin:end], accesses.access[begin:end]
        variables = self.variables.of_submatrices(submatrix)
        reads, writes = (access & READ) != 0, (access & WRITE) != 0
        changes_part = writes & ~self.layout.is_whole[submatrix]
        matrix = self.submatrices[submatrix, MATRIX].astype(np.int64)
        return CommandAttributes(
            variables_read=_united(variables, reads),
            variables_written=_united(variables, writes),
            submatrices_read=np.unique(submatrix[reads]),
            submatrices_written=np.unique(submatrix[writes]),
            matrices_read=np.unique(matrix[reads | changes_part]),
            matrices_written=np.unique(matrix[writes]),
            has_side_effects=bool(self.has_side_effects[command]),
        )


def _united(lists: Csr, wanted: Bools) -> Ids:
    return np.unique(lists.values[np.repeat(wanted, np.diff(lists.splits))])


def analyze(nnet: Nnet, computation: NnetComputation) -> Analysis:
    """Analyses a computation.

    Args:
        nnet: The network that the computation was compiled for.
        computation: The computation.

    Returns:
        An object that makes each analysis when it is first asked for.
    """
    return Analysis(
        layout=Layout(matrices=computation.matrices, submatrices=computation.submatrices),
        table=computation.command_table,
        pair_lists=PairLists(computation.indexes_multi),
        component_properties=component_properties(nnet),
    )
