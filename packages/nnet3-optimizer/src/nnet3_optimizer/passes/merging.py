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
from nnet3_optimizer.analysis.csr import Bools, Csr, Ids
from nnet3_optimizer.analysis.variables import MATRIX, Variables, overlap
from nnet3_optimizer.operands import operand
from nnet3_optimizer.passes.renumber import renumber
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

    A copy with scale 1 then goes away; one with another scale stays and scales in place. The merged
    matrix is allocated where the first of the two was (with zeros if one of them was), or accepted
    where the input was, and freed where the last of the two was, unless it is an output.

    In each round no variable takes part in two merges, since the analysis is that of the beginning
    of the round. Before::

        m1 = zeros
        m2 = zeros
        m3 = zeros
        m1 = affine.propagate(m0)
        m2 = 1.0 * m1
        m3 = relu.propagate(m2)

    After::

        m1 = zeros
        m1 = affine.propagate(m0)
        m1 = relu.propagate(m1)
    """
    chosen = options or MergingOptions()
    merged = program
    while (after := _Round(merged, chosen).run()) is not None:
        merged = after
    return merged if merged is program else renumber(merged)


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
        merges = _Merges(self.program)
        merges.add_all(candidates, left)
        return merges.applied() if merges.count else None

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
        whole1, whole2 = self.analysis.is_whole[c.s1], self.analysis.is_whole[c.s2]
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
        full: Bools = self.submatrices[submatrix, 4] == self.program.matrices[matrix, 1]
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
    """Merges of one round: chosen one after the other, then made all at once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.analysis = program.analysis
        lifetimes = self.analysis.lifetimes
        num_matrices = len(program.matrices)
        self.count = 0
        self.allocate: list[int] = lifetimes.allocate.tolist()
        self.deallocate: list[int] = lifetimes.deallocate.tolist()
        self.opcodes: list[int] = program.opcodes.tolist()
        self.first_operands: list[int] = program.table[:, FIRST_OPERAND_COLUMN].tolist()
        self.submatrices: list[list[int]] = program.submatrices.tolist()
        self.target = list(range(num_matrices))
        self.row_shift, self.col_shift = [0] * num_matrices, [0] * num_matrices
        self.dirty = bytearray(len(self.analysis.variables))

    def add_all(self, c: _Candidates, left: Bools) -> None:
        """Makes every merge whose variables no earlier merge of the round has touched."""
        variables = self.analysis.variables
        of_s1, of_s2 = variables.of_submatrices(c.s1), variables.of_submatrices(c.s2)
        fields = (c.command, c.s1, c.s2, left, c.is_assignment)
        for span1, span2, command, s1, s2, keep_s1, is_assignment in zip(
            _slices(of_s1), _slices(of_s2), *(field.tolist() for field in fields), strict=True
        ):
            if self._is_dirty(span1) or self._is_dirty(span2):
                continue
            self._soil(span1)
            self._soil(span2)
            self._merge(*((s1, s2) if keep_s1 else (s2, s1)))
            if is_assignment:
                self.opcodes[command] = NoOperation.OPCODE

    def _is_dirty(self, variables: tuple[int, int] | list[int]) -> bool:
        if isinstance(variables, tuple):
            return self.dirty.find(1, *variables) >= 0
        return any(self.dirty[variable] for variable in variables)

    def _soil(self, variables: tuple[int, int] | list[int]) -> None:
        if isinstance(variables, tuple):
            begin, end = variables
            self.dirty[begin:end] = b"\x01" * (end - begin)
        else:
            for variable in variables:
                self.dirty[variable] = 1

    def _merge(self, keep: int, discard: int) -> None:
        self.count += 1
        kept, row, _, col, _ = self.submatrices[keep]
        gone = self.submatrices[discard][MATRIX]
        self.target[gone], self.row_shift[gone], self.col_shift[gone] = kept, row, col
        whole = self.first_operands[self.allocate[kept]]
        self._merge_allocation(kept, gone, whole)
        self._merge_deallocation(kept, gone, whole)

    def _merge_allocation(self, kept: int, gone: int, whole: int) -> None:
        stays, goes = sorted((self.allocate[kept], self.allocate[gone]))
        if self.opcodes[goes] == AcceptInput.OPCODE:
            stays, goes = goes, stays
        is_zeroed = self.opcodes[goes] == AllocMatrixZeroed.OPCODE
        if is_zeroed and self.opcodes[stays] == AllocMatrixUndefined.OPCODE:
            self.opcodes[stays] = AllocMatrixZeroed.OPCODE
        self.first_operands[stays] = whole
        self.allocate[kept] = stays
        self.opcodes[goes] = NoOperation.OPCODE

    def _merge_deallocation(self, kept: int, gone: int, whole: int) -> None:
        first, last = sorted((self.deallocate[kept], self.deallocate[gone]))
        for goes in (first, last) if first < 0 else (first,):
            if goes >= 0:
                self.opcodes[goes] = NoOperation.OPCODE
        self.deallocate[kept] = -1 if first < 0 else last
        if first >= 0:
            self.first_operands[last] = whole

    def applied(self) -> Program:
        """Returns the program with the merges made."""
        table = self.program.table.copy()
        table[:, OPCODE_COLUMN] = self.opcodes
        table[:, FIRST_OPERAND_COLUMN] = self.first_operands
        submatrices = self.program.submatrices.copy()
        matrix = submatrices[:, MATRIX].copy()
        submatrices[:, MATRIX] = np.array(self.target, np.int32)[matrix]
        submatrices[:, 1] += np.array(self.row_shift, np.int32)[matrix]
        submatrices[:, 3] += np.array(self.col_shift, np.int32)[matrix]
        table = table[table[:, OPCODE_COLUMN] != NoOperation.OPCODE]
        return attrs.evolve(self.program, table=table, submatrices=submatrices)


def _least(values: Ids, lists: Csr) -> Ids:
    """The least value over each (not empty) list of variables."""
    least: Ids = np.minimum.reduceat(values[lists.values], lists.splits[:-1])
    return least


def _greatest(values: Ids, lists: Csr) -> Ids:
    """The greatest value over each (not empty) list of variables."""
    greatest: Ids = np.maximum.reduceat(values[lists.values], lists.splits[:-1])
    return greatest


def _slices(lists: Csr) -> list[tuple[int, int] | list[int]]:
    """Each list as (begin, end) if it is a range of numbers, else as the list that it is."""
    begin, end = lists.splits[:-1], lists.splits[1:]
    first, last = lists.values[begin], lists.values[end - 1]
    is_range = last - first == end - begin - 1
    return [
        (low, high + 1) if simple else lists.values[start:stop].tolist()
        for low, high, simple, start, stop in zip(
            first.tolist(),
            last.tolist(),
            is_range.tolist(),
            begin.tolist(),
            end.tolist(),
            strict=True,
        )
    ]
