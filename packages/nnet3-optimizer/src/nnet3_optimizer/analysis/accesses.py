"""Who reads and writes what: submatrices, variables and matrices, command by command.

Everything follows from the declarations on the command classes. A command that names several
overlapping submatrices has one access to what they share, the union of the accesses.
"""

from __future__ import annotations

from functools import cached_property
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
    TABLE_WIDTH,
    Access,
    OperandKind,
)

from nnet3_optimizer.analysis.csr import Bools, Ids, ordering, splits_of, where
from nnet3_optimizer.analysis.kinds import CommandKinds, columns_of_kind
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
        access = SCHEMA.access_of(table, component_properties)
        list_column = _LIST_COLUMN[table[:, OPCODE_COLUMN]]
        has_list = where(list_column > 0)
        in_list = has_list, list_column[has_list]
        access_to_list = access[in_list]
        access[in_list] = 0
        named = where(((access != 0) & (table != 0)).ravel())
        command, submatrix = named // TABLE_WIDTH, table.ravel()[named].astype(np.int64)
        kinds = access.ravel()[named]
        if len(has_list):
            lists = pair_lists.of(table[in_list])
            counts = lists.splits[1:] - lists.splits[:-1]
            command = np.concatenate([command, np.repeat(has_list, counts)])
            order = ordering(command)
            command = command[order]
            submatrix = np.concatenate([submatrix, lists.values])[order]
            kinds = np.concatenate([kinds, np.repeat(access_to_list, counts)])[order]
        return cls(command=command, submatrix=submatrix, access=kinds)


_LIST_COLUMN = columns_of_kind(OperandKind.INDEXES_MULTI)


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
        united = keys & 3
        is_first = np.ones(len(keys), dtype=np.bool_)
        np.not_equal(place[1:], place[:-1], out=is_first[1:])
        if not is_first.all():
            first = where(is_first)
            united, place = np.bitwise_or.reduceat(united, first), place[first]
        things, commands = place >> width, place & ((1 << width) - 1)
        return cls(
            splits=splits_of(np.bincount(things, minlength=num_things)),
            command=commands,
            access=united.astype(np.int8),
        )

    def __getitem__(self, thing: int) -> tuple[Ids, Accesses]:
        """Returns the commands that access one thing, and how."""
        part = slice(int(self.splits[thing]), int(self.splits[thing + 1]))
        return self.command[part], self.access[part]

    @cached_property
    def thing(self) -> Ids:
        """(A,) int64, what each access is to."""
        return np.repeat(np.arange(len(self.splits) - 1), self.splits[1:] - self.splits[:-1])

    @cached_property
    def is_accessed(self) -> Bools:
        """(things,) bool, whether there is any access."""
        return self.splits[1:] > self.splits[:-1]

    def first(self, absent: int) -> Ids:
        """Returns the first command that accesses each thing, or `absent`."""
        return self._at(self.splits[:-1], absent)

    def last(self, absent: int = NEVER) -> Ids:
        """Returns the last command that accesses each thing, or `absent`."""
        return self._at(self.splits[1:] - 1, absent)

    def _at(self, places: Ids, absent: int) -> Ids:
        """Returns the commands at these places, (things,), where there is one."""
        if self.is_accessed.all():
            return self.command[places]
        result = np.full(len(places), absent, dtype=np.int64)
        result[self.is_accessed] = self.command[places[self.is_accessed]]
        return result

    def only(self, wanted: Bools) -> AccessLists:
        """Returns the lists without the accesses for which `wanted`, (A,), is False."""
        kept = splits_of(wanted)
        return AccessLists(
            splits=kept[self.splits], command=self.command[wanted], access=self.access[wanted]
        )


def variable_accesses(variables: Variables, accesses: SubmatrixAccesses) -> AccessLists:
    """Returns the accesses to each variable."""
    touched = variables.of_submatrices(accesses.submatrix)
    counts = touched.splits[1:] - touched.splits[:-1]
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
    is_input: Bools
    is_output: Bools

    @classmethod
    def of(cls, table: Table, matrices: Table, submatrices: Table) -> Self:
        """Reads lifetimes off the commands."""
        opcodes = table[:, OPCODE_COLUMN]

        def found(which: Bools, operand: int = 0) -> tuple[Ids, Table]:
            commands = where(which)
            named = table[commands, FIRST_OPERAND_COLUMN + operand]
            return commands, submatrices[named, MATRIX]

        allocate, deallocate = np.full((2, len(matrices)), NEVER, dtype=np.int64)
        commands, matrix = found(ALLOCATING.among(opcodes))
        # Reversed, so that the first of several commands is the one that stays.
        allocate[matrix[::-1]] = commands[::-1]
        commands, matrix = found(opcodes == DeallocMatrix.OPCODE)
        deallocate[matrix] = commands
        commands, matrix = found(opcodes == SwapMatrix.OPCODE, operand=1)
        deallocate[matrix] = np.maximum(deallocate[matrix], commands)
        is_input, is_output = np.zeros((2, len(matrices)), dtype=np.bool_)
        is_input[found(opcodes == AcceptInput.OPCODE)[1]] = True
        is_output[found(opcodes == ProvideOutput.OPCODE)[1]] = True
        return cls(allocate=allocate, deallocate=deallocate, is_input=is_input, is_output=is_output)


ALLOCATING = CommandKinds.of(AllocMatrixUndefined, AllocMatrixZeroed, AcceptInput, SwapMatrix)
"""Commands that give a matrix its memory."""
