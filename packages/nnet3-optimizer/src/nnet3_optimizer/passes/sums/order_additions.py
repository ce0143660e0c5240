"""Pass: a sum begins with the term whose matrix can hold the sum."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_compiler.accesses import MATRIX, NUM_COLS, NUM_ROWS, CommandKinds
from nnet3_compiler.arrays import Ids, where
from nnet3_compiler.commands import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    MatrixAdd,
    alpha_bits,
    is_loop,
)

from nnet3_optimizer.draft import Draft

_SUMS = CommandKinds.of(MatrixAdd, AddRows, AddRowsMulti, AddRowRanges)

_NEVER_FIRST, _OF_A_PART = -2, -1
"""Ranks of additions that may not begin a sum, and of additions of a part of a matrix."""


def order_additions(draft: Draft) -> Draft:
    """Adds a term first that is not needed afterwards, so that the sum can take its memory.

    1. Only additions to the same submatrix that follow one another directly change places. They
       commute, up to rounding: none of them reads what another one writes.
    2. The addition that comes first is a MatrixAdd with scale 1. Its matrix is neither input nor
       output, and no later command accesses it. Source or target is a whole matrix; both are if the
       target is an input or output of the computation.
    3. The draft is no loop, in which a later round may access the matrix.

    If several additions may come first, the best source is a part of a matrix whose parts could all
    take such sums: for example the output of a layer for all times, to which a recurrent layer adds
    time by time. Then no sum needs memory of its own. Next come whole sources; among these the one
    whose first use is latest wins, because a sum that is merged into a part of a larger matrix
    needs that matrix from its first use on. Other parts come last: they keep all of their matrix in
    use.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m2 = affine.propagate(m1)
        m3 += m1
        m3 += m2
        provide output = m3
        segment end
        free m1
        free m2

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m2 = affine.propagate(m1)
        m3 += m2
        m3 += m1
        provide output = m3
        segment end
        free m1
        free m2
    """
    if is_loop(draft.table):
        return draft
    is_sum = _SUMS.among(draft.opcodes)
    target = np.where(is_sum, draft.table[:, FIRST_OPERAND_COLUMN], 0)
    follows = np.zeros(len(target), dtype=np.bool_)
    follows[1:] = is_sum[1:] & (target[1:] == target[:-1])
    if not follows.any():
        return draft
    rank = _rank(draft)
    late = where(follows & (rank != _NEVER_FIRST))
    if not len(late):
        return draft
    run = np.cumsum(~follows)
    place = np.arange(len(target), dtype=np.int64)
    begins = where(~follows)
    first: dict[int, int] = {}
    for at in late.tolist():
        begin = int(begins[run[at] - 1])
        if rank[at] > rank[first.get(begin, begin)]:
            first[begin] = at
    for begin, at in first.items():
        place[begin : at + 1] = [at, *range(begin, at)]
    return attrs.evolve(draft, table=draft.table.take(place, axis=0)) if first else draft


def _rank(draft: Draft) -> Ids:
    """Returns how well it would be to begin a sum with each command, (C,).

    The rank is `_NEVER_FIRST` for commands that break rule 2, and the first use of the source for
    commands that add a whole matrix. Parts rank higher if such commands add all parts of their
    matrix, and lower if not.
    """
    at = draft.positions(MatrixAdd.OPCODE)
    at = at[draft.table[at, ALPHA_COLUMN] == alpha_bits(1.0)]
    source = draft.table[at, FIRST_OPERAND_COLUMN + 1]
    target = draft.table[at, FIRST_OPERAND_COLUMN]
    analysis, layout = draft.analysis, draft.layout
    outside = analysis.lifetimes.is_input | analysis.lifetimes.is_output
    of_source = analysis.variables.of_submatrices(source)
    last = analysis.variable_accesses.last()[of_source.values]
    of_whole, to_whole = layout.is_whole[source], layout.is_whole[target]
    goes_outside = outside[draft.submatrices[target, MATRIX]]
    fits = ~outside[draft.submatrices[source, MATRIX]]
    fits &= np.where(goes_outside, of_whole & to_whole, of_whole | to_whole)
    if len(at):
        fits &= np.maximum.reduceat(last, of_source.splits[:-1]) == at
    rank = np.full(len(draft.table), _NEVER_FIRST, dtype=np.int64)
    at, of_whole, part = at[fits], of_whole[fits], draft.submatrices[source[fits]]
    matrix, sizes = part[:, MATRIX], part[:, [NUM_ROWS, NUM_COLS]].astype(np.int64).prod(axis=1)
    added = np.bincount(matrix, sizes * ~of_whole, len(draft.matrices))
    is_all_added = (added >= draft.matrices.astype(np.int64).prod(axis=1)).take(matrix)
    of_part = np.where(is_all_added, len(draft.table), _OF_A_PART)
    rank[at] = np.where(of_whole, analysis.matrix_use[0].take(matrix), of_part)
    return rank
