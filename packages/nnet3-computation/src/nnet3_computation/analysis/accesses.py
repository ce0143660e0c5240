"""The accesses of each command to submatrices, variables and matrices.

Everything follows from the declarations on the command classes. If a command names several
overlapping submatrices, it has one access to the elements that they share: the union of the
accesses.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, Self

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_computation import commands
from nnet3_computation.analysis.layout import MATRIX, Layout, Variables
from nnet3_computation.arrays import (
    Bools,
    Csr,
    Ids,
    every,
    expand_ranges,
    ordering,
    run_starts,
    splits_of,
    where,
)


def columns_of_kind(kind: commands.OperandKind) -> Ids:
    """Returns by opcode the column of the operand of a kind, (opcodes,); 0 if there is none.

    No command has two operands of such a kind: a memo, or any one kind of lists.
    """
    is_kind = commands.SCHEMA.kind == kind
    return np.where(is_kind.any(axis=1), is_kind.argmax(axis=1), 0)


MEMO_COLUMN = columns_of_kind(commands.OperandKind.MEMO)
"""For each kind of command the column of its memo; 0 if it has none."""


def memos(table: commands.Table) -> Ids:
    """Returns the memo that each command makes or uses, (C,); 0 for none."""
    column = MEMO_COLUMN.take(table[:, commands.OPCODE_COLUMN])
    named = np.zeros(len(table), dtype=np.int64)
    may_name = where(column > 0)
    named[may_name] = table[may_name, column[may_name]]
    return named


class CommandKinds(NamedTuple):
    """A set of command classes.

    Attributes:
        has: (opcodes,) bool, whether the class with an opcode belongs to it.
    """

    has: Bools

    @classmethod
    def of(cls, *types: type[commands.Command]) -> Self:
        """Returns the set of these classes."""
        has = np.zeros(len(commands.SCHEMA.types), dtype=np.bool_)
        has[[each.OPCODE for each in types]] = True
        return cls(has)

    def among(self, opcodes: Ids | commands.Table) -> Bools:
        """Returns which of these opcodes, (N,), belong to the set."""
        return self.has.take(opcodes)

    def positions(self, opcodes: Ids | commands.Table) -> Ids:
        """Returns where among these opcodes, (N,), there is one of the set, ascending."""
        return where(self.has.take(opcodes))


@attrs.frozen(eq=False)
class PairLists:
    """Lists of (submatrix, row) pairs; (-1, -1) stands for none.

    Attributes:
        lists: (rows, 2) int32 each.
    """

    lists: tuple[commands.Table, ...]
    _known: Csr | None = attrs.field(default=None, kw_only=True)
    """The value of `named`, if it is known already."""

    def and_further(self, lists: tuple[commands.Table, ...]) -> PairLists:
        """Returns these lists and some more."""
        known, further = self.named, PairLists(lists).named
        named = Csr(
            np.concatenate([known.splits, known.splits[-1] + further.splits[1:]]),
            np.concatenate([known.values, further.values]),
        )
        return PairLists(self.lists + lists, known=named)

    @cached_property
    def splits(self) -> Ids:
        """(lists + 1,) int64: where each list begins in `pairs`."""
        return splits_of(np.array([len(pairs) for pairs in self.lists], dtype=np.int64))

    @cached_property
    def pairs(self) -> commands.Table:
        """(total, 2) int32: all lists end to end."""
        return np.concatenate(self.lists) if self.lists else np.zeros((0, 2), np.int32)

    @cached_property
    def named(self) -> Csr:
        """For each list the distinct submatrices in it."""
        if self._known is not None:
            return self._known
        if not self.lists:
            return Csr(self.splits, np.zeros(0, dtype=np.int64))
        submatrix = self.pairs[:, 0]
        # Most rows come from the same submatrix as the one before: only where it changes is sorted.
        is_first = run_starts(submatrix)
        is_first[self.splits[:-1][self.splits[:-1] < len(submatrix)]] = True
        is_first &= submatrix > 0
        at = where(is_first)
        bounds = at.searchsorted(self.splits)
        owner = np.arange(len(self.lists)).repeat(bounds[1:] - bounds[:-1])
        keys = np.sort((owner << 32) | submatrix[at])
        distinct = keys[run_starts(keys)]
        counts = np.bincount(distinct >> 32, minlength=len(self.lists))
        return Csr(splits_of(counts), distinct & 0xFFFFFFFF)

    def of(self, numbers: Ids | commands.Table) -> Csr:
        """Returns for each of these lists the distinct submatrices in it."""
        begin, end = self.named.splits[numbers], self.named.splits[np.add(numbers, 1)]
        counts = end - begin
        splits = splits_of(counts)
        place = np.arange(splits[-1]) + (begin - splits[:-1]).repeat(counts)
        return Csr(splits, self.named.values[place])


Accesses = npt.NDArray[np.int8]

READ, WRITE = int(commands.Access.READ), int(commands.Access.WRITE)
"""Bits of an access, as int."""
NEVER = -1
"""Stands for the number of a command where there is none."""


class SubmatrixAccesses(NamedTuple):
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
        opcodes: Ids,
        table: commands.Table,
        pair_lists: PairLists,
        component_properties: npt.NDArray[np.int32],
    ) -> SubmatrixAccesses:
        """Reads the accesses off the operands of commands.

        Args:
            opcodes: (C,) int64, the kinds of the commands.
            table: (C, TABLE_WIDTH) int32, the commands.
            pair_lists: The lists that operands of kind INDEXES_MULTI name.
            component_properties: (components,) int32, bits of `ComponentProperties`.
        """
        counts = _COUNTS.take(opcodes)
        named = LIST_COLUMN.take(opcodes)
        has_list = where(named > 0)
        if len(has_list):
            lists = pair_lists.of(table[has_list, named[has_list]])
            lengths = lists.splits[1:] - lists.splits[:-1]
            counts[has_list] += lengths - 1
        splits = splits_of(counts)
        command = np.arange(len(table)).repeat(counts)
        # Each access comes from an operand: those of an opcode lie one after the other.
        place = (_BEGINS.take(opcodes) - splits[:-1]).repeat(counts)
        place += np.arange(len(place))
        if len(has_list):
            # A list is the last operand. Everything that it names is accessed in the same way.
            in_list = expand_ranges(splits[1:][has_list] - lengths, lengths)
            place[in_list] = (_BEGINS[opcodes[has_list] + 1] - 1).repeat(lengths)
        operand = command * commands.TABLE_WIDTH
        operand += _COLUMN.take(place)
        submatrix = table.take(operand).astype(np.int64)
        if len(has_list):
            submatrix[in_list] = lists.values
        access = _ACCESS.take(place)
        may_add = where(_ADDS_IF.take(place) != 0)
        place, at = place[may_add], command[may_add]
        component = table[at, _COMPONENT_COLUMN.take(place)]
        adds = (_ADDS_IF.take(place) & component_properties.take(component)) != 0
        access[may_add[adds]] |= np.int8(READ)
        accesses = cls(command=command, submatrix=submatrix, access=access)
        given = submatrix != 0
        return accesses if given.all() else accesses.at(where(given))

    def at(self, places: Ids) -> SubmatrixAccesses:
        """Returns the accesses at these places, ascending."""
        return SubmatrixAccesses._make(column.take(places) for column in self)

    def setting(self, commands: Bools) -> Self:
        """Returns the accesses as if some commands, (C,) bool, set elements and added to none."""
        sets = commands.take(self.command) & (self.access == READ | WRITE)
        return self._replace(access=np.where(sets, np.int8(WRITE), self.access))

    def moved(self, place: Ids) -> SubmatrixAccesses:
        """Returns the accesses of the same commands in another order.

        Args:
            place: (C,) the new position of each command.
        """
        command = place.take(self.command)
        moved = self._replace(command=command)
        return moved if (command[1:] >= command[:-1]).all() else moved.at(ordering(command))


_OPCODE, _COLUMN = (commands.SCHEMA.access != 0).nonzero()
_COUNTS = np.bincount(_OPCODE, minlength=len(commands.SCHEMA.types))
_BEGINS = splits_of(_COUNTS)
_ACCESS = commands.SCHEMA.access[_OPCODE, _COLUMN]
_ADDS_IF = commands.SCHEMA.adds_if[_OPCODE, _COLUMN]
_COMPONENT_COLUMN = commands.SCHEMA.component_column[_OPCODE]
LIST_COLUMN = columns_of_kind(commands.OperandKind.INDEXES_MULTI)
"""By opcode the column of the list of (submatrix, row) pairs, (opcodes,); 0 for none."""


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
    def of(
        cls, accesses: SubmatrixAccesses, thing: Ids, num_things: int, counts: Ids | None = None
    ) -> Self:
        """Sorts accesses by thing, and unites those of one command to one thing.

        Args:
            accesses: The accesses.
            thing: The accessed things, in the order of the accesses.
            num_things: The number of things.
            counts: (A,) the number of things of each access; None for one each.
        """
        command, access = accesses.command, accesses.access
        if not len(thing):
            return cls(splits=np.zeros(num_things + 1, np.int64), command=thing, access=access[:0])
        width = int(command[-1]).bit_length()
        # Most computations need no more than 31 bits. A sort handles twice as many 32-bit numbers
        # at once as 64-bit ones.
        kind: npt.DTypeLike = np.int32 if num_things.bit_length() + width + 2 < 32 else np.int64
        detail = ((command << 2) | access).astype(kind)
        keys = thing.astype(kind) << (width + 2)
        keys |= detail if counts is None else detail.repeat(counts)
        keys.sort()
        place = keys >> 2
        united = (keys & 3).astype(np.int8)
        is_first = run_starts(place)
        if not is_first.all():
            first = where(is_first)
            united, place = np.bitwise_or.reduceat(united, first), place[first]
        return cls(
            splits=splits_of(np.bincount(place >> width, minlength=num_things)),
            command=(place & ((1 << width) - 1)).astype(np.int64),
            access=united,
        )

    def __getitem__(self, thing: int) -> tuple[Ids, Accesses]:
        """Returns the commands that access one thing, and how."""
        part = slice(int(self.splits[thing]), int(self.splits[thing + 1]))
        return self.command[part], self.access[part]

    @cached_property
    def thing(self) -> Ids:
        """(A,) int64, the thing that each access reads or writes."""
        return np.arange(len(self.splits) - 1).repeat(self.splits[1:] - self.splits[:-1])

    @cached_property
    def follows(self) -> Bools:
        """(A,) bool, whether an earlier command accesses the same thing."""
        follows = np.ones(len(self.command), dtype=np.bool_)
        begins = self.splits[:-1]
        follows[begins[begins < len(follows)]] = False
        return follows

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
        """Returns the commands at these places, (things,); `absent` for things without accesses."""
        if every(self.is_accessed):
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
    return AccessLists.of(accesses, touched.values, len(variables), counts)


def matrix_accesses(layout: Layout, accesses: SubmatrixAccesses) -> AccessLists:
    """Returns the accesses to each matrix.

    A write to a part of a matrix counts as a read too: the other elements of the matrix stay.
    """
    _, submatrix, access = accesses
    writes_part = ~layout.is_whole.take(submatrix) & (access == WRITE)
    united = accesses._replace(access=access | (writes_part * np.int8(READ)))
    return AccessLists.of(united, layout.matrix_of.take(submatrix), len(layout.matrices))


class Lifetimes(NamedTuple):
    """The lifetimes of matrices; each array is (M,).

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
    def of(
        cls,
        opcodes: Ids,
        table: commands.Table,
        matrices: commands.Table,
        submatrices: commands.Table,
    ) -> Self:
        """Finds the lifetimes in the commands; `opcodes`, (C,), are their kinds."""
        at = _LASTING.positions(opcodes)
        kind, named = opcodes[at], table[at, commands.FIRST_OPERAND_COLUMN]
        matrix = submatrices[:, MATRIX].take(named)
        allocate, deallocate = np.full((2, len(matrices)), NEVER, dtype=np.int64)
        is_input, is_output = np.zeros((2, len(matrices)), dtype=np.bool_)
        allocates = ALLOCATING.among(kind)
        # In reverse, so that the first of several commands overwrites the later ones.
        allocate[matrix[allocates][::-1]] = at[allocates][::-1]
        frees = kind == commands.DeallocMatrix.OPCODE
        deallocate[matrix[frees]] = at[frees]
        swaps = at[kind == commands.SwapMatrix.OPCODE]
        if len(swaps):
            source = submatrices[table[swaps, commands.FIRST_OPERAND_COLUMN + 1], MATRIX]
            deallocate[source] = np.maximum(deallocate[source], swaps)
        is_input[matrix[kind == commands.AcceptInput.OPCODE]] = True
        is_output[matrix[kind == commands.ProvideOutput.OPCODE]] = True
        return cls(allocate=allocate, deallocate=deallocate, is_input=is_input, is_output=is_output)


ALLOCATING = CommandKinds.of(
    commands.AllocMatrixUndefined,
    commands.AllocMatrixZeroed,
    commands.AcceptInput,
    commands.SwapMatrix,
)
"""Commands that give a matrix its memory."""

_LASTING = CommandKinds(
    ALLOCATING.has | CommandKinds.of(commands.DeallocMatrix, commands.ProvideOutput).has
)
"""Commands that begin or end the life of a matrix, or hand it to the user."""
