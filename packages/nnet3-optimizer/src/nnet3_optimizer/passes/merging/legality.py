"""Which candidates may be merged: the rules of `merge_variables`."""

from __future__ import annotations

import numpy as np
from nnet3_compiler.commands import (
    CompressMatrix,
    DecompressMatrix,
    Propagate,
    StoreStats,
    SwapMatrix,
)
from nnet3_compiler.declaration import FIRST_OPERAND_COLUMN, Command
from nnet3_descriptors.components.properties import ComponentProperties as Property
from nnet3_optimizer.analysis.accesses import WRITE, AccessLists
from nnet3_optimizer.analysis.csr import Bools, Csr, Ids, where
from nnet3_optimizer.analysis.variables import MATRIX, NUM_COLS
from nnet3_optimizer.operands import operand
from nnet3_optimizer.passes.merging.candidates import BACKWARD, Candidates, running
from nnet3_optimizer.program import Program

_CONTIGUOUS_OPERANDS: tuple[tuple[Property, tuple[type[Command], ...], str], ...] = (
    (Property.INPUT_CONTIGUOUS, (Propagate,), "input"),
    (Property.INPUT_CONTIGUOUS, (StoreStats,), "input"),
    (Property.INPUT_CONTIGUOUS, BACKWARD, "input_value"),
    (Property.INPUT_CONTIGUOUS, BACKWARD, "input_deriv"),
    (Property.OUTPUT_CONTIGUOUS, (Propagate,), "output"),
    (Property.OUTPUT_CONTIGUOUS, (StoreStats,), "output"),
    (Property.OUTPUT_CONTIGUOUS, BACKWARD, "output_value"),
    (Property.OUTPUT_CONTIGUOUS, BACKWARD, "output_deriv"),
)
"""Operands whose rows have to follow each other without a gap, by what the component needs."""

_PACKS = (CompressMatrix.OPCODE, DecompressMatrix.OPCODE)


# -- by place --------------------------------------------------------------------------------------


def legal_by_place(program: Program, c: Candidates, contiguous: Bools) -> Candidates:
    """Applies rules 1 to 3 and 7; what remains knows which of its matrices may be kept.

    Args:
        program: The program.
        c: The candidates.
        contiguous: (M,) bool, what `contiguous_matrices` returns.
    """
    submatrices, is_whole = program.submatrices, program.layout.is_whole
    m1, m2 = submatrices[c.s1, MATRIX], submatrices[c.s2, MATRIX]
    whole1, whole2 = is_whole[c.s1], is_whole[c.s2]
    is_input = program.analysis.lifetimes.is_input
    is_output = program.analysis.lifetimes.is_output
    legal = (c.s1 > 0) & (c.s2 > 0) & (m1 != m2)
    legal &= ~(is_input[m1] & is_input[m2]) & ~(is_output[m1] & is_output[m2])
    tied = _tied_matrices(program)
    legal &= ~tied[m1] & ~tied[m2]
    outside = is_input | is_output
    legal &= ~(outside[m1] | outside[m2]) | (whole1 & whole2)
    left = c.left & legal & whole2 & (full_width(program, c.s1) | ~contiguous[m2])
    right = c.right & legal & whole1 & (full_width(program, c.s2) | ~contiguous[m1])
    return c._replace(left=left, right=right).where(left | right)


def _tied_matrices(program: Program) -> Bools:
    """Which matrices are compressed or handed over, and so have to stay what they are."""
    tied = np.zeros(len(program.matrices), np.bool_)
    packs, swaps = program.positions(*_PACKS), program.positions(SwapMatrix.OPCODE)
    for at, column in ((packs, 0), (swaps, 0), (swaps, 1)):
        tied[program.submatrices[program.table[at, FIRST_OPERAND_COLUMN + column], MATRIX]] = True
    return tied


def full_width(program: Program, submatrix: Ids) -> Bools:
    """Returns which of these submatrices have all columns of their matrices."""
    columns = program.matrices[:, 1][program.submatrices[submatrix, MATRIX]]
    full: Bools = program.submatrices[submatrix, NUM_COLS] == columns
    return full


def contiguous_matrices(program: Program) -> Bools:
    """Which matrices have rows that a component needs to follow each other without a gap."""
    wanted = np.zeros(len(program.matrices), np.bool_)
    needed = int(np.bitwise_or.reduce(program.component_properties))
    for property_, types, name in _CONTIGUOUS_OPERANDS:
        if needed & int(property_):
            at = running(program, property_, *types)
            values = operand(program.table, at, types[0], name)
            wanted[program.submatrices[values, MATRIX]] = True
    wanted[0] = False
    return wanted


# -- by time ---------------------------------------------------------------------------------------


def legal_by_time(program: Program, c: Candidates) -> tuple[Candidates, Bools]:
    """Applies rules 4 to 6.

    Returns:
        What remains, and for which of it C is the last access to s1.
    """
    analysis = program.analysis
    of_s1, of_s2 = (analysis.variables.of_submatrices(s) for s in (c.s1, c.s2))
    first = analysis.nontrivial_accesses.first(absent=len(program.table))
    is_first = _least(first, of_s2) == c.command
    is_last = _greatest(analysis.variable_accesses.last(), of_s1) == c.command
    m1 = program.submatrices[c.s1, MATRIX]
    legal = is_first & ~(c.is_assignment & analysis.lifetimes.is_output[m1])
    shared = where(legal & ~is_last & c.is_assignment)
    legal &= is_last
    if len(shared):
        legal[shared] = _stay_equal(program, c.where(shared))
    return c.where(legal), is_last[legal]


def _stay_equal(program: Program, c: Candidates) -> Bools:
    """Returns for which copies with scale 1 both sides stay what they are while s1 is used."""
    analysis = program.analysis
    every = analysis.variable_accesses
    of_s1 = analysis.variables.of_submatrices(c.s1)
    last_use = _greatest(every.last(), of_s1)
    writes = every.only((every.access & WRITE) != 0)
    safe = _greatest(writes.last(), of_s1) < c.command
    safe &= last_use < _invalidated(program, c, writes)
    return safe


def _invalidated(program: Program, c: Candidates, writes: AccessLists) -> Ids:
    """The first command after C that writes to s2, or frees m2, for each candidate."""
    num_commands = len(program.table)
    analysis = program.analysis
    freed = analysis.lifetimes.deallocate[program.submatrices[c.s2, MATRIX]]
    limit = np.where(freed < 0, num_commands, freed)
    of_s2 = analysis.variables.of_submatrices(c.s2)
    keys = writes.thing * (num_commands + 1) + writes.command
    counts = of_s2.splits[1:] - of_s2.splits[:-1]
    wanted = of_s2.values * (num_commands + 1) + np.repeat(c.command, counts)
    place = np.searchsorted(keys, wanted, side="right")
    ends = writes.splits[of_s2.values + 1]
    following = np.full(len(place), num_commands, dtype=np.int64)
    exists = place < ends
    following[exists] = writes.command[place[exists]]
    earliest: Ids = np.minimum(limit, np.minimum.reduceat(following, of_s2.splits[:-1]))
    return earliest


def _least(values: Ids, lists: Csr) -> Ids:
    """The least value over each (not empty) list of variables."""
    least: Ids = np.minimum.reduceat(values[lists.values], lists.splits[:-1])
    return least


def _greatest(values: Ids, lists: Csr) -> Ids:
    """The greatest value over each (not empty) list of variables."""
    greatest: Ids = np.maximum.reduceat(values[lists.values], lists.splits[:-1])
    return greatest
