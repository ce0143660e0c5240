"""Pass: commands whose results nothing reads are removed."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation.analysis import Flow
from nnet3_computation.arrays import Bools, ordering, splits_of, where
from nnet3_computation.commands import Backprop, NoOperation, columns, is_loop

from nnet3_optimizer.draft import SIZING, Draft, drop_unused_memos, sizing_without_use


def remove_dead_commands(draft: Draft) -> Draft:
    """Removes commands whose results are never used, and unused matrices.

    1. A command is needed if it has side effects, or if a needed command reads a variable that it
       wrote before anything else wrote it as a whole, or uses a memo that it made.
    2. Allocation, deallocation and other sizing commands are needed if a needed command names the
    matrix.
    3. A Backprop that is needed for its model update alone does not compute an input derivative.
    4. Nothing is removed from loops, in which a later round may read what an earlier one wrote.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m2 = affine.propagate(m1)
        m3 = affine2.propagate(m2)
        provide output = m2
        segment end
        free m1
        free m3

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = zeros
        m2 = affine.propagate(m1)
        provide output = m2
        segment end
        free m1
    """
    if is_loop(draft.table):
        return draft
    draft = _without_unused_derivatives(draft)
    needed = _needed(draft)
    if needed.all():
        return draft
    table = draft.table.compress(needed, axis=0)
    drop_unused_memos(table)
    return attrs.evolve(draft, table=table)


def _needed(draft: Draft) -> Bools:
    """Returns which commands are needed, (C,) bool."""
    is_sizing = SIZING.among(draft.opcodes)
    is_nothing = draft.opcodes == NoOperation.OPCODE
    needed = draft.analysis.has_side_effects | is_sizing
    candidates = ~needed & ~is_nothing
    needed |= candidates
    in_vain = where(candidates & ~draft.analysis.feeds)
    if len(in_vain):
        needed[_with_what_leads_to(in_vain.tolist(), draft.analysis.flow, candidates)] = False
    return needed & ~sizing_without_use(draft, needed)


def _with_what_leads_to(in_vain: list[int], flow: Flow, candidates: Bools) -> list[int]:
    """Returns these commands, and the candidates whose results only these commands read."""
    apart = flow.reader != flow.writer
    reader, writer = flow.reader[apart], flow.writer[apart]
    order = ordering(reader)
    begins = splits_of(np.bincount(reader, minlength=len(candidates))).tolist()
    writers = writer[order].tolist()
    readers_left = np.bincount(writer, minlength=len(candidates)).tolist()
    dead, last = list(in_vain), 0
    while last < len(dead):
        for each in writers[begins[dead[last]] : begins[dead[last] + 1]]:
            readers_left[each] -= 1
            if not readers_left[each] and candidates[each]:
                dead.append(each)
        last += 1
    return dead


def _without_unused_derivatives(draft: Draft) -> Draft:
    """Returns the draft with input_deriv = 0 in each Backprop whose input derivative is unused."""
    at = draft.positions(Backprop.OPCODE)
    column = columns(Backprop)["input_deriv"]
    at = at[draft.analysis.has_side_effects[at] & (draft.table[at, column] > 0)]
    unused = at[~draft.analysis.feeds[at]]
    if not len(unused):
        return draft
    table = draft.table.copy()
    table[unused, column] = 0
    return attrs.evolve(draft, table=table)
