"""Pass: splices and sums are freed after the forward part and made again for the backward part."""

from __future__ import annotations

import numpy as np
from nnet3_computation.analysis import MATRIX
from nnet3_computation.arrays import Ids
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    NoOperationMarker,
    SwapMatrix,
    is_loop,
)

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.passes.backward.memory_compression import idle_matrices
from nnet3_optimizer.passes.backward.recompute_activations.recipes import RecipeBook
from nnet3_optimizer.passes.backward.recompute_activations.rewriting import Rewriting
from nnet3_optimizer.passes.backward.recompute_activations.selection import (
    WORTH_RECOMPUTING,
    LiveBytes,
    select,
)
from nnet3_optimizer.passes.matrices.move_sizing_commands import move_sizing_commands


def recompute_activations(draft: Draft, level: int) -> Draft:
    """Frees activations after the forward part and makes them again just before they are needed.

    A matrix may go if it is neither input nor output, and the backward part only reads it. There
    are three ways to make it again:

    1. All of it was copied, row by row, from matrices that are kept and unchanged (the arguments of
       an Append, a change of the order of rows). The copies are repeated: the result is the same
       bit for bit. Copies may also read one part of the matrix itself; this part is then kept in a
       matrix of its own.
    2. All rows of it were copied to a matrix that is kept: they are copied back, bit for bit.
    3. It is a term of a sum, such as the output of a layer with a bypass: it is the sum less the
       other terms, up to rounding. The scales of the other terms are at most 1, so the rounding
       errors are no larger than those of the sum. A NoOp in place changes nothing. This way is not
       used for a matrix that is read by the backward pass of a rectifier, or of another component
       for which a small value differs from zero.

    The pass takes only large matrices that lower the peak, the one that frees most first. If
    needed, their sources are freed later. No component runs twice. Matrices that
    `memory_compression` will compress at a level count with their compressed size.

    Before::

        m1 = 6 x 4
        m2 = 4 x 8
        m3 = 4 x 4
        m4 = 4 x 4
        m5 = 4 x 4
        m6 = 4 x 4
        m1 = accept input
        m2 = undefined
        m2(:, 0:3) = m1(0:3, :)
        m2(:, 4:7) = m1(2:5, :)
        free m1
        m3 = undefined
        m3 = wide.propagate(m2)
        m4 = undefined
        m4 = affine.propagate(m3)
        provide output = m4
        segment end
        m5 = accept output
        m6 = zeros
        m6 = affine.backprop(m5, input m3)
        free m3
        free m5
        - = wide.backprop(m6, input m2)
        free m2
        free m6

    After::

        m1 = 6 x 4
        m2 = 4 x 8
        m3 = 4 x 4
        m4 = 4 x 4
        m5 = 4 x 4
        m6 = 4 x 4
        m7 = 4 x 8
        m1 = accept input
        m2 = undefined
        m2(:, 0:3) = m1(0:3, :)
        m2(:, 4:7) = m1(2:5, :)
        m3 = undefined
        m3 = wide.propagate(m2)
        free m2
        m4 = undefined
        m4 = affine.propagate(m3)
        provide output = m4
        segment end
        m5 = accept output
        m6 = zeros
        m6 = affine.backprop(m5, input m3)
        free m3
        free m5
        m7 = undefined
        m7(:, 0:3) = m1(0:3, :)
        m7(:, 4:7) = m1(2:5, :)
        free m1
        - = wide.backprop(m6, input m7)
        free m7
        free m6
    """
    markers = draft.positions(NoOperationMarker.OPCODE)
    if is_loop(draft.table) or len(markers) != 1 or len(draft.positions(SwapMatrix.OPCODE)):
        return draft
    marker = int(markers[0])
    candidates = _candidates(draft, marker)
    if not len(candidates):
        return draft
    edit = Edit(draft)
    bits, others = idle_matrices(draft, marker, level)
    live = LiveBytes(draft, marker, bits, others)
    least = WORTH_RECOMPUTING * int(live.bytes.max(initial=0))
    candidates = candidates[live.idle_sizes[candidates] >= least]
    book = RecipeBook(draft, marker, edit, candidates, bits.matrix)
    recipes = select(book, live, candidates, least)
    if not recipes:
        return draft
    Rewriting(draft, edit, recipes).follow(live.free_from)
    return move_sizing_commands(edit.draft())


def _candidates(draft: Draft, marker: int) -> Ids:
    """Returns the matrices that are allocated, and used before and after the marker."""
    first, last = draft.analysis.uses.first_and_last
    at = draft.positions(AllocMatrixUndefined.OPCODE, AllocMatrixZeroed.OPCODE)
    allocated = draft.submatrices[draft.table[at, FIRST_OPERAND_COLUMN], MATRIX]
    times_allocated = np.bincount(allocated, minlength=len(draft.matrices))
    lifetimes = draft.analysis.lifetimes
    fits = (times_allocated == 1) & (lifetimes.deallocate > marker)
    fits &= (first >= 0) & (first < marker) & (last > marker)
    return np.flatnonzero(fits & ~lifetimes.is_output & ~lifetimes.is_input)
