"""Pass: two matrices become one where a copy, or a component that works in place, allows it.

This one idea removes assignments and lets components run forward and backward in place.
"""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation.arrays import Bools, Ids, where
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    AcceptInput,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    DeallocMatrix,
    NoOperation,
    Table,
    is_loop,
)

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.options import OptimizeOptions
from nnet3_optimizer.passes.matrices.merge_variables.candidates import (
    Candidates,
    find_candidates,
)
from nnet3_optimizer.passes.matrices.merge_variables.legality import (
    contiguous_matrices,
    legal_by_place,
    legal_by_time,
    may_be_legal_later,
)
from nnet3_optimizer.passes.matrices.merge_variables.placement import Placement
from nnet3_optimizer.passes.matrices.merge_variables.selection import select


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
    if is_loop(draft.table):
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
            put_off = may_be_legal_later(draft, put_off, merges, placed)
        needs_zeros = _needs_zeros(draft, merges, placed)
        draft, number = _merged(draft, merges, placed)
        draft.findings.needs_zeros = needs_zeros
        contiguous[placed.root[contiguous]] = True
        candidates = put_off._replace(command=number[put_off.command])
    return draft


def _merged(draft: Draft, merges: Candidates, placed: Placement) -> tuple[Draft, Ids]:
    """Returns the draft with these merges, and the new position of each old command, (C,)."""
    sizes = np.bincount(placed.root)
    members = where(sizes[placed.root] > 1)
    table = draft.table.copy()
    table[merges.command[merges.is_assignment], OPCODE_COLUMN] = NoOperation.OPCODE
    _merge_allocations(draft, table, members, placed.root)
    _merge_deallocations(draft, table, members, placed.root)
    kept = table[:, OPCODE_COLUMN] != NoOperation.OPCODE
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


def _merge_allocations(draft: Draft, table: Table, members: Ids, root: Ids) -> None:
    """Keeps AcceptInput if there is one, else the first allocation, of each merged matrix."""
    allocate = draft.analysis.lifetimes.allocate
    at, owner = allocate[members], root[members]
    opcodes = table[at, OPCODE_COLUMN]
    is_zeroed = np.zeros(len(root), dtype=np.bool_)
    is_zeroed[owner[opcodes == AllocMatrixZeroed.OPCODE]] = True
    stays = np.full(len(root), len(table), dtype=np.int64)
    accepts = opcodes == AcceptInput.OPCODE
    np.minimum.at(stays, owner, at)
    stays[owner[accepts]] = at[accepts]
    merged = where(stays < len(table))
    table[at, OPCODE_COLUMN] = NoOperation.OPCODE
    table[stays[merged], OPCODE_COLUMN] = np.where(
        is_zeroed[merged], AllocMatrixZeroed.OPCODE, AllocMatrixUndefined.OPCODE
    )
    table[at[accepts], OPCODE_COLUMN] = AcceptInput.OPCODE
    whole = draft.table[allocate[merged], FIRST_OPERAND_COLUMN]
    table[stays[merged], FIRST_OPERAND_COLUMN] = whole


def _merge_deallocations(draft: Draft, table: Table, members: Ids, root: Ids) -> None:
    """Keeps the last deallocation of each merged matrix; none if one of them had none."""
    lifetimes = draft.analysis.lifetimes
    at, owner = lifetimes.deallocate[members], root[members]
    last = np.full(len(root), -1, dtype=np.int64)
    np.maximum.at(last, owner, at)
    last[owner[at < 0]] = -1
    table[at[at >= 0], OPCODE_COLUMN] = NoOperation.OPCODE
    freed = where(last >= 0)
    table[last[freed], OPCODE_COLUMN] = DeallocMatrix.OPCODE
    whole = draft.table[lifetimes.allocate[freed], FIRST_OPERAND_COLUMN]
    table[last[freed], FIRST_OPERAND_COLUMN] = whole
