"""All analyses of one computation, each made at its first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.structure import component_properties

from nnet3_computation.analysis.accesses import (
    READ,
    WRITE,
    AccessLists,
    Lifetimes,
    PairLists,
    SubmatrixAccesses,
    matrix_accesses,
    memos,
    variable_accesses,
)
from nnet3_computation.analysis.layout import Layout, Variables
from nnet3_computation.analysis.uses import Uses
from nnet3_computation.arrays import Bools, Csr, Ids, where
from nnet3_computation.commands import (
    OPCODE_COLUMN,
    SCHEMA,
    AllocMatrixZeroed,
    Propagate,
    Table,
    is_loop,
)
from nnet3_computation.computation import NnetComputation

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


class Flow(NamedTuple):
    """Pairs of commands: one reads the result of the other.

    Attributes:
        reader: (P,) int64, commands that read a variable, or use a memo.
        writer: (P,) int64, the command that wrote the variable last before, or made the memo.
    """

    reader: Ids
    writer: Ids

    @classmethod
    def of(cls, table: Table, lists: AccessLists) -> Self:
        """Finds the pairs, through variables and through memos.

        Args:
            table: (C, TABLE_WIDTH) int32, the commands.
            lists: The accesses to each variable.
        """
        writes = (lists.access & WRITE) != 0
        # The last write before each access; it is of another variable if there is none.
        last_write = np.maximum.accumulate(np.where(writes, np.arange(len(writes)), 0))
        last_write = np.concatenate([last_write[:1], last_write[:-1]])
        thing = lists.thing
        reads = (lists.access & READ) != 0
        reads &= (thing[last_write] == thing) & (last_write < np.arange(len(writes)))
        reads &= writes[last_write]
        memo_reader, memo_writer = _memo_edges(table)
        return cls(
            np.concatenate([lists.command[reads], memo_reader]),
            np.concatenate([lists.command[last_write[reads]], memo_writer]),
        )


def feeding(table: Table, lists: AccessLists) -> Bools:
    """Returns which commands, (C,) bool, write something that another one reads, or make a memo.

    A result is read if the next access to its elements does not set all of them.

    Args:
        table: (C, TABLE_WIDTH) int32, the commands.
        lists: The accesses to each variable.
    """
    is_read = ((lists.access[1:] & READ) != 0) & lists.follows[1:]
    is_read &= (lists.access[:-1] & WRITE) != 0
    feeds = np.zeros(len(table), dtype=np.bool_)
    feeds[lists.command[:-1][is_read]] = True
    feeds[_memo_edges(table)[1]] = True
    return feeds


def _memo_edges(table: Table) -> tuple[Ids, Ids]:
    named = memos(table)
    command = where(named != 0)
    # A file may have any numbers, so a table by number could need gigabytes.
    memo = np.unique(named[command], return_inverse=True)[1]
    makes = table[command, OPCODE_COLUMN] == Propagate.OPCODE
    maker = np.full(int(memo.max(initial=0)) + 1, -1)
    maker[memo[makes]] = command[makes]
    used = ~makes & (maker[memo] >= 0)
    return command[used], maker[memo[used]]


NO_VARIABLES = np.zeros(0, dtype=np.int64)


@attrs.frozen(kw_only=True, eq=False)
class CommandAttributes:
    """The accesses of one command; each array is ascending and has no duplicates.

    A command that changes only a part of a matrix both reads and writes the matrix.
    """

    variables_read: Ids
    variables_written: Ids
    submatrices_read: Ids
    submatrices_written: Ids
    matrices_read: Ids
    matrices_written: Ids
    has_side_effects: bool


@attrs.define(kw_only=True, eq=False, repr=False, slots=False)
class Analysis:
    """The reads, writes, allocations and deallocations of the commands of a computation.

    Each result is computed at its first use. A pass that knows one, because it changed nothing
    there, sets it.

    Attributes:
        layout: The matrices and submatrices.
        table: (C, TABLE_WIDTH) int32, the commands.
        pair_lists: The lists of submatrices and rows that commands refer to.
        component_properties: (components,) int32, bits of `ComponentProperties`.
    """

    layout: Layout = attrs.field(on_setattr=attrs.setters.frozen)
    table: Table = attrs.field(on_setattr=attrs.setters.frozen)
    pair_lists: PairLists = attrs.field(on_setattr=attrs.setters.frozen)
    component_properties: npt.NDArray[np.int32] = attrs.field(on_setattr=attrs.setters.frozen)

    @classmethod
    def of(cls, nnet: Nnet, computation: NnetComputation) -> Self:
        """Returns the analysis of a computation, which may be of another network."""
        return cls(
            layout=Layout(matrices=computation.matrices, submatrices=computation.submatrices),
            table=computation.command_table,
            pair_lists=PairLists(computation.indexes_multi),
            component_properties=component_properties(nnet),
        )

    @cached_property
    def opcodes(self) -> Ids:
        """(C,) int64, the kinds of the commands; as wide as positions, so that lookups are fast."""
        return self.table[:, OPCODE_COLUMN].astype(np.int64)

    @property
    def matrices(self) -> Table:
        """(M, 2) int32: rows, columns."""
        return self.layout.matrices

    @property
    def submatrices(self) -> Table:
        """(S, 5) int32: matrix, row_offset, num_rows, col_offset, num_cols."""
        return self.layout.submatrices

    def positions(self, *opcodes: int) -> Ids:
        """Returns the positions of the commands of these kinds, ascending."""
        wanted = self.opcodes == opcodes[0]
        for opcode in opcodes[1:]:
            wanted |= self.opcodes == opcode
        return where(wanted)

    def __repr__(self) -> str:
        return f"<Analysis of {len(self.table)} commands, {len(self.matrices) - 1} matrices>"

    @property
    def variables(self) -> Variables:
        """The finest parts of matrices that submatrices tell apart."""
        return self.layout.variables

    def take_over(self, other: Analysis, *names: str) -> None:
        """Takes over results of another analysis that are the same here, as far as it has them."""
        known = vars(other)
        vars(self).update({name: known[name] for name in names if name in known})

    @cached_property
    def submatrix_accesses(self) -> SubmatrixAccesses:
        """The submatrices that commands read and write, by command."""
        return SubmatrixAccesses.of(
            self.opcodes, self.table, self.pair_lists, self.component_properties
        )

    @cached_property
    def matrix_accesses(self) -> AccessLists:
        """The commands that access each matrix; allocation with zeros counts as a write."""
        return matrix_accesses(self.layout, self.submatrix_accesses)

    @cached_property
    def variable_accesses(self) -> AccessLists:
        """The commands that access each variable."""
        return variable_accesses(self.variables, self.submatrix_accesses)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """Where matrices are allocated and freed, and which are inputs and outputs."""
        return Lifetimes.of(self.opcodes, self.table, self.matrices, self.submatrices)

    @cached_property
    def matrix_use(self) -> tuple[Ids, Ids]:
        """The first and the last command that accesses each matrix, (M,) each; -1 for none.

        Allocation with zeros does not count.
        """
        accesses = self.submatrix_accesses
        counts = where(self.opcodes.take(accesses.command) != AllocMatrixZeroed.OPCODE)
        command = accesses.command.take(counts)
        matrix = self.layout.matrix_of.take(accesses.submatrix.take(counts))
        first, last = np.full((2, len(self.matrices)), -1, dtype=np.int64)
        # If NumPy assigns to one element several times, the last assignment holds.
        first[matrix[::-1]] = command[::-1]
        last[matrix] = command
        return first, last

    @cached_property
    def uses(self) -> Uses:
        """The accesses to submatrices by matrix; allocation with zeros does not count."""
        return Uses(self.layout, self.submatrix_accesses, self.opcodes)

    def accesses_within(self, matrices: Ids) -> SubmatrixAccesses:
        """Returns the accesses to submatrices of some matrices, by command."""
        wanted = np.zeros(len(self.matrices), dtype=np.bool_)
        wanted[matrices] = True
        accesses = self.submatrix_accesses
        return accesses.at(where(wanted.take(self.layout.matrix_of.take(accesses.submatrix))))

    def accesses_to_matrices(self, matrices: Ids) -> AccessLists:
        """Returns the commands that access some matrices; the lists of others are empty.

        A write to a part of the matrix reads and writes it.
        """
        return matrix_accesses(self.layout, self.accesses_within(matrices))

    @cached_property
    def has_side_effects(self) -> Bools:
        """(C,) bool: whether a command does more than write to its operands."""
        opcodes = self.opcodes
        has: Bools = SCHEMA.side_effects.take(opcodes)
        runs = where(SCHEMA.side_effects_if.take(opcodes) != 0)
        kind = opcodes[runs]
        component = self.table[runs, SCHEMA.component_column.take(kind)]
        properties = self.component_properties.take(component)
        has[runs] |= (SCHEMA.side_effects_if.take(kind) & properties) != 0
        return has

    @cached_property
    def flow(self) -> Flow:
        """The pairs of commands of which one reads the result of the other."""
        return Flow.of(self.table, self.variable_accesses)

    @cached_property
    def feeds(self) -> Bools:
        """(C,) bool: whether another command reads the result of a command, or uses its memo."""
        return feeding(self.table, self.variable_accesses)

    @cached_property
    def _is_trivial(self) -> Bools:
        """Which of `variable_accesses`, (A,), is allocation with zeros, always the first one."""
        is_trivial: Bools = (
            self.opcodes.take(self.variable_accesses.command) == AllocMatrixZeroed.OPCODE
        )
        return is_trivial

    @cached_property
    def first_use(self) -> Ids:
        """(V,) int64: the first of `variable_accesses` to each variable that is not an allocation.

        It is the length of `variable_accesses` if there is none.
        """
        lists = self.variable_accesses
        count = len(lists.command)
        place = lists.splits[:-1].copy()
        accessed = where(lists.is_accessed)
        place[accessed] += self._is_trivial.take(place[accessed])
        place[place >= lists.splits[1:]] = count
        return place

    @cached_property
    def first_user(self) -> Ids:
        """(V,) int64: the first command, except the allocation, that accesses each variable.

        It is the number of commands if there is none.
        """
        return np.append(self.variable_accesses.command, len(self.table)).take(self.first_use)

    @cached_property
    def needs_zeros(self) -> Bools:
        """(M,) bool: whether a command may read the zeros that the matrix is allocated with.

        It does if the first access to one of its variables is not a pure write, or if the user is
        given a variable that nothing accesses.
        """
        return self.needs_zeros_without(NO_VARIABLES)

    def needs_zeros_without(self, variables: Ids) -> Bools:
        """Returns `needs_zeros`, (M,) bool, without looking at some variables."""
        first_access = np.append(self.variable_accesses.access, 0).take(self.first_use)
        first_access[variables] = WRITE
        variable = where(first_access != WRITE)
        owner = self.variables.matrix.take(variable)
        is_looked_at = (first_access.take(variable) != 0) | self.lifetimes.is_output.take(owner)
        needs = np.zeros(len(self.matrices), dtype=np.bool_)
        needs[owner[is_looked_at]] = True
        return needs

    def named_submatrices(self, commands: Bools) -> Ids:
        """Returns the submatrices that commands name, also in lists and without accessing them.

        Args:
            commands: (C,) bool: the commands to look at.
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
        """(C,) bool: whether a command writes only to elements that are still zero from allocation.

        All False in a loop, where a command may find values of an earlier round.
        """
        if is_loop(self.table):
            return np.zeros(len(self.table), dtype=np.bool_)
        lists, is_trivial = self.variable_accesses, self._is_trivial
        late = ((lists.access & WRITE) != 0) & ~is_trivial
        late[1:] &= ~(is_trivial[:-1] & lists.follows[1:])
        finds = np.ones(len(self.table), dtype=np.bool_)
        finds[lists.command[late]] = False
        return finds

    def command_attributes(self, command: int) -> CommandAttributes:
        """Returns the accesses of one command."""
        accesses = self.submatrix_accesses
        begin, end = np.searchsorted(accesses.command, [command, command + 1])
        submatrix, access = accesses.submatrix[begin:end], accesses.access[begin:end]
        variables = self.variables.of_submatrices(submatrix)
        reads, writes = (access & READ) != 0, (access & WRITE) != 0
        changes_part = writes & ~self.layout.is_whole[submatrix]
        matrix = self.layout.matrix_of[submatrix]
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

    Raises:
        ComputationError: The computation is of another network.
    """
    computation.check_network(nnet)
    return Analysis.of(nnet, computation)
