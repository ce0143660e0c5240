"""Patterns: groups of sequences (values of n) with the same indexes, which are handled as one.

No descriptor and no component mixes different n. So sequences for which the same (t, x) are given
and wanted have one pattern: they need the same rows everywhere, and the graph is built for one of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.indexes import IndexArray, N, T

Ranks = npt.NDArray[np.intp]


@attrs.frozen(kw_only=True, eq=False)
class Patterns:
    """The values of n and the pattern of each.

    Attributes:
        sequences: (S,) int32, the values of n, ascending.
        pattern_of: (S,) the pattern of each, counted from 0 in the order of first occurrence.
        representatives: (P,) the position in `sequences` of the first of each pattern.
    """

    sequences: npt.NDArray[np.int32]
    pattern_of: Ranks
    representatives: Ranks

    @property
    def num_patterns(self) -> int:
        """Number of patterns."""
        return len(self.representatives)

    @property
    def num_sequences(self) -> int:
        """Number of values of n."""
        return len(self.sequences)

    def ranks(self, n: npt.NDArray[np.signedinteger[Any]]) -> Ranks:
        """Returns the positions of values of n in `sequences`, or -1 for a missing value.

        Args:
            n: (K,) values.
        """
        first = int(self.sequences[0])
        if int(self.sequences[-1]) - first + 1 == self.num_sequences:
            ranks = n.astype(np.intp) - first
            return np.where((ranks >= 0) & (ranks < self.num_sequences), ranks, -1)
        ranks = np.minimum(np.searchsorted(self.sequences, n), self.num_sequences - 1)
        return np.where(self.sequences[ranks] == n, ranks, -1)

    def representative_rows(self, indexes: IndexArray) -> IndexArray:
        """Returns the indexes of the first sequence of each pattern; the pattern is their n."""
        if self.num_patterns == 1:
            rows: IndexArray = indexes[indexes[:, N] == self.sequences[self.representatives[0]]]
            rows[:, N] = 0
            return rows
        ranks = self.ranks(indexes[:, N])
        pattern = np.full(self.num_sequences + 1, -1, dtype=np.int32)
        pattern[self.representatives] = np.arange(self.num_patterns)
        patterns = pattern[ranks]  # rank -1 finds the last pattern, which is -1
        rows = indexes[patterns >= 0]
        rows[:, N] = patterns[patterns >= 0]
        return rows


def find_patterns(tables: Sequence[IndexArray], previous: Patterns | None = None) -> Patterns:
    """Finds the patterns of a request.

    Args:
        tables: (rows, 3) indexes of each input and output, none listed twice in one table.
        previous: the patterns of the earlier segments. Their sequences stay; sequences whose
            patterns differed there differ again.
    """
    if previous is None:
        regular = _regular_sequences(tables)
        if regular is not None:
            return _one_pattern(regular)
    columns = [table[:, N] for table in tables]
    if previous is not None:
        columns.append(previous.sequences)
    sequences = _distinct(np.concatenate(columns))
    count = len(sequences)
    patterns = _one_pattern(sequences)
    if count == 1:
        return patterns
    pattern_of = patterns.pattern_of
    if previous is not None:
        ranks = previous.ranks(sequences)
        pattern_of = _refined(pattern_of, np.where(ranks >= 0, previous.pattern_of[ranks], -1))
    for table in tables:
        pattern_of = _refined(
            pattern_of, _table_patterns(patterns.ranks(table[:, N]), table, count)
        )
    representatives = np.unique(pattern_of, return_index=True)[1]
    return Patterns(sequences=sequences, pattern_of=pattern_of, representatives=representatives)


def _one_pattern(sequences: npt.NDArray[np.int32]) -> Patterns:
    """Returns the patterns of sequences (ascending) that all have the same pattern."""
    return Patterns(
        sequences=sequences,
        pattern_of=np.zeros(len(sequences), dtype=np.intp),
        representatives=np.zeros(1, dtype=np.intp),
    )


def _regular_sequences(tables: Sequence[IndexArray]) -> npt.NDArray[np.int32] | None:
    """Returns the sequences if every table lists the same rows for each, one after the other.

    Most requests are made so, and it takes little time to see it; None for all others.
    """
    sequences: npt.NDArray[np.int32] | None = None
    for table in tables:
        size = int((table[:, N] == table[0, N]).sum())
        if len(table) % size:
            return None
        blocks = table.reshape(-1, size, 3)
        found = blocks[:, 0, N]
        if sequences is not None and not np.array_equal(found, sequences):
            return None
        sequences = found.copy()
        same_n = (blocks[:, :, N] == found[:, None]).all()
        if not same_n or (blocks[:, :, T:] != blocks[0, :, T:]).any():
            return None
    assert sequences is not None
    return sequences if (sequences[1:] > sequences[:-1]).all() else None


def _distinct(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Returns the distinct values, ascending."""
    first, last = int(values.min()), int(values.max())
    if last - first < 4 * len(values) + 64:
        seen = np.zeros(last - first + 1, dtype=np.bool_)
        seen[values - first] = True
        return (np.flatnonzero(seen) + first).astype(np.int32)
    return np.unique(values)


def _table_patterns(ranks: Ranks, table: IndexArray, count: int) -> Ranks:
    """Numbers the patterns of (t, x) in one table.

    Args:
        ranks: (rows,) the sequence of each row, as its rank.
        table: (rows, 3) indexes.
        count: number of sequences.

    Returns:
        (count,) equal numbers for sequences with the same set of (t, x).
    """
    sizes = np.bincount(ranks, minlength=count)
    rows = table[:, T:]
    order = np.lexsort((rows[:, 1], rows[:, 0], ranks))
    ordered = rows[order]
    ends = np.cumsum(sizes)
    known: dict[bytes, int] = {}
    numbers = np.empty(count, dtype=np.intp)
    for rank, (end, length) in enumerate(zip(ends.tolist(), sizes.tolist(), strict=True)):
        pattern = ordered[end - length : end].tobytes()
        numbers[rank] = known.setdefault(pattern, len(known))
    return numbers


def _refined(first: Ranks, second: Ranks) -> Ranks:
    """Numbers the pairs of two numberings, in the order of first occurrence."""
    if not second.any():
        return first
    known: dict[tuple[int, int], int] = {}
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    numbers = [known.setdefault(pair, len(known)) for pair in pairs]
    return np.array(numbers, dtype=np.intp)
