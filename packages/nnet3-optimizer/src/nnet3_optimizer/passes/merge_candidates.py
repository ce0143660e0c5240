"""Pairs of submatrices that could become one, and the rules of `merge_variables` for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from nnet3_computation import commands
from nnet3_computation.analysis import NEVER, WRITE, CommandKinds
from nnet3_computation.arrays import Bools, Csr, Ids, where
from nnet3_descriptors.components import ComponentProperties as Property

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.options import OptimizeOptions

_ONE = commands.alpha_bits(1.0)

BACKWARD = (commands.Backprop, commands.BackpropNoModelUpdate)


class Candidates(NamedTuple):
    """Candidates by command: each field is (candidates,).

    Attributes:
        command: The command, ascending.
        s1: The submatrix that it reads.
        s2: The submatrix that it writes.
        is_assignment: Whether it is a copy with scale 1.
        left: Whether the matrix of s1 may be kept.
        right: Whether the matrix of s2 may be kept.
    """

    command: Ids
    s1: Ids
    s2: Ids
    is_assignment: Bools
    left: Bools
    right: Bools

    def where(self, wanted: Bools | Ids) -> Candidates:
        """The candidates for which `wanted` is True, or those at the positions `wanted`."""
        return Candidates._make(column[wanted] for column in self)


def find_candidates(draft: Draft, options: OptimizeOptions) -> Candidates:
    """Returns all candidates, legal or not."""
    kinds = [commands.MatrixCopy] * options.remove_assignments
    in_place = (
        commands.Propagate,
    ) * options.propagate_in_place + BACKWARD * options.backprop_in_place
    at = CommandKinds.of(*kinds, *in_place).positions(draft.opcodes)
    opcode, rows = draft.opcodes.take(at), draft.table.take(at, axis=0)
    is_copy = opcode == commands.MatrixCopy.OPCODE
    fits, runs = is_copy.copy(), where(~is_copy)
    properties = draft.component_properties.take(rows[runs, commands.FIRST_OPERAND_COLUMN])
    fits[runs] = (properties & _IN_PLACE.take(opcode[runs])) != 0
    backward = where(fits & (opcode != commands.Propagate.OPCODE) & ~is_copy)
    if len(backward):
        fits[backward] = _values_lie_elsewhere(draft, rows.take(backward, axis=0))
    at, opcode, rows, is_copy = at[fits], opcode[fits], rows[fits], is_copy[fits]
    cells = rows.reshape(-1)
    first_cell = np.arange(len(at)) * commands.TABLE_WIDTH
    return Candidates(
        command=at,
        s1=cells.take(first_cell + _S1.take(opcode)).astype(np.int64),
        s2=cells.take(first_cell + _S2.take(opcode)).astype(np.int64),
        is_assignment=is_copy & (rows[:, commands.ALPHA_COLUMN] == _ONE),
        left=np.full(len(at), options.allow_left_merge),
        right=np.full(len(at), options.allow_right_merge),
    )


def _values_lie_elsewhere(draft: Draft, rows: commands.Table) -> Bools:
    """Returns which Backprop commands read no values in the memory of the derivatives."""
    named = {
        name: rows[:, column].astype(np.int64)
        for name, column in commands.columns(commands.Backprop).items()
    }
    apart = np.ones(len(rows), np.bool_)
    for value in ("input_value", "output_value"):
        for deriv in ("output_deriv", "input_deriv"):
            apart &= ~draft.layout.overlap(named[value], named[deriv])
    return apart


_IN_PLACE, _S1, _S2 = np.zeros((3, len(commands.SCHEMA.types)), dtype=np.int64)
"""By opcode, the property that components of a candidate need, and the columns of s1 and s2."""

_OPERANDS: tuple[tuple[type[commands.Command], int, str, str], ...] = (
    (commands.MatrixCopy, 0, "input", "output"),
    (commands.Propagate, int(Property.PROPAGATE_IN_PLACE), "input", "output"),
    *((each, int(Property.BACKPROP_IN_PLACE), "output_deriv", "input_deriv") for each in BACKWARD),
)
for _type, _property, _read, _written in _OPERANDS:
    _IN_PLACE[_type.OPCODE] = _property
    _S1[_type.OPCODE], _S2[_type.OPCODE] = (
        commands.columns(_type)[name] for name in (_read, _written)
    )


_CONTIGUOUS = int(Property.INPUT_CONTIGUOUS | Property.OUTPUT_CONTIGUOUS)

_NEEDED = np.zeros(commands.SCHEMA.kind.shape, dtype=np.int32)
for _type in (commands.Propagate, commands.StoreStats, *BACKWARD):
    for _name, _column in commands.columns(_type).items():
        if _name.startswith("input"):
            _NEEDED[_type.OPCODE, _column] = Property.INPUT_CONTIGUOUS
        elif _name.startswith("output"):
            _NEEDED[_type.OPCODE, _column] = Property.OUTPUT_CONTIGUOUS
_RUNS = _NEEDED.any(axis=1)
"""By opcode and column the property of a component that needs contiguous rows there, or 0."""

_TYING = CommandKinds.of(commands.CompressMatrix, commands.DecompressMatrix, commands.SwapMatrix)
_SECOND = commands.FIRST_OPERAND_COLUMN + 1


# -- by place --------------------------------------------------------------------------------------


def legal_by_place(draft: Draft, c: Candidates, contiguous: Bools) -> Candidates:
    """Applies rules 1 to 3 and 7; returns the legal candidates, with the matrices they may keep.

    Args:
        draft: The draft.
        c: The candidates.
        contiguous: (M,) bool, the result of `contiguous_matrices`.
    """
    layout = draft.layout
    m1, m2 = layout.matrix_of[c.s1], layout.matrix_of[c.s2]
    whole1, whole2 = layout.is_whole[c.s1], layout.is_whole[c.s2]
    is_input = draft.analysis.lifetimes.is_input
    is_output = draft.analysis.lifetimes.is_output
    legal = (c.s1 > 0) & (c.s2 > 0) & (m1 != m2)
    legal &= ~(is_input[m1] & is_input[m2]) & ~(is_output[m1] & is_output[m2])
    outside = is_input | is_output
    tied = _tied_matrices(draft)
    if len(tied):
        legal &= ~np.isin(m1, tied) & ~np.isin(m2, tied)
    legal &= ~(outside[m1] | outside[m2]) | (whole1 & whole2)
    left = c.left & legal & whole2 & (layout.is_full_width[c.s1] | ~contiguous[m2])
    right = c.right & legal & whole1 & (layout.is_full_width[c.s2] | ~contiguous[m1])
    return c._replace(left=left, right=right).where(left | right)


def _tied_matrices(draft: Draft) -> Ids:
    """The matrices that no merge may change, because they are compressed or handed over."""
    at = _TYING.positions(draft.opcodes)
    swaps = at[draft.opcodes[at] == commands.SwapMatrix.OPCODE]
    first, second = draft.table[at, commands.FIRST_OPERAND_COLUMN], draft.table[swaps, _SECOND]
    tied: Ids = draft.layout.matrix_of[np.concatenate([first, second])]
    return tied


def contiguous_matrices(draft: Draft) -> Bools:
    """Which matrices have rows that must have no gaps, because a component needs it."""
    wanted = np.zeros(len(draft.matrices), np.bool_)
    if np.bitwise_or.reduce(draft.component_properties) & _CONTIGUOUS:
        at = where(_RUNS.take(draft.opcodes))
        rows = draft.table.take(at, axis=0)
        properties = draft.component_properties.take(rows[:, commands.FIRST_OPERAND_COLUMN])
        is_needed = (_NEEDED.take(draft.opcodes[at], axis=0) & properties[:, None]) != 0
        wanted[draft.layout.matrix_of.take(rows[is_needed])] = True
        wanted[0] = False
    return wanted


# -- by time ---------------------------------------------------------------------------------------


def legal_by_time(draft: Draft, c: Candidates) -> tuple[Candidates, Bools]:
    """Applies rules 4 to 6.

    Returns:
        The candidates that remain, and for which of them C is the last access to s1.
    """
    analysis = draft.analysis
    of_s1, of_s2 = (analysis.variables.of_submatrices(s) for s in (c.s1, c.s2))
    is_first = _least(analysis.first_user, of_s2) == c.command
    is_last = _greatest(analysis.variable_accesses.last(), of_s1) == c.command
    m1 = draft.layout.matrix_of[c.s1]
    legal = is_first & ~(c.is_assignment & analysis.lifetimes.is_output[m1])
    shared = legal & ~is_last & c.is_assignment
    legal &= is_last
    if shared.any():
        legal |= shared & _stay_equal(draft, c, of_s1, of_s2)
    return c.where(legal), is_last[legal]


def _stay_equal(draft: Draft, c: Candidates, of_s1: Csr, of_s2: Csr) -> Bools:
    """Returns for which copies with scale 1 neither side changes while the other is used.

    Args:
        draft: The draft.
        c: The candidates.
        of_s1: The variables of each s1.
        of_s2: The variables of each s2.
    """
    analysis, variables = draft.analysis, draft.analysis.variables
    lists = analysis.variable_accesses
    writes = where((lists.access & WRITE) != 0)
    last_write = np.full(len(variables), NEVER, dtype=np.int64)
    # Of several assignments to one element the last one holds.
    last_write[lists.thing.take(writes)] = lists.command.take(writes)
    changes1 = _greatest(last_write, of_s1) > c.command
    changes2 = _greatest(last_write, of_s2) > c.command
    m1, m2 = draft.layout.matrix_of[c.s1], draft.layout.matrix_of[c.s2]
    safe = np.zeros(len(c.command), dtype=np.bool_)
    for may_be, of_lasting, changing, matrix in (
        (~changes1, of_s1, c.s2, m2),
        (changes1 & ~changes2 & ~analysis.lifetimes.is_output[m2], of_s2, c.s1, m1),
    ):
        last_use = _greatest(lists.last(), of_lasting)
        freed = analysis.lifetimes.deallocate[matrix]
        may_be = may_be & ((last_use < freed) | (freed < 0))
        # Only if the other side is written to again, the time of its writes matters.
        again = where(may_be & (changes1 | changes2))
        if len(again):
            written = _written_after(draft, c.command[again], changing[again])
            may_be[again] = last_use[again] < written
        safe |= may_be
    return safe


def _written_after(draft: Draft, at: Ids, submatrices: Ids) -> Ids:
    """The first command after each command that writes to a submatrix; C if there is none."""
    num_commands = len(draft.table)
    analysis = draft.analysis
    writes = analysis.variable_accesses.only((analysis.variable_accesses.access & WRITE) != 0)
    variables = analysis.variables.of_submatrices(submatrices)
    keys = writes.thing * (num_commands + 1) + writes.command
    counts = variables.splits[1:] - variables.splits[:-1]
    wanted = variables.values * (num_commands + 1) + np.repeat(at, counts)
    place = np.searchsorted(keys, wanted, side="right")
    ends = writes.splits[variables.values + 1]
    following = np.full(len(place), num_commands, dtype=np.int64)
    exists = place < ends
    following[exists] = writes.command[place[exists]]
    earliest: Ids = np.minimum.reduceat(following, variables.splits[:-1])
    return earliest


def _least(values: Ids, lists: Csr) -> Ids:
    """The least value over each (not empty) list of variables."""
    least: Ids = np.minimum.reduceat(values[lists.values], lists.splits[:-1])
    return least


def _greatest(values: Ids, lists: Csr) -> Ids:
    """The greatest value over each (not empty) list of variables."""
    greatest: Ids = np.maximum.reduceat(values[lists.values], lists.splits[:-1])
    return greatest
