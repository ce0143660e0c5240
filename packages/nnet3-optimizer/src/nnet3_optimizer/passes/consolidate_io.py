"""Pass: inputs are accepted at the beginning of a segment, and outputs provided at its end."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation import analysis, arrays
from nnet3_computation import commands as c

from nnet3_optimizer.draft import Draft, with_label_found


def consolidate_io(draft: Draft) -> Draft:
    """Moves AcceptInput to the beginning of its segment and ProvideOutput to its end.

    The caller can then give all inputs of a segment at once, and take all outputs at once.

    1. AcceptInput moves if nothing accesses the matrix before it in its segment.
    2. ProvideOutput moves if nothing writes to the matrix, or takes its memory, after it in its
       segment.
    3. Neither moves past the label of a loop.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        m1 = accept input
        m2 = undefined
        m2 = affine.propagate(m1)
        provide output = m2
        m3 = accept ivector
        m4 = undefined
        m4 = affine.propagate(m3)
        provide output2 = m4
        segment end
        free m1
        free m3

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        m1 = accept input
        m3 = accept ivector
        m2 = undefined
        m2 = affine.propagate(m1)
        m4 = undefined
        m4 = affine.propagate(m3)
        provide output = m2
        provide output2 = m4
        segment end
        free m1
        free m3
    """
    if _is_in_order(draft):
        return draft
    opcodes = draft.opcodes
    is_marker = _BORDERS.among(draft.opcodes)
    segment: arrays.Ids = np.cumsum(is_marker) - is_marker
    rank = np.ones(len(opcodes), dtype=np.int64)
    accepts, provides = _movable(draft, segment)
    rank[accepts] = 0
    rank[provides] = 2
    rank[is_marker] = 3
    order = np.argsort(segment * 4 + rank, kind="stable")
    if (order[1:] > order[:-1]).all():
        return draft
    return attrs.evolve(draft, table=with_label_found(draft.table.take(order, axis=0)))


_BORDERS = analysis.CommandKinds.of(c.NoOperationMarker, c.NoOperationLabel)
"""Commands that no command moves past: the ends of segments, and the label of a loop."""


def _is_in_order(draft: Draft) -> bool:
    """Whether each segment is inputs, other commands, outputs already."""
    rank = np.ones(len(draft.table), dtype=np.int64)
    rank[draft.opcodes == c.AcceptInput.OPCODE] = 0
    rank[draft.opcodes == c.ProvideOutput.OPCODE] = 2
    falls = arrays.where(rank[1:] < rank[:-1])
    is_marker = _BORDERS.among(draft.opcodes)
    return bool((is_marker[falls] | is_marker[falls + 1]).all())


def _movable(draft: Draft, segment: arrays.Ids) -> tuple[arrays.Ids, arrays.Ids]:
    """Returns the commands that may move to the beginning, and to the end, of their segments."""
    deallocate = draft.analysis.lifetimes.deallocate
    movable: dict[int, list[int]] = {c.AcceptInput.OPCODE: [], c.ProvideOutput.OPCODE: []}
    positions = draft.positions(*movable)
    matrices = draft.layout.matrix_of[draft.table[positions, c.FIRST_OPERAND_COLUMN]]
    lists = draft.analysis.accesses_to_matrices(matrices)
    for at, matrix in zip(positions.tolist(), matrices.tolist(), strict=True):
        commands, access = lists[matrix]
        in_segment = segment[commands] == segment[at]
        if draft.opcodes[at] == c.AcceptInput.OPCODE:
            disturbed = bool((in_segment & (commands < at)).any())
        else:
            writes = (access & analysis.WRITE) != 0
            disturbed = bool((in_segment & writes & (commands > at)).any())
            freed = int(deallocate[matrix])
            disturbed |= freed > at and int(segment[freed]) == int(segment[at])
        if not disturbed:
            movable[int(draft.opcodes[at])].append(at)
    accepts, provides = (np.array(each, dtype=np.int64) for each in movable.values())
    return accepts, provides
