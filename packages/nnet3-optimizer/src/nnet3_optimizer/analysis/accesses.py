"""Who reads and writes what: submatrices, variables and matrices, command by command.

Everything follows from the declarations on the command classes. A command that names several
overlapping submatrices has one access to what they share, the union of the accesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler.commands import (
    SCHEMA,
    AcceptInput,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    DeallocMatrix,
    ProvideOutput,
    SwapMatrix,
)
from nnet3_compiler.declaration import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    Access,
    Operand,
    OperandKind,
)

from nnet3_optimizer.analysis.csr import Ids, ordering, splits_of
from nnet3_optimizer.analysis.layout import Layout
from nnet3_optimizer.analysis.pair_lists import PairLists
from nnet3_optimizer.analysis.variables import MATRIX, Table, Variables

Accesses = npt.NDArray[np.int8]

READ, WRITE = int(Access.READ), int(Access.WRITE)
NEVER = -1


@attrs.frozen(kw_only=True, eq=False)
class SubmatrixAccesses:
    """The submatrices that commands read and write, ordered by command.

    Attributes:
        command: (A,) int64, ascending.
        submatrix: (A,) int64; for commands with a list of submatrices and rows, each submatrix of
            the list once.
        access: (A,) int8, values of `Access`.
    """

    command: Ids
    submatrix: Ids
    access: Accesses

    @classmethod
    def of(
        cls,
        table: Table,
        pair_lists: PairLists,
        component_properties: npt.NDArray[np.int32],
    ) -> SubmatrixAccesses:
        """Reads the accesses off the operands of commands.

        Args:
            table: (C, TABLE_WIDTH) int32, the commands.
            pair_lists: What commands with an operand of kind INDEXES_MULTI refer to.
            component_properties: (components,) int32, bits of `ComponentProperties`.
        """
        found = _Found(table, component_properties)
        opcodes = table[:, OPCODE_COLUMN]
        for opcode in np.flatnonzero(np.bincount(opcodes)).tolist():
            command_type = SCHEMA.types[opcode]
            assert command_type is not None
            accessed = [item for item in command_type.OPERANDS if item.access]
            if accessed:
                at = np.flatnonzero(opcodes == opcode)
                found.look_at(opcode, at, accessed, pair_lists)
        return found.accesses()


class _Found:
    """The accesses found so far, in pieces of equal kind."""

    def __init__(self, table: Table, component_properties: npt.NDArray[np.int32]) -> None:
        self.table = table
        self.component_properties = component_properties
        self.commands: list[Ids] = [np.zeros(0, np.int64)]
        self.submatrices: list[Ids] = [np.zeros(0, np.int64)]
        self.kinds: list[Accesses] = [np.zeros(0, np.int8)]

    def look_at(self, opcode: int, at: Ids, operands: Sequence[Operand], lists: PairLists) -> None:
        """Adds the accesses of the commands of one type through these operands."""
        for item in operands:
            values = self.table[at, item.column]
            kinds = np.full(len(at), item.access, dtype=np.int8)
            if item.adds_if:
                component = self.table[at, SCHEMA.component_column[opcode]]
                properties = self.component_properties[component]
                kinds |= ((properties & int(item.adds_if)) != 0) * np.int8(READ)
            if item.kind is OperandKind.INDEXES_MULTI:
                named = lists.of(values)
                counts = np.diff(named.splits)
                self._add(np.repeat(at, counts), named.values, np.repeat(kinds, counts))
            elif item.optional:
                given = np.flatnonzero(values)
                self._add(at[given], values[given], kinds[given])
            else:
                self._add(at, values, kinds)

    def _add(self, commands: Ids, submatrices: Ids | Table, kinds: Accesses) -> None:
        self.commands.append(commands)
        self.submatrices.append(submatrices.astype(np.int64))
        self.kinds.append(kinds)

    def accesses(self) -> SubmatrixAccesses:
        """Returns all of them, by command."""
        commands = np.concatenate(self.commands)
        order = ordering(commands)
        return SubmatrixAccesses(
            command=commands[order],
            submatrix=np.concatenate(self.submatrices)[order],
            access=np.concatenate(self.kinds)[order],
        )


@attrs.frozen(kw_only=True, eq=False)
class AccessLists:
    """For each of some things (variables, matrices) the commands that access it, ascending.

    Attributes:
        splits: (things + 1,) int64; the accesses of thing i are splits[i] <= a < splits[i + 1].
        command: (A,) int64; each command at most once for one thing.
        access: (A,) int8, values of `Access`.
    """

    splits: Ids
    command: Ids
    access: Accesses

    @classmethod
    def of(cls, thing: Ids, command: Ids, access: Accesses, num_things: int) -> Self:
        """Sorts accesses by thing, and unites those of one command to one thing."""
        if not len(thing):
            return cls(splits=np.zeros(num_things + 1, np.int64), command=command, access=access)
        width = int(command[-1]).bit_length()
        keys = (((thing << width) | command) << 2) | access
        keys.sort()
        place = keys >> 2
        first = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]]))
        united = np.bitwise_or.reduceat(keys & 3, first).astype(np.int8)
        things, commands = place[first] >> width, place[first] & ((1 << width) - 1)
        return cls(
            splits=splits_of(np.bincount(things, minlength=num_things)),
            command=commands,
            access=united,
        )

    def __getitem__(self, thing: int) -> tuple[Ids, Accesses]:
        """Returns the commands that access one thing, and how."""
        part = slice(int(self.splits[thing]), int(self.splits[thing + 1]))
        return self.command[part], self.access[part]

    @property
    def thing(self) -> Ids:
        """(A,) int64, what each access is to."""
        return np.repeat(np.arange(len(self.splits) - 1), np.diff(self.splits))

    @property
    def is_accessed(self) -> npt.NDArray[np.bool_]:
        """(things,) bool, whether there is any access."""
        return self.splits[1:] > self.splits[:-1]

    def first(self, absent: int) -> Ids:
        """Returns the first command that accesses each thing, or `absent`."""
        result = np.full(len(self.splits) - 1, absent, dtype=np.int64)
        result[self.is_accessed] = self.command[self.splits[:-1][self.is_accessed]]
        return result

    def last(self, absent: int = NEVER) -> Ids:
        """Returns the last command that accesses each thing, or `absent`."""
        result = np.full(len(self.splits) - 1, absent, dtype=np.int64)
        result[self.is_accessed] = self.command[self.splits[1:][self.is_accessed] - 1]
        return result

    def only(self, wanted: npt.NDArray[np.bool_]) -> AccessLists:
        """Returns the lists without the accesses for which `wanted`, (A,), is False."""
        kept = np.concatenate([[0], np.cumsum(wanted)])
        return AccessLists(
            splits=kept[self.splits], command=self.command[wanted], access=self.access[wanted]
        )


def variable_accesses(variables: Variables, accesses: SubmatrixAccesses) -> AccessLists:
    """Returns the accesses to each variable."""
    touched = variables.of_submatrices(accesses.submatrix)
    counts = np.diff(touched.splits)
    return AccessLists.of(
        touched.values,
        np.repeat(accesses.command, counts),
        np.repeat(accesses.access, counts),
        len(variables),
    )


def matrix_accesses(layout: Layout, accesses: SubmatrixAccesses) -> AccessLists:
    """Returns the accesses to each matrix; a write to a part of a matrix reads and writes it."""
    matrix = layout.submatrices[accesses.submatrix, MATRIX].astype(np.int64)
    access = with_parts_read(layout, accesses.submatrix, accesses.access)
    return AccessLists.of(matrix, accesses.command, access, len(layout.matrices))


def with_parts_read(layout: Layout, submatrix: Ids, access: Accesses) -> Accesses:
    """Returns accesses to submatrices as accesses to their matrices: what is left stays read."""
    writes_part = ~layout.is_whole[submatrix] & (access == WRITE)
    united: Accesses = access | (writes_part * np.int8(READ))
    return united


@attrs.frozen(kw_only=True, eq=False)
class Lifetimes:
    """Where matrices come from and go to; each array is (M,).

    Attributes:
        allocate: The first command that gives the matrix its memory (allocation, AcceptInput, or
            SwapMatrix to it), or -1.
        deallocate: The last command that takes it away (DeallocMatrix, or SwapMatrix from it), or
            -1 for a matrix that lives to the end.
        is_input: Whether the user gives it (inputs and output derivatives).
        is_output: Whether the user takes it (outputs and input derivatives).
    """

    allocate: Ids
    deallocate: Ids
    is_input: npt.NDArray[np.bool_]
    is_output: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, table: Table, matrices: Table, submatrices: Table) -> Self:
        """Reads lifetimes off the commands."""
        opcodes = table[:, OPCODE_COLUMN]
        first = submatrices[_first_operand(table, submatrices), MATRIX]
        allocate = np.full(len(matrices), NEVER, dtype=np.int64)
        deallocate = np.full(len(matrices), NEVER, dtype=np.int64)
        gives = np.isin(opcodes, _ALLOCATING)
        # Reversed, so that the first of several commands is the one that stays.
        commands = np.flatnonzero(gives)[::-1]
        allocate[first[commands]] = commands
        commands = np.flatnonzero(opcodes == DeallocMatrix.OPCODE)
        deallocate[first[commands]] = commands
        commands = np.flatnonzero(opcodes == SwapMatrix.OPCODE)
        source = submatrices[table[commands, FIRST_OPERAND_COLUMN + 1], MATRIX]
        deallocate[source] = np.maximum(deallocate[source], commands)
        is_input, is_output = np.zeros((2, len(matrices)), dtype=np.bool_)
        is_input[first[opcodes == AcceptInput.OPCODE]] = True
        is_output[first[opcodes == ProvideOutput.OPCODE]] = True
        return cls(allocate=allocate, deallocate=deallocate, is_input=is_input, is_output=is_output)


_ALLOCATING = (
    AllocMatrixUndefined.OPCODE,
    AllocMatrixZeroed.OPCODE,
    AcceptInput.OPCODE,
    SwapMatrix.OPCODE,
)


def _first_operand(table: Table, submatrices: Table) -> Table:
    """The first operand of each command if it is a submatrix, else 0."""
    operand = table[:, FIRST_OPERAND_COLUMN]
    return np.where(SCHEMA.is_matrix[table[:, OPCODE_COLUMN], FIRST_OPERAND_COLUMN], operand, 0)
