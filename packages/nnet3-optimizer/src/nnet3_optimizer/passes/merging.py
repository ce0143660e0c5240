"""Pass: two matrices become one where a copy, or a component that works in place, allows it.

This one idea removes assignments and lets components run forward and backward in place.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs
import numpy as np
from nnet3_compiler.commands import (
    AcceptInput,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    Backprop,
    BackpropNoModelUpdate,
    CompressMatrix,
    DeallocMatrix,
    DecompressMatrix,
    MatrixCopy,
    NoOperation,
    Propagate,
    StoreStats,
    SwapMatrix,
)
from nnet3_compiler.declaration import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    Command,
    alpha_bits,
)
from nnet3_descriptors.components.properties import ComponentProperties as Property
from nnet3_optimizer.analysis.accesses import WRITE, AccessLists
from nnet3_optimizer.analysis.csr import Bools, Csr, Ids, ordering
from nnet3_optimizer.analysis.variables import (
    COL_OFFSET,
    MATRIX,
    NUM_COLS,
    ROW_OFFSET,
    Table,
    Variables,
    overlap,
)
from nnet3_optimizer.loops import is_loop
from nnet3_optimizer.operands import operand
from nnet3_optimizer.program import Program

_ONE = alpha_bits(1.0)


@attrs.frozen(kw_only=True)
class MergingOptions:
    """Which merges are made; see `merge_variables`.

    Attributes:
        remove_assignments: Merge across MatrixCopy.
        propagate_in_place: Merge input and output of Propagate.
        backprop_in_place: Merge the derivatives at both sides of a Backprop.
        left: Allow to keep the matrix that is read.
        right: Allow to keep the matrix that is written.
    """

    remove_assignments: bool = True
    propagate_in_place: bool = True
    backprop_in_place: bool = True
    left: bool = True
    right: bool = True


def merge_variables(program: Program, options: MergingOptions | None = None) -> Program:
    """Merges pairs of submatrices until nothing more can be merged.

    A candidate is a command C with submatrices s1 (read) and s2 (written) of two matrices m1, m2:

    - MatrixCopy from s1 to s2, or
    - Propagate from s1 to s2 of a component with PROPAGATE_IN_PLACE, or
    - Backprop from the derivative s1 at the output to the derivative s2 at the input of a component
      with BACKPROP_IN_PLACE; the values it reads must not overlap s1 or s2.

    A left merge keeps m1: s2 must be all of m2, and everything in m2 moves into s1. A right merge
    keeps m2: s1 must be all of m1, and everything in m1 moves into s2. Either is legal if

    1. m1 and m2 are not both inputs, nor both outputs, of the computation;
    2. if one of them is an input or output, s1 is all of m1 and s2 is all of m2;
    3. if a component needs rows of the matrix that goes away to have no gaps, the submatrix that it
       moves into is as wide as its matrix;
    4. nothing but allocation with zeros accessed s2 before C; and
    5. for a copy with scale 1: s1 is not written from C on and m1 is no output, and s2 is not
       written again while s1 is still used;
    6. for all others: C is the last access to s1.
    7. Neither matrix is compressed, nor handed over with SwapMatrix.
    8. The program is no loop, in which a later round may read what is overwritten.

    A copy with scale 1 then goes away; one with another scale stays and scales in place. The merged
    matrix is allocated where the first of the two was (with zeros if one of them was), or accepted
    where the input was, and freed where the last of the two was, unless it is an output.

    In each round no variable takes part in two merges, since the analysis is that of the beginning
    of the round.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m4 = zeros
        m2 = affine.propagate(m1)
        m3 = m2
        m4 = relu.propagate(m3)
        provide output = m4
        segment end
        free m1
        free m2
        free m3

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m1 = accept input
        m2 = zeros
        m2 = affine.propagate(m1)
        m2 = relu.propagate(m2)
        provide output = m2
        segment end
        free m1
    """
    chosen = options or MergingOptions()
    if is_loop(program.table):
        return program
    merged = program
    while (after := _Round(merged, chosen).run()) is not None:
        merged = after
    return merged


class _Candidates(NamedTuple):
    """Candidates by command: each field is (candidates,)."""

    command: Ids
    s1: Ids
    s2: Ids
    is_assignment: Bools

    def where(self, wanted: Bools | Ids) -> _Candidates:
        """The candidates for which `wanted` is True, or those at the positions `wanted`."""
        return _Candidates(
            self.command[wanted], self.s1[wanted], self.s2[wanted], self.is_assignment[wanted]
        )


_BACKWARD = (Backprop, BackpropNoModelUpdate)
_CONTIGUOUS_OPERANDS: tuple[tuple[Property, tuple[type[Command], ...], str], ...] = (
    (Property.INPUT_CONTIGUOUS, (Propagate,), "input"),
    (Property.INPUT_CONTIGUOUS, (StoreStats,), "input"),
    (Property.INPUT_CONTIGUOUS, _BACKWARD, "input_value"),
    (Property.INPUT_CONTIGUOUS, _BACKWARD, "input_deriv"),
    (Property.OUTPUT_CONTIGUOUS, (Propagate,), "output"),
    (Property.OUTPUT_CONTIGUOUS, (StoreStats,), "output"),
    (Property.OUTPUT_CONTIGUOUS, _BACKWARD, "output_value"),
    (Property.OUTPUT_CONTIGUOUS, _BACKWARD, "output_deriv"),
)
"""Operands whose rows have to follow each other without a gap, by what the component needs."""


class _Round:
    """One round of merges."""

    def __init__(self, program: Program, options: MergingOptions) -> None:
        self.program = program
        self.options = options
        self.analysis = program.analysis
        self.table = program.table
        self.submatrices = program.submatrices

    def run(self) -> Program | None:
        """Returns the program with some matrices merged, or None if there is nothing to merge."""
        candidates, left = self._legal_by_place(self._candidates())
        if not len(candidates.command):
            return None
        legal = self._legal_by_time(candidates)
        candidates, left = candidates.where(legal), left[legal]
        merges = _Merges(self.program, candidates, left)
        return merges.applied() if len(merges) else None

    # -- candidates ----------------------------------------------------------------------------

    def _candidates(self) -> _Candidates:
        found = []
        if self.options.remove_assignments:
            at = self.program.positions(MatrixCopy.OPCODE)
            output, given = self._operands(at, MatrixCopy, "output", "input")
            is_assignment = self.table[at, ALPHA_COLUMN] == _ONE
            found.append(_Candidates(at, given, output, is_assignment))
        if self.options.propagate_in_place:
            at = self._running(Property.PROPAGATE_IN_PLACE, Propagate)
            given, output = self._operands(at, Propagate, "input", "output")
            found.append(_Candidates(at, given, output, np.zeros(len(at), np.bool_)))
        if self.options.backprop_in_place:
            found.append(self._backward_candidates())
        joined = _Candidates(
            np.concatenate([each.command for each in found]),
            np.concatenate([each.s1 for each in found]),
            np.concatenate([each.s2 for each in found]),
            np.concatenate([each.is_assignment for each in found]),
        )
        return joined.where(np.argsort(joined.command))

    def _operands(self, at: Ids, command_type: type[Command], *names: str) -> list[Ids]:
        return [operand(self.table, at, command_type, name) for name in names]

    def _running(self, wanted: Property, *types: type[Command]) -> Ids:
        """The positions of commands that run a component with a property."""
        at = self.program.positions(*(each.OPCODE for each in types))
        component = self.table[at, FIRST_OPERAND_COLUMN]
        running: Ids = at[(self.program.component_properties[component] & int(wanted)) != 0]
        return running

    def _backward_candidates(self) -> _Candidates:
        at = self._running(Property.BACKPROP_IN_PLACE, *_BACKWARD)
        names = ("output_deriv", "input_deriv", "input_value", "output_value")
        output_deriv, input_deriv, *values = self._operands(at, Backprop, *names)
        apart = np.ones(len(at), np.bool_)
        for value in values:
            for deriv in (output_deriv, input_deriv):
                apart &= ~overlap(self.submatrices[value], self.submatrices[deriv])
        found = _Candidates(at, output_deriv, input_deriv, np.zeros(len(at), np.bool_))
        return found.where(apart)

    # -- legality ------------------------------------------------------------------------------

    def _legal_by_place(self, c: _Candidates) -> tuple[_Candidates, Bools]:
        """Applies rules 1 to 3 and 7; returns what remains, and where m1 can be kept."""
        m1, m2 = self.submatrices[c.s1, MATRIX], self.submatrices[c.s2, MATRIX]
        whole1, whole2 = self.program.layout.is_whole[c.s1], self.program.layout.is_whole[c.s2]
        is_input, is_output = self.analysis.lifetimes.is_input, self.analysis.lifetimes.is_output
        legal = (c.s1 > 0) & (c.s2 > 0) & (m1 != m2)
        legal &= ~(is_input[m1] & is_input[m2]) & ~(is_output[m1] & is_output[m2])
        tied = self._tied_matrices()
        legal &= ~tied[m1] & ~tied[m2]
        outside = is_input | is_output
        legal &= ~(outside[m1] | outside[m2]) | (whole1 & whole2)
        contiguous = self._contiguous_matrices()
        left = legal & whole2 & (self._full_width(c.s1) | ~contiguous[m2])
        right = legal & whole1 & (self._full_width(c.s2) | ~contiguous[m1])
        left &= self.options.left
        right &= self.options.right
        either = left | right
        return c.where(either), left[either]

    def _tied_matrices(self) -> Bools:
        """Which matrices are compressed or handed over, and so have to stay what they are."""
        tied = np.zeros(len(self.program.matrices), np.bool_)
        packs = self.program.positions(CompressMatrix.OPCODE, DecompressMatrix.OPCODE)
        swaps = self.program.positions(SwapMatrix.OPCODE)
        for at, column in ((packs, 0), (swaps, 0), (swaps, 1)):
            operand = self.table[at, FIRST_OPERAND_COLUMN + column]
            tied[self.submatrices[operand, MATRIX]] = True
        return tied

    def _full_width(self, submatrix: Ids) -> Bools:
        matrix = self.submatrices[submatrix, MATRIX]
        full: Bools = self.submatrices[submatrix, NUM_COLS] == self.program.matrices[matrix, 1]
        return full

    def _contiguous_matrices(self) -> Bools:
        """Which matrices have rows that a component needs to follow each other without a gap."""
        wanted = np.zeros(len(self.program.matrices), np.bool_)
        for needs, types, name in _CONTIGUOUS_OPERANDS:
            if (self.program.component_properties & int(needs)).any():
                at = self._running(needs, *types)
                wanted[self.submatrices[operand(self.table, at, types[0], name), MATRIX]] = True
        wanted[0] = False
        return wanted

    def _legal_by_time(self, c: _Candidates) -> Bools:
        """Applies rules 4 to 6."""
        num_commands = len(self.table)
        variables = self.analysis.variables
        every, nontrivial = self.analysis.variable_accesses, self.analysis.nontrivial_accesses
        of_s1, of_s2 = variables.of_submatrices(c.s1), variables.of_submatrices(c.s2)
        legal: Bools = _least(nontrivial.first(absent=num_commands), of_s2) == c.command
        last = _greatest(every.last(), of_s1)
        assignment = np.flatnonzero(c.is_assignment & legal)
        legal &= c.is_assignment | (last == c.command)
        if len(assignment):
            copies = c.where(assignment)
            writes = every.only((every.access & WRITE) != 0)
            written = _greatest(writes.last(), variables.of_submatrices(copies.s1))
            m1 = self.submatrices[copies.s1, MATRIX]
            safe = (written < copies.command) & ~self.analysis.lifetimes.is_output[m1]
            safe &= last[assignment] < self._invalidated(copies, writes, variables)
            legal[assignment] = safe
        return legal

    def _invalidated(self, c: _Candidates, writes: AccessLists, variables: Variables) -> Ids:
        """The first command after C that writes to s2, or frees m2, for each candidate."""
        num_commands = len(self.table)
        freed = self.analysis.lifetimes.deallocate[self.submatrices[c.s2, MATRIX]]
        limit = np.where(freed < 0, num_commands, freed)
        of_s2 = variables.of_submatrices(c.s2)
        owner = np.repeat(np.arange(len(writes.splits) - 1), np.diff(writes.splits))
        keys = owner * (num_commands + 1) + writes.command
        wanted = of_s2.values * (num_commands + 1) + np.repeat(c.command, np.diff(of_s2.splits))
        place = np.searchsorted(keys, wanted, side="right")
        ends = writes.splits[of_s2.values + 1]
        following = np.full(len(place), num_commands, dtype=np.int64)
        exists = place < ends
        following[exists] = writes.command[place[exists]]
        earliest: Ids = np.minimum(limit, np.minimum.reduceat(following, of_s2.splits[:-1]))
        return earliest


class _Merges:
    """The merges of one round: chosen so that they do not touch each other, then made at once."""

    def __init__(self, program: Program, candidates: _Candidates, left: Bools) -> None:
        self.program = program
        variables = program.analysis.variables
        chosen = _without_conflicts(
            variables.of_submatrices(candidates.s1),
            variables.of_submatrices(candidates.s2),
            len(variables),
        )
        self.chosen = candidates.where(chosen)
        submatrices = program.submatrices
        self.keep = np.where(left, candidates.s1, candidates.s2)[chosen]
        discard = np.where(left, candidates.s2, candidates.s1)[chosen]
        self.kept = submatrices[self.keep, MATRIX].astype(np.int64)
        self.gone = submatrices[discard, MATRIX].astype(np.int64)

    def __len__(self) -> int:
        return len(self.gone)

    def applied(self) -> Program:
        """Returns the program with the merges made."""
        table = self.program.table.copy()
        table[self.chosen.command[self.chosen.is_assignment], OPCODE_COLUMN] = NoOperation.OPCODE
        group = np.arange(len(self.program.matrices))
        group[self.gone] = self.kept
        self._merge_allocations(table, group)
        self._merge_deallocations(table, group)
        table = table[table[:, OPCODE_COLUMN] != NoOperation.OPCODE]
        layout = attrs.evolve(self.program.layout, submatrices=self._moved_submatrices())
        return attrs.evolve(self.program, table=table, layout=layout)

    def _moved_submatrices(self) -> Table:
        """Returns the submatrices, those of matrices that go away as parts of others."""
        place = self.program.submatrices[self.keep]
        target = np.arange(len(self.program.matrices), dtype=np.int32)
        row_shift, col_shift = np.zeros((2, len(target)), dtype=np.int32)
        target[self.gone] = place[:, MATRIX]
        row_shift[self.gone], col_shift[self.gone] = place[:, ROW_OFFSET], place[:, COL_OFFSET]
        submatrices = self.program.submatrices.copy()
        matrix = self.program.submatrices[:, MATRIX]
        submatrices[:, MATRIX] = target[matrix]
        submatrices[:, ROW_OFFSET] += row_shift[matrix]
        submatrices[:, COL_OFFSET] += col_shift[matrix]
        return submatrices

    def _merge_allocations(self, table: Table, group: Ids) -> None:
        """Keeps AcceptInput if there is one, else the first allocation, of each merged matrix."""
        allocate = self.program.analysis.lifetimes.allocate
        members = np.concatenate([np.unique(self.kept), self.gone])
        at = allocate[members]
        owner = group[members]
        opcodes = table[at, OPCODE_COLUMN]
        is_zeroed = np.zeros(len(group), dtype=np.bool_)
        is_zeroed[owner[opcodes == AllocMatrixZeroed.OPCODE]] = True
        stays = np.full(len(group), len(table), dtype=np.int64)
        accepts = opcodes == AcceptInput.OPCODE
        np.minimum.at(stays, owner, at)
        stays[owner[accepts]] = at[accepts]
        whole = table[allocate, FIRST_OPERAND_COLUMN]
        merged = np.unique(owner)
        table[at, OPCODE_COLUMN] = NoOperation.OPCODE
        table[stays[merged], OPCODE_COLUMN] = np.where(
            is_zeroed[merged], AllocMatrixZeroed.OPCODE, AllocMatrixUndefined.OPCODE
        )
        table[at[accepts], OPCODE_COLUMN] = AcceptInput.OPCODE
        table[stays[merged], FIRST_OPERAND_COLUMN] = whole[merged]

    def _merge_deallocations(self, table: Table, group: Ids) -> None:
        """Keeps the last deallocation of each merged matrix; none if one of them had none."""
        deallocate = self.program.analysis.lifetimes.deallocate
        allocate = self.program.analysis.lifetimes.allocate
        members = np.concatenate([np.unique(self.kept), self.gone])
        at = deallocate[members]
        owner = group[members]
        last = np.full(len(group), -1, dtype=np.int64)
        np.maximum.at(last, owner, at)
        last[owner[at < 0]] = -1
        table[at[at >= 0], OPCODE_COLUMN] = NoOperation.OPCODE
        freed = np.flatnonzero(last >= 0)
        table[last[freed], OPCODE_COLUMN] = DeallocMatrix.OPCODE
        whole = self.program.table[allocate[freed], FIRST_OPERAND_COLUMN]
        table[last[freed], FIRST_OPERAND_COLUMN] = whole


def _without_conflicts(of_s1: Csr, of_s2: Csr, num_variables: int) -> Ids:
    """Chooses candidates, earlier ones first, such that no two of them share a variable.

    Args:
        of_s1: The variables of s1 of each candidate.
        of_s2: The variables of s2 of each candidate.
        num_variables: The number of variables.

    Returns:
        The positions of the chosen candidates, ascending.
    """
    count = len(of_s1.splits) - 1
    candidate = np.concatenate(
        [np.repeat(np.arange(count), np.diff(lists.splits)) for lists in (of_s1, of_s2)]
    )
    variable = np.concatenate([of_s1.values, of_s2.values])
    order = ordering(candidate)
    candidate, variable = candidate[order], variable[order]
    is_open = np.ones(count, dtype=np.bool_)
    is_chosen = np.zeros(count, dtype=np.bool_)
    taken = np.zeros(num_variables, dtype=np.bool_)
    while is_open.any():
        # Each variable goes to the first candidate that still wants it (of several assignments
        # to one element the last one holds); candidates that get all of theirs are chosen.
        first = np.full(num_variables, count, dtype=np.int64)
        first[variable[::-1]] = candidate[::-1]
        loses = np.zeros(count, dtype=np.bool_)
        loses[candidate[first[variable] != candidate]] = True
        chosen = is_open & ~loses
        is_chosen |= chosen
        taken[variable[chosen[candidate]]] = True
        is_open &= loses
        is_open[candidate[taken[variable]]] = False
        wanted = is_open[candidate]
        candidate, variable = candidate[wanted], variable[wanted]
    return np.flatnonzero(is_chosen)


def _least(values: Ids, lists: Csr) -> Ids:
    """The least value over each (not empty) list of variables."""
    least: Ids = np.minimum.reduceat(values[lists.values], lists.splits[:-1])
    return least


def _greatest(values: Ids, lists: Csr) -> Ids:
    """The greatest value over each (not empty) list of variables."""
    greatest: Ids = np.maximum.reduceat(values[lists.values], lists.splits[:-1])
    return greatest
