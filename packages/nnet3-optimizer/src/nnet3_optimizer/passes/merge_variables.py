"""Pass: two matrices become one where a copy, or a component that works in place, allows it.

This one idea removes assignments and lets components run forward and backward in place.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs
import numpy as np
from nnet3_computation import commands
from nnet3_computation.analysis import COL_OFFSET, MATRIX, NEVER, NUM_COLS, NUM_ROWS, ROW_OFFSET
from nnet3_computation.arrays import Bools, Ids, where

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.options import OptimizeOptions
from nnet3_optimizer.passes.merge_candidates import (
    Candidates,
    contiguous_matrices,
    find_candidates,
    legal_by_place,
    legal_by_time,
)


def merge_variables(draft: Draft, options: OptimizeOptions | None = None) -> Draft:
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
    3. if a component needs rows without gaps in the matrix that goes away, the submatrix that this
       matrix moves into is as wide as its own matrix;
    4. nothing but allocation with zeros accessed s2 before C; and
    5. for a copy with scale 1: m1 is not an output. From C on, one of s1 and s2 is not written at
        all, and the other one is not written while the first one is still used. If s1 is written,
        m2 is not an output;
    6. for all other candidates: C is the last access to s1.
    7. Neither matrix is compressed, nor handed over with SwapMatrix.
    8. The draft is not a loop: in a loop, a later round may read overwritten elements.

    A copy with scale 1 then goes away; one with another scale stays and scales in place. The merged
    matrix is allocated where the first of the two was (with zeros if one of them was), or accepted
    where the input was. Unless it is an output, it is freed where the last of the two was.

    Merges are made in rounds. A round makes all merges that leave each other legal (see
    `selection`). A merge never makes another one legal, so a later round tries only the legal
    merges that were put off. If not all can be made, copies with scale 1 come first: a merged copy
    goes away, and a component that does not run in place needs no more memory than the copy would.

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
    if commands.is_loop(draft.table):
        return draft
    candidates = find_candidates(draft, options or OptimizeOptions())
    contiguous = contiguous_matrices(draft)
    while len(candidates.command):
        candidates = legal_by_place(draft, candidates, contiguous)
        if not len(candidates.command):
            break
        legal, is_last = legal_by_time(draft, candidates)
        if not len(legal.command):
            break
        is_chosen, placed = _select(draft, legal, is_last, contiguous)
        merges, put_off = legal.where(is_chosen), legal.where(~is_chosen)
        if len(put_off.command):
            put_off = _may_be_legal_later(draft, put_off, merges, placed)
        needs_zeros = _needs_zeros(draft, merges, placed)
        draft, number = _merged(draft, merges, placed)
        draft.analysis.needs_zeros = needs_zeros
        contiguous[placed.root[contiguous]] = True
        candidates = put_off._replace(command=number[put_off.command])
    return draft


def _merged(draft: Draft, merges: Candidates, placed: Placement) -> tuple[Draft, Ids]:
    """Returns the draft with these merges, and the new position of each old command, (C,)."""
    sizes = np.bincount(placed.root)
    members = where(sizes[placed.root] > 1)
    table = draft.table.copy()
    table[merges.command[merges.is_assignment], commands.OPCODE_COLUMN] = (
        commands.NoOperation.OPCODE
    )
    _merge_allocations(draft, table, members, placed.root)
    _merge_deallocations(draft, table, members, placed.root)
    kept = table[:, commands.OPCODE_COLUMN] != commands.NoOperation.OPCODE
    merged = attrs.evolve(
        draft,
        table=table.compress(kept, axis=0),
        layout=attrs.evolve(draft.layout, submatrices=placed.of_submatrices(draft.submatrices)),
    )
    return merged, kept.cumsum() - 1


def _select(
    draft: Draft, legal: Candidates, is_last: Bools, contiguous: Bools
) -> tuple[Bools, Placement]:
    """Returns the result of `select`, without merges in place that would prevent assignments."""
    is_chosen, placed = select(draft, legal, is_last, contiguous)
    fails = where(legal.is_assignment & ~is_chosen)
    if not len(fails):
        return is_chosen, placed
    is_contested = np.zeros(len(draft.matrices), dtype=np.bool_)
    for submatrices in (legal.s1[fails], legal.s2[fails]):
        is_contested[placed.root[draft.layout.matrix_of[submatrices]]] = True
    of_s1 = placed.root[draft.layout.matrix_of[legal.s1]]
    stays = where(legal.is_assignment | ~(is_contested[of_s1] & is_chosen))
    if len(stays) < len(is_chosen):
        chosen, placed = select(draft, legal.where(stays), is_last[stays], contiguous)
        is_chosen[:] = False
        is_chosen[stays[chosen]] = True
    return is_chosen, placed


def _may_be_legal_later(
    draft: Draft, c: Candidates, merges: Candidates, placed: Placement
) -> Candidates:
    """Returns the candidates that rules 5 and 6 may still allow once others are merged.

    The two sides must still be in two matrices. Rule 6 forbids a candidate that reads all of a
    matrix which is then used after C. This holds for most candidates that were put off: the matrix
    that they read becomes part of another one, which lives longer.

    Args:
        draft: The draft.
        c: Candidates that are legal now, but not merged.
        merges: The candidates that are merged.
        placed: The places of all matrices after these merges.
    """
    accesses, matrix_of = draft.analysis.submatrix_accesses, draft.layout.matrix_of
    is_gone = np.zeros(len(draft.table), dtype=np.bool_)
    is_gone[merges.command[merges.is_assignment]] = True
    stays = where(~is_gone.take(accesses.command))
    last_use = np.full(len(draft.matrices), NEVER, dtype=np.int64)
    matrix = placed.root.take(matrix_of.take(accesses.submatrix.take(stays)))
    # Of several assignments to one element the last one holds.
    last_use[matrix] = accesses.command.take(stays)
    becomes = placed.root.take(matrix_of.take(c.s1))
    size = draft.submatrices[:, [NUM_ROWS, NUM_COLS]].take(c.s1, axis=0)
    is_whole = (size == draft.matrices.take(becomes, axis=0)).all(axis=1)
    may_be_legal = c.is_assignment | ~is_whole | (last_use.take(becomes) <= c.command)
    return c.where(may_be_legal & (placed.root.take(matrix_of.take(c.s2)) != becomes))


def _needs_zeros(draft: Draft, merges: Candidates, placed: Placement) -> Bools:
    """Returns `Analysis.needs_zeros`, (M,) bool, as it is after merges.

    When C runs, s2 then has the elements of s1, so only the rest of the matrix of s2 counts. A copy
    that goes away still counts as a read of zeros: unless the copy is dead, another command reads
    the elements that it copied.
    """
    analysis = draft.analysis
    own = analysis.needs_zeros_without(analysis.variables.of_submatrices(merges.s2).values)
    needs_zeros = np.zeros(len(own), dtype=np.bool_)
    needs_zeros[placed.root[own]] = True
    return needs_zeros


def _merge_allocations(draft: Draft, table: commands.Table, members: Ids, root: Ids) -> None:
    """Keeps AcceptInput if there is one, else the first allocation, of each merged matrix."""
    allocate = draft.analysis.lifetimes.allocate
    at, owner = allocate[members], root[members]
    opcodes = table[at, commands.OPCODE_COLUMN]
    is_zeroed = np.zeros(len(root), dtype=np.bool_)
    is_zeroed[owner[opcodes == commands.AllocMatrixZeroed.OPCODE]] = True
    stays = np.full(len(root), len(table), dtype=np.int64)
    accepts = opcodes == commands.AcceptInput.OPCODE
    np.minimum.at(stays, owner, at)
    stays[owner[accepts]] = at[accepts]
    merged = where(stays < len(table))
    table[at, commands.OPCODE_COLUMN] = commands.NoOperation.OPCODE
    table[stays[merged], commands.OPCODE_COLUMN] = np.where(
        is_zeroed[merged], commands.AllocMatrixZeroed.OPCODE, commands.AllocMatrixUndefined.OPCODE
    )
    table[at[accepts], commands.OPCODE_COLUMN] = commands.AcceptInput.OPCODE
    whole = draft.table[allocate[merged], commands.FIRST_OPERAND_COLUMN]
    table[stays[merged], commands.FIRST_OPERAND_COLUMN] = whole


def _merge_deallocations(draft: Draft, table: commands.Table, members: Ids, root: Ids) -> None:
    """Keeps the last deallocation of each merged matrix; none if one of them had none."""
    lifetimes = draft.analysis.lifetimes
    at, owner = lifetimes.deallocate[members], root[members]
    last = np.full(len(root), -1, dtype=np.int64)
    np.maximum.at(last, owner, at)
    last[owner[at < 0]] = -1
    table[at[at >= 0], commands.OPCODE_COLUMN] = commands.NoOperation.OPCODE
    freed = where(last >= 0)
    table[last[freed], commands.OPCODE_COLUMN] = commands.DeallocMatrix.OPCODE
    whole = draft.table[lifetimes.allocate[freed], commands.FIRST_OPERAND_COLUMN]
    table[last[freed], commands.FIRST_OPERAND_COLUMN] = whole


class Placement(NamedTuple):
    """The place of each matrix, (M,) each.

    Attributes:
        root: The matrix that it becomes a part of; itself, if it is not merged into another.
        row, col: Where it begins in that.
    """

    root: Ids
    row: Ids
    col: Ids

    def of_submatrices(self, submatrices: commands.Table) -> commands.Table:
        """Returns the submatrices, (S, 5), where they are now."""
        matrix = submatrices[:, MATRIX].astype(np.int64)
        moved = submatrices.copy()
        moved[:, MATRIX] = self.root.take(matrix)
        moved[:, ROW_OFFSET] += self.row.astype(np.int32).take(matrix)
        moved[:, COL_OFFSET] += self.col.astype(np.int32).take(matrix)
        return moved


def equal_matrices(draft: Draft, c: Candidates) -> Ids:
    """Returns for each matrix, (M,), the first of the whole matrices that it is merged with.

    If either matrix of a merge could be kept, they are merged as a whole, and it does not matter
    which one is kept: both lie at the same place.
    """
    either = c.left & c.right
    equal = np.arange(len(draft.matrices))
    # At most one candidate writes each matrix, so the merges form chains.
    matrix_of = draft.layout.matrix_of
    equal[matrix_of[c.s2[either]]] = matrix_of[c.s1[either]]
    while True:
        further = equal[equal]
        if np.array_equal(further, equal):
            return equal
        equal = further


def first_of_each_matrix(draft: Draft, c: Candidates) -> Bools:
    """Returns which candidates, (candidates,) bool, move a matrix that no earlier one moves."""
    equal = equal_matrices(draft, c)
    one_way = (c.left != c.right).nonzero()[0]
    gone = equal[_gone(draft, c)[one_way]]
    earliest = np.empty(len(equal), dtype=np.int64)
    # Of several assignments to one element the last one holds.
    earliest[gone[::-1]] = one_way[::-1]
    is_first = np.ones(len(c.command), dtype=np.bool_)
    is_first[one_way] = earliest[gone] == one_way
    return is_first


def placement(draft: Draft, c: Candidates) -> Placement:
    """Returns where all matrices lie after these merges, each of which moves another matrix."""
    equal = equal_matrices(draft, c)
    one_way = c.where(c.left != c.right)
    place = draft.submatrices.take(np.where(one_way.left, one_way.s1, one_way.s2), axis=0)
    gone = equal[_gone(draft, one_way)]
    root = np.arange(len(equal))
    row, col = np.zeros((2, len(equal)), dtype=np.int64)
    root[gone] = equal[place[:, MATRIX]]
    row[gone], col[gone] = place[:, ROW_OFFSET], place[:, COL_OFFSET]
    while True:
        further = root[root]
        if np.array_equal(further, root):
            return Placement(root[equal], row[equal], col[equal])
        row, col, root = row + row[root], col + col[root], further


def _gone(draft: Draft, c: Candidates) -> Ids:
    """The matrix that moves, of each candidate that can be merged in one way only."""
    return draft.layout.matrix_of[np.where(c.left, c.s2, c.s1)]


def select(
    draft: Draft, c: Candidates, is_last: Bools, contiguous: Bools
) -> tuple[Bools, Placement]:
    """Chooses legal candidates that stay legal when all of them are merged.

    If C is the last access to s1, the life of s1 ends where the life of s2 begins. Such merges do
    not affect each other, so whole chains are merged at once. A copy whose source is used later
    lets two lives overlap. It may end such a chain; but among candidates that read the source or
    the target of the copy, the earliest wins. No matrix moves to two places. A chain whose merged
    matrix would break rules 1 to 3 or 5 is merged in pieces.

    Args:
        draft: The draft.
        c: Legal candidates.
        is_last: (candidates,) bool, whether C is the last access to s1.
        contiguous: (M,) bool, matrices with rows that have to follow each other without a gap.

    Returns:
        Which candidates are chosen, (candidates,) bool, and the places of all matrices after them.
    """
    chosen = np.arange(len(c.command))
    if not is_last.all():
        chosen = _without_conflicts(draft, c, ~is_last)
    chosen = chosen[first_of_each_matrix(draft, c.where(chosen))]
    placed = placement(draft, c.where(chosen))
    broken = _broken(draft, c.where(chosen), placed.root, contiguous)
    if broken.any():
        pieces = chosen[broken]
        everything = np.ones(len(pieces), dtype=np.bool_)
        pieces = pieces[_without_conflicts(draft, c.where(pieces), everything)]
        chosen = np.sort(np.concatenate([chosen[~broken], pieces]))
        placed = placement(draft, c.where(chosen))
    is_chosen = np.zeros(len(c.command), dtype=np.bool_)
    is_chosen[chosen] = True
    return is_chosen, placed


def _broken(draft: Draft, c: Candidates, root: Ids, contiguous: Bools) -> Bools:
    """Returns which candidates, (candidates,) bool, belong to a chain that breaks a rule."""
    lifetimes = draft.analysis.lifetimes
    m1 = draft.layout.matrix_of[c.s1]
    group = root[m1]

    def count(of: Ids) -> Ids:
        return np.bincount(of, minlength=len(root))

    is_whole = draft.layout.is_whole
    inputs, outputs = count(root[lifetimes.is_input]), count(root[lifetimes.is_output])
    in_part = count(group[~(is_whole[c.s1] & is_whole[c.s2])])
    from_output = count(group[lifetimes.is_output[m1]])
    breaks = (inputs > 1) | (outputs > 1) | ((inputs + outputs > 0) & (in_part + from_output > 0))
    if contiguous.any():
        kept = np.where(c.left, c.s1, c.s2)
        narrow = count(group[~draft.layout.is_full_width[kept]])
        breaks |= (count(root[contiguous]) > 0) & (narrow > 0)
    breaks &= count(group) > 1
    is_broken: Bools = breaks[group]
    return is_broken


def _without_conflicts(draft: Draft, c: Candidates, alone: Bools) -> Ids:
    """Chooses candidates, earlier ones first, such that lives overlap in one of them at most.

    A candidate takes the variables of s1; if it is to be alone, it takes the variables of s2, too.
    No variable is taken twice.

    Args:
        draft: The draft.
        c: The candidates.
        alone: (candidates,) bool.

    Returns:
        The positions of the chosen candidates, ascending.
    """
    of_submatrices = draft.analysis.variables.of_submatrices
    sources = of_submatrices(c.s1).lists()
    targets = of_submatrices(c.s2[alone]).lists()
    taken: set[int] = set()
    chosen = []
    for position, (wanted, is_alone) in enumerate(zip(sources, alone.tolist(), strict=True)):
        if is_alone:
            wanted += next(targets)
        if taken.isdisjoint(wanted):
            taken.update(wanted)
            chosen.append(position)
    return np.array(chosen, dtype=np.int64)
