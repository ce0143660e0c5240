"""The cuts of statistics over time, and the precomputed indexes of each part."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from nnet3_computation.arrays import Ids, freeze, where
from nnet3_computation.commands import Table
from nnet3_computation.memory import FLOAT_BYTES
from nnet3_descriptors.components import (
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingPrecomputedIndexes,
)

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.sums.split_statistics.chains import StatisticsChain

MOST_PARTS = 8


class StatisticsParts(NamedTuple):
    """Rows that belong together: part i has the rows borders[i] <= r < borders[i + 1].

    Attributes:
        frames: (parts + 1,) the borders of the input of the extraction.
        statistics: (parts + 1,) the borders of the statistics.
        pooled: (parts + 1,) the borders of the output of the pooling.
    """

    frames: Ids
    statistics: Ids
    pooled: Ids

    def __len__(self) -> int:
        """The number of parts."""
        return len(self.pooled) - 1


def find_parts(draft: Draft, chain: StatisticsChain, least_bytes: int) -> StatisticsParts | None:
    """Returns the parts, at least two; None if they save too little or rule 2 fails."""
    pool: Any = draft.precomputed_indexes[chain.pool.precomputed_indexes]
    extract: Any = draft.precomputed_indexes[chain.extract.precomputed_indexes]
    if not isinstance(pool, StatisticsPoolingPrecomputedIndexes) or not isinstance(
        extract, StatisticsExtractionPrecomputedIndexes
    ):
        return None
    sizes = draft.matrices.take(draft.layout.matrix_of, axis=0)
    rows, cols = sizes[chain.extract.output].tolist()
    worth_it = min(MOST_PARTS, rows * cols * FLOAT_BYTES // least_bytes)
    if worth_it < 2:
        return None
    begin, end = pool.forward_indexes.T
    # The ranges of output rows before i end by reach[i - 1]; the others begin from ahead[i] on.
    reach = np.maximum.accumulate(end)
    ahead = np.minimum.accumulate(begin[::-1])[::-1]
    cuts = where(reach[:-1] == ahead[1:]) + 1
    first, last = extract.forward_indexes.T
    in_order = bool((first[1:] == last[:-1]).all())
    covered = in_order and first[0] == 0 and last[-1] == sizes[chain.extract.input, 0]
    if not covered or ahead[0] != 0 or reach[-1] != rows:
        return None
    count, choices = min(worth_it, len(cuts) + 1), len(cuts) + 1
    if count < 2:
        return None
    chosen = [number * choices // count - 1 for number in range(1, count)]
    pooled = np.array([0, *cuts[chosen].tolist(), len(begin)])
    statistics = np.append(ahead[pooled[:-1]], rows)
    return StatisticsParts(
        frames=np.append(first[statistics[:-1]], last[-1]), statistics=statistics, pooled=pooled
    )


def extraction_indexes(
    indexes: StatisticsExtractionPrecomputedIndexes, parts: StatisticsParts
) -> list[StatisticsExtractionPrecomputedIndexes]:
    """Returns the precomputed indexes of the extraction of each part, given those of all rows."""
    forward = _by_part(indexes.forward_indexes, parts.statistics, parts.frames)
    backward = _by_part(indexes.backward_indexes, parts.frames, parts.statistics)
    return [
        StatisticsExtractionPrecomputedIndexes(forward_indexes=one, backward_indexes=other)
        for one, other in zip(forward, backward, strict=True)
    ]


def pooling_indexes(
    indexes: StatisticsPoolingPrecomputedIndexes, parts: StatisticsParts
) -> list[StatisticsPoolingPrecomputedIndexes]:
    """Returns the precomputed indexes of the pooling of each part, given those of all rows."""
    forward = _by_part(indexes.forward_indexes, parts.pooled, parts.statistics)
    backward = _by_part(indexes.backward_indexes, parts.statistics, parts.pooled)
    return [
        StatisticsPoolingPrecomputedIndexes(forward_indexes=one, backward_indexes=other)
        for one, other in zip(forward, backward, strict=True)
    ]


def _by_part(indexes: Table, own: Ids, named: Ids) -> list[Table]:
    """Cuts indexes into parts, and counts the rows that they name from the begin of the part.

    Args:
        indexes: (rows, ...) the numbers of rows; empty if there are none, as without derivatives.
        own: (parts + 1,) the borders of the rows of the indexes.
        named: (parts + 1,) the borders of the rows that they name.
    """
    if not len(indexes):
        return [indexes] * (len(own) - 1)
    counted = indexes.copy()
    bounds = [slice(*each) for each in itertools.pairwise(own.tolist())]
    for part, begin in zip(bounds, named.tolist(), strict=False):
        counted[part] -= begin
    freeze(counted)
    return [counted[part] for part in bounds]
