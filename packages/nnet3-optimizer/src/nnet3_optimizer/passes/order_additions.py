"""Pass: a sum begins with the term whose matrix can hold the sum."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation import commands as c
from nnet3_computation.analysis import MATRIX, NEVER, NUM_COLS, NUM_ROWS, CommandKinds
from nnet3_computation.arrays import Bools, Ids, where

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.merge_candidates import contiguous_matrices

_SUMS = CommandKinds.of(c.MatrixAdd, c.AddRows, c.AddRowsMulti, c.AddRowRanges)

_NEVER_FIRST, _LAST_CHOICE = -2, -1
"""The lowest ranks: of additions that must not begin a sum, and that should not if others may."""


def order_additions(draft: Draft) -> Draft:
    """Adds a term first that is not needed afterwards, so that the sum can take its memory.

    1. Only additions to the same submatrix that follow one another directly change places. They
       commute, up to rounding: none of them reads what another one writes.
    2. The addition that comes first is a MatrixAdd with scale 1.
    3. Its matrix can hold the sum: it is neither input nor output, and no other addition of the sum
       and no later command reads it. Source or target is a whole matrix; both are if the target is
       an input or output of the computation, or if the rows of the other one must have no gaps.
    4. The draft is not a loop: in a loop, a later round may access the matrix.

    If several additions may come first, the best source is a part of a matrix whose parts could all
    take such sums. An example is the output of a layer for all times, to which a recurrent layer
    adds time by time. Then no sum needs memory of its own. Next come whole sources. Among these the
    source whose first use is latest wins, because a sum that is merged into a part of a larger
    matrix needs that matrix from its first use on. Other parts come last: they keep all of their
    matrix in use.

    A sum that is copied as it is can lie where it is copied to. The inputs of a recurrent layer are
    copied so, to one matrix before the update of the model. Then no part comes first, because a sum
    in it would be copied and keep all of its matrix in use. Any other addition goes before it,
    without rule 3.

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
    if c.is_loop(draft.table):
        return draft
    is_sum = _SUMS.among(draft.opcodes)
    target = np.where(is_sum, draft.table[:, c.FIRST_OPERAND_COLUMN], 0)
    follows = np.zeros(len(target), dtype=np.bool_)
    follows[1:] = is_sum[1:] & (target[1:] == target[:-1])
    if not follows.any():
        return draft
    place = np.arange(len(target), dtype=np.int64)
    begins = np.maximum.accumulate(np.where(follows, 0, place))
    rank = _rank(draft, begins)
    late = where(follows & (rank != _NEVER_FIRST))
    first: dict[int, int] = {}
    for at in late.tolist():
        begin = int(begins[at])
        if rank[at] > rank[first.get(begin, begin)]:
            first[begin] = at
    for begin, at in first.items():
        place[begin : at + 1] = [at, *range(begin, at)]
    return attrs.evolve(draft, table=draft.table.take(place, axis=0)) if first else draft


def _rank(draft: Draft, begins: Ids) -> Ids:
    """Returns how well it would be to begin a sum with each command, (C,).

    The rank is `_NEVER_FIRST` for commands that break rule 2 or 3, and the first use of the source
    for commands that add a whole matrix. Parts rank higher if such commands add all parts of their
    matrix, and lower if not. For a sum that is copied, all but the whole matrices rank low, and
    parts lowest.

    Args:
        draft: The draft.
        begins: (C,) the command that begins the sum of each command.
    """
    at = draft.positions(c.MatrixAdd.OPCODE)
    at = at[draft.table[at, c.ALPHA_COLUMN] == c.alpha_bits(1.0)]
    source = draft.table[at, c.FIRST_OPERAND_COLUMN + 1]
    target = draft.table[at, c.FIRST_OPERAND_COLUMN]
    analysis, layout = draft.analysis, draft.layout
    outside = analysis.lifetimes.is_input | analysis.lifetimes.is_output
    of_whole, to_whole = layout.is_whole[source], layout.is_whole[target]
    from_matrix, to_matrix = draft.submatrices[source, MATRIX], draft.submatrices[target, MATRIX]
    contiguous = contiguous_matrices(draft)
    fits = ~outside[from_matrix] & (of_whole | to_whole)
    fits &= ~outside[to_matrix] | (of_whole & to_whole)
    fits &= ~contiguous[from_matrix] | layout.is_full_width[target]
    fits &= ~contiguous[to_matrix] | layout.is_full_width[source]
    if len(at):
        fits &= _is_read_once(draft, source, at, begins[at])
    rank = np.full(len(draft.table), _NEVER_FIRST, dtype=np.int64)
    is_copied = _is_copied(draft).take(target)
    rank[at[is_copied]] = _LAST_CHOICE
    at, of_whole, part = at[fits], of_whole[fits], draft.submatrices[source[fits]]
    matrix, sizes = part[:, MATRIX], part[:, [NUM_ROWS, NUM_COLS]].astype(np.int64).prod(axis=1)
    added = np.bincount(matrix, sizes * ~of_whole, len(draft.matrices))
    is_all_added = (added >= draft.matrices.astype(np.int64).prod(axis=1)).take(matrix)
    of_part = np.where(is_all_added, len(draft.table), _LAST_CHOICE)
    of_part[is_copied[fits]] = _NEVER_FIRST
    rank[at] = np.where(of_whole, analysis.matrix_use[0].take(matrix), of_part)
    return rank


def _is_read_once(draft: Draft, sources: Ids, at: Ids, begins: Ids) -> Bools:
    """Returns whether nothing but one addition accesses each source from its sum on, (N,).

    Args:
        draft: The draft.
        sources: (N,) the submatrices, not empty.
        at: (N,) the additions that read them.
        begins: (N,) the command that begins the sum of each.
    """
    lists = draft.analysis.variable_accesses
    of_source = draft.analysis.variables.of_submatrices(sources)
    last = lists.last()[of_source.values]
    ends = lists.splits[of_source.values + 1]
    has_two = ends - lists.splits[of_source.values] > 1
    before = np.where(has_two, lists.command[ends - 1 - has_two], NEVER)
    starts = of_source.splits[:-1]
    once: Bools = np.maximum.reduceat(last, starts) == at
    return once & (np.maximum.reduceat(before, starts) < begins)


def _is_copied(draft: Draft) -> Bools:
    """Returns which submatrices, (S,) bool, are copied to another place as they are."""
    copies = draft.table[draft.positions(c.MatrixCopy.OPCODE)]
    is_copied = np.zeros(len(draft.submatrices), dtype=np.bool_)
    is_copied[
        copies[copies[:, c.ALPHA_COLUMN] == c.alpha_bits(1.0), c.FIRST_OPERAND_COLUMN + 1]
    ] = True
    return is_copied
