"""IndexSet: the indexes of a node in a graph. Nodes with the same indexes share one.

Patterns are groups of sequences (values of n) with the same indexes, which are handled as one.
No descriptor and no component mixes different n. So sequences for which the same (t, x) are given
and wanted have one pattern: they need the same rows everywhere, and the graph is built for one of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation.arrays import IntArray
from nnet3_descriptors.indexes import AnyIndexes, IndexArray, N, T, X, distinct, moved_indexes
from nnet3_descriptors.values import frozen

from nnet3_graph.sets.bits import BitLayout, Bits, is_table_worthwhile

Ranks = npt.NDArray[np.intp]


class Patterns(NamedTuple):
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
    sequences = distinct(np.concatenate(columns))
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


Cells = npt.NDArray[np.intp]


class Grid(NamedTuple):
    """Numbers the cells of a box, one for each index, in their order: by t, then x, then n.

    The cell of an index is ((t - t_first) * num_x + x - x_first) * number of sequences + rank of
    n, so that adding (t, x) to an index adds a constant to its cell.

    Attributes:
        layout: the box of (t, x), and the number of patterns.
        patterns: the sequences and their patterns.
    """

    layout: BitLayout
    patterns: Patterns

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.layout.num_t * self.layout.num_x * self.patterns.num_sequences

    def move(self, t: int, x: int) -> int:
        """Returns the difference of cells that adding (t, x) to an index makes."""
        return (t * self.layout.num_x + x) * self.patterns.num_sequences

    def cells(self, indexes: AnyIndexes) -> Cells:
        """Returns the cell of each of (K, 3) indexes, or -1 for an index outside of the box."""
        layout = self.layout
        t = indexes[:, T].astype(np.intp) - layout.t_first
        x = indexes[:, X].astype(np.intp) - layout.x_first
        rank = self.patterns.ranks(indexes[:, N])
        inside = (t >= 0) & (t < layout.num_t) & (x >= 0) & (x < layout.num_x) & (rank >= 0)
        cell = (t * layout.num_x + x) * self.patterns.num_sequences + rank
        return np.where(inside, cell, -1)

    def cells_of(self, bits: Bits) -> Cells:
        """Returns the cells of a set of the layout, ascending."""
        count = self.patterns.num_sequences
        if not is_table_worthwhile(self.size, bits.bit_count()):
            return self._sparse_cells(self.layout.indexes(bits))
        table = self.layout.table(bits).transpose(2, 1, 0)
        if self.layout.num_patterns == 1:
            rows = table.reshape(-1).nonzero()[0]
            return rows if count == 1 else (rows[:, None] * count + np.arange(count)).reshape(-1)
        return table[:, :, self.patterns.pattern_of].reshape(-1).nonzero()[0]

    def _sparse_cells(self, indexes: IndexArray) -> Cells:
        """Returns the cells, ascending, of (K, 3) indexes with patterns instead of sequences."""
        pattern = indexes[:, N]
        rows = (indexes[:, T].astype(np.intp) - self.layout.t_first) * self.layout.num_x
        rows += indexes[:, X] - self.layout.x_first
        # The sequences of a pattern are a run of `ranks`.
        ranks = np.argsort(self.patterns.pattern_of, kind="stable")
        sizes = np.bincount(self.patterns.pattern_of, minlength=self.patterns.num_patterns)
        starts, counts = (np.cumsum(sizes) - sizes)[pattern], sizes[pattern]
        runs = np.repeat(starts - (np.cumsum(counts) - counts), counts)
        rank = ranks[runs + np.arange(len(runs))]
        return np.sort(np.repeat(rows, counts) * self.patterns.num_sequences + rank)

    def indexes(self, cells: Cells) -> IndexArray:
        """Returns the (K, 3) indexes at some cells."""
        if self.patterns.num_sequences == 1 and self.layout.num_x == 1:
            indexes = np.empty((len(cells), 3), dtype=np.int32)
            indexes[:, N], indexes[:, X] = self.patterns.sequences[0], self.layout.x_first
            np.add(cells, self.layout.t_first, out=indexes[:, T], casting="unsafe")
            return indexes
        rows, rank = np.divmod(cells, self.patterns.num_sequences)
        t, x = np.divmod(rows, self.layout.num_x)
        indexes = np.empty((len(cells), 3), dtype=np.int32)
        indexes[:, N] = self.patterns.sequences[rank]
        indexes[:, T] = t + self.layout.t_first
        indexes[:, X] = x + self.layout.x_first
        return indexes


@attrs.frozen(kw_only=True, eq=False, repr=False)
class IndexSet:
    """A set of indexes, numbered in their order. Nodes with equal sets share one object.

    Attributes:
        grid: the box in which the indexes lie.
        bits: the set, in the layout of the grid.
    """

    grid: Grid
    bits: Bits

    def __repr__(self) -> str:
        """The number of indexes, and their range of t."""
        if not len(self):
            return "<IndexSet: empty>"
        t = self.indexes[:, 1]
        return f"<IndexSet: {len(self)} indexes, t {t.min()} to {t.max()}>"

    @cached_property
    def cells(self) -> Cells:
        """The (K,) cells of the indexes in the grid, ascending."""
        return frozen(self.grid.cells_of(self.bits))

    @cached_property
    def indexes(self) -> IndexArray:
        """The indexes, (K, 3) int32, columns n, t, x, in the order of indexes."""
        return frozen(self.grid.indexes(self.cells))

    @cached_property
    def positions(self) -> IntArray:
        """For each cell of the grid the position of its index in the set, or -1."""
        positions = np.full(self.grid.size + 1, -1, dtype=np.int32)
        positions[self.cells] = np.arange(len(self.cells), dtype=np.int32)
        return frozen(positions)

    def _positions_of(self, cells: Cells) -> IntArray:
        """Returns the position in the set of the index at each of some cells, or -1."""
        if is_table_worthwhile(self.grid.size, len(self.cells)):
            return self.positions[cells]  # cell -1 finds the last position, which is -1
        if not len(self.cells):
            return np.full(len(cells), -1, dtype=np.int32)
        found = np.searchsorted(self.cells, cells)
        found[found == len(self.cells)] = 0
        return np.where(self.cells[found] == cells, found, -1).astype(np.int32)

    def __len__(self) -> int:
        if self.grid.layout.num_patterns == 1:
            return self.bits.bit_count() * self.grid.patterns.num_sequences
        return len(self.cells)

    def find(self, indexes: AnyIndexes) -> IntArray:
        """Returns the position in the set of each of (K, 3) indexes, or -1."""
        return self._positions_of(self.grid.cells(indexes))

    def find_moved(self, other: IndexSet, t: int, x: int) -> IntArray:
        """Returns the position in this set of each index of `other` moved by (t, x), or -1.

        Args:
            other: a set of the same grid.
            t: the number to add to t.
            x: the number to add to x.
        """
        layout = self.grid.layout
        if other is self and t == 0 and x == 0:
            return np.arange(len(self), dtype=np.int32)
        if abs(t) >= layout.num_t or abs(x) >= layout.num_x:
            return np.full(len(other), -1, dtype=np.int32)
        if layout.num_x > 1 and x != 0:
            return self.find(moved_indexes(other.indexes, t, x))
        cells = other.cells + self.grid.move(t, x)
        if t != 0:
            cells[(cells < 0) | (cells >= self.grid.size)] = -1
        return self._positions_of(cells)
