"""Pass: rows that nothing uses are not allocated."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation import analysis, arrays
from nnet3_computation import commands as c

from nnet3_optimizer.debug_info import rows_of
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.renumber import renumber

_SIZING = analysis.CommandKinds.of(c.AllocMatrixUndefined, c.AllocMatrixZeroed, c.DeallocMatrix)


def trim_matrices(draft: Draft) -> Draft:
    """Cuts rows off the beginning and the end of matrices.

    1. No command but allocation and deallocation names these rows.
    2. The matrix is neither input nor output, and some of its rows are used.
    3. No command but allocation and deallocation names the matrix as a whole, for example to
       compress it or hand it over: this follows from rule 1.
    4. Loops stay as they are.

    Before::

        m1 = 2 x 4
        m2 = 6 x 4
        m3 = 2 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m2(3:4, :) = m1
        m3 = affine.propagate(m2(3:4, :))
        provide output = m3
        segment end
        free m1
        free m2

    After::

        m1 = 2 x 4
        m2 = 2 x 4
        m3 = 2 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m2 = m1
        m3 = affine.propagate(m2)
        provide output = m3
        segment end
        free m1
        free m2
    """
    if c.is_loop(draft.table) or not _is_trimmed(draft, *_used_rows(draft)).any():
        return draft
    draft = renumber(draft)  # an unused submatrix may include rows that are cut off
    begin, end = _used_rows(draft)
    trimmed = _is_trimmed(draft, begin, end)
    new_matrices = draft.matrices.copy()
    new_matrices[trimmed, 0] = (end - begin)[trimmed]
    submatrices = draft.submatrices.copy()
    matrix = submatrices[:, analysis.MATRIX]
    affected = trimmed[matrix]
    low = np.maximum(submatrices[:, 1], begin[matrix])
    high = np.minimum(submatrices[:, 1] + submatrices[:, 2], end[matrix])
    submatrices[affected, 1] = (low - begin[matrix])[affected]
    submatrices[affected, 2] = (high - low)[affected]
    debug_info = list(draft.debug_info)
    if debug_info:
        for m in np.flatnonzero(trimmed).tolist():
            debug_info[m] = rows_of(debug_info[m], int(begin[m]), int(end[m]))
    return attrs.evolve(
        draft,
        layout=analysis.Layout(matrices=new_matrices, submatrices=submatrices),
        debug_info=tuple(debug_info),
    )


def _is_trimmed(draft: Draft, begin: arrays.Ids, end: arrays.Ids) -> arrays.Bools:
    """Returns which matrices have some used rows, but not all; (M,) bool."""
    return (begin < end) & ((begin > 0) | (end < draft.matrices[:, 0]))


def _used_rows(draft: Draft) -> tuple[arrays.Ids, arrays.Ids]:
    """Returns the first and one past the last row of each matrix that is used, (M,) each."""
    submatrices = draft.submatrices
    sizing = _SIZING.among(draft.opcodes)
    named = draft.analysis.named_submatrices(~sizing)
    rows = submatrices[named]
    begin = draft.matrices[:, 0].astype(np.int64)
    end = np.zeros_like(begin)
    np.minimum.at(begin, rows[:, analysis.MATRIX], rows[:, 1])
    np.maximum.at(end, rows[:, analysis.MATRIX], rows[:, 1] + rows[:, 2])
    lifetimes = draft.analysis.lifetimes
    kept = lifetimes.is_input | lifetimes.is_output
    begin[kept], end[kept] = 0, draft.matrices[kept, 0]
    return begin, end
