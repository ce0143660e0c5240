"""Pass: statistics over time are extracted and pooled for a few sequences at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from nnet3_computation.arrays import Bools, Ids
from nnet3_computation.commands import FIRST_OPERAND_COLUMN, Propagate, is_in_segments
from nnet3_descriptors.values import remembered

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.passes.sums.split_statistics.chains import Finder
from nnet3_optimizer.passes.sums.split_statistics.parts import find_parts
from nnet3_optimizer.passes.sums.split_statistics.splitting import Splitting

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

LEAST_BYTES = 1 << 20
"""The smallest size of a part, in bytes."""


def split_statistics(draft: Draft, least_bytes: int = LEAST_BYTES) -> Draft:
    """Extracts statistics from some sequences, pools them, and goes on to the next sequences.

    Extracted statistics have more than twice as many columns as their input, and one row for each
    frame, but are only needed for sums. In the backward part they are extracted again, for some
    sequences at a time, and their derivatives are added to the frames at once.

    1. A StatisticsExtraction feeds a StatisticsPooling and nothing else, directly or as a copy;
       their derivatives likewise. The input of the extraction does not change in between.
    2. Both have the rows of a sequence next to each other, so that each output row is a sum over a
       range of rows. A cut lies where no range reaches across it, and every row belongs to a part.
       A row of either component depends on its own range alone, so results are the same, bit for
       bit.
    3. Parts have at least 1 MiB of statistics, and there are no more than eight.

    Before::

        m1 = frames
        m2 = statistics
        m3 = pooled
        m1 = accept input
        m2 = zeros
        m2 = extract.propagate(m1, precomputed p1)
        m3 = undefined
        m3 = pool.propagate(m2, precomputed p2)
        free m2

    After::

        m4 = zeros
        m4 = extract.propagate(m1(0:299, :), precomputed p3)
        m3 = undefined
        m3(0:0, :) = pool.propagate(m4, precomputed p4)
        free m4
        m5 = zeros
        m5 = extract.propagate(m1(300:599, :), precomputed p5)
        m3(1:1, :) = pool.propagate(m5, precomputed p6)
        free m5
    """
    pools = _pools(draft)
    if not len(pools) or is_in_segments(draft.table):
        return draft
    finder = Finder(draft, draft.analysis.uses)
    edit: Edit | None = None
    for command in pools.tolist():
        chain = finder.chain(command)
        parts = None if chain is None else find_parts(draft, chain, least_bytes)
        if chain is not None and parts is not None:
            edit = edit or Edit(draft)
            Splitting(draft, edit, chain, parts).split()
    return edit.draft() if edit else draft


def _pools(draft: Draft) -> Ids:
    """Returns the commands that pool statistics."""
    does_pool = _do_pool(draft.nnet)
    if not does_pool.any():
        return _NONE
    at = draft.positions(Propagate.OPCODE)
    pools: Ids = at[does_pool[draft.table[at, FIRST_OPERAND_COLUMN]]]
    return pools


_NONE = np.zeros(0, dtype=np.int64)


@remembered
def _do_pool(nnet: Nnet) -> Bools:
    """Which components, (components,) bool, pool statistics."""
    return np.array([c.type == "StatisticsPoolingComponent" for c in nnet.components], np.bool_)
