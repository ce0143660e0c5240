"""IndexSet: the indexes of a node in a graph. Nodes with the same indexes share one."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.indexes import AnyIndexes, IndexArray, N, T, X, moved_indexes
from nnet3_descriptors.values import frozen

from nnet3_graph.arrays import IdArray
from nnet3_graph.sets.bit_layout import BitLayout, Bits, is_table_worthwhile
from nnet3_graph.sets.patterns import Patterns

Cells = npt.NDArray[np.intp]


@attrs.frozen(kw_only=True, eq=False)
class Grid:
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
    def positions(self) -> IdArray:
        """For each cell of the grid the position of its index in the set, or -1."""
        positions = np.full(self.grid.size + 1, -1, dtype=np.int32)
        positions[self.cells] = np.arange(len(self.cells), dtype=np.int32)
        return frozen(positions)

    def _positions_of(self, cells: Cells) -> IdArray:
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

    def find(self, indexes: AnyIndexes) -> IdArray:
        """Returns the position in the set of each of (K, 3) indexes, or -1."""
        return self._positions_of(self.grid.cells(indexes))

    def find_moved(self, other: IndexSet, t: int, x: int) -> IdArray:
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
