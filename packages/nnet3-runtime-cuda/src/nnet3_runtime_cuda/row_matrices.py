"""Matrices whose rows are samples, and which do not lie in memory as one piece.

The natural gradient needs a few products with them. What they are made of is not copied together:
blocks of columns are multiplied one by one, and rows of several frames side by side, which have
most of their numbers in common, are multiplied where they lie.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

import attrs
import numpy as np

from .blas import Array, gemm


class RowMatrix(Protocol):
    """X: (rows, dim), one row for each sample."""

    @property
    def dim(self) -> int:
        """Number of columns."""

    def times_transposed(self, w: Array, out: Array) -> None:
        """Computes out = X w^T; w: (rank, dim)."""

    def transposed_times(
        self, h: Array, out: Array, *, alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        """Computes out = alpha h^T X + beta out; h: (rows, height), out: (height, dim)."""

    def sum_of_squares(self) -> float:
        """tr(X X^T)."""

    def sum_of_squared_differences(self, h: Array, w: Array) -> float:
        """tr(Y Y^T) of Y = X - h w."""


class ColumnBlocks:
    """A matrix in blocks of columns that lie apart in memory, perhaps with a last column of ones.

    Attributes:
        dim: Number of columns in all.
    """

    def __init__(self, blocks: Sequence[Array], *, ones: bool = False) -> None:
        """Puts blocks, each (rows, some columns), side by side."""
        starts = [0, *itertools.accumulate(block.shape[1] for block in blocks)]
        self._blocks = [
            (block, slice(start, end))
            for block, start, end in zip(blocks, starts, starts[1:], strict=False)
        ]
        self._ones = ones
        self._columns = starts[-1]
        self.dim = self._columns + ones

    def times_transposed(self, w: Array, out: Array) -> None:
        """Computes out = X w^T; w: (rank, dim)."""
        for number, (block, columns) in enumerate(self._blocks):
            gemm(block, w[:, columns].T, out, beta=float(number > 0))
        if self._ones:
            out += w[:, self._columns]

    def transposed_times(
        self, h: Array, out: Array, *, alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        """Computes out = alpha h^T X + beta out; h: (rows, height), out: (height, dim).

        If X has a column of ones that `out` lacks, it is left out.
        """
        for block, columns in self._blocks:
            gemm(h.T, block, out[:, columns], alpha=alpha, beta=beta)
        if self._ones and out.shape[1] == self.dim:
            gemm(h.T, np.ones((len(h), 1), h.dtype), out[:, -1:], alpha=alpha, beta=beta)

    def sum_of_squares(self) -> float:
        """tr(X X^T)."""
        total = sum(float(np.vecdot(b, b).sum(dtype=np.float64)) for b, _ in self._blocks)
        return total + (len(self._blocks[0][0]) if self._ones else 0.0)

    def sum_of_squared_differences(self, h: Array, w: Array) -> float:
        """tr(Y Y^T) of Y = X - h w."""
        total = 0.0
        for block, columns in self._blocks:
            y = block.copy()
            gemm(h, w[:, columns], y, alpha=-1.0, beta=1.0)
            total += float(np.vecdot(y, y).sum(dtype=np.float64))
        if self._ones:
            total += float(np.square(1.0 - h @ w[:, -1]).sum(dtype=np.float64))
        return total


@attrs.frozen(eq=False)
class TimeSplice:
    """Rows that hold several rows of a matrix side by side, at constant distances.

    Row i is [x[i + offsets[0]], x[i + offsets[1]], ...]. For a parameter matrix A of as many
    columns, A[i, k d : (k + 1) d] belongs to offset k; so A, (height, K d), has the same elements
    in the same order as (height K, d), and products with A become products with x, in which each
    row of x takes part once instead of K times:

        X A^T    = sum over k of (x A'^T)[i + offsets[k], :, k]     A': (height K, d)
        (h^T X)' = S^T x     S[i + offsets[k], :, k] = h[i], else 0

    Attributes:
        x: (rows in, d); every row belongs to some row of the splice.
        offsets: For each k, the row of x that belongs to row 0.
        num_rows: Number of rows of the splice.
    """

    x: Array
    offsets: tuple[int, ...]
    num_rows: int

    @property
    def parts(self) -> list[Array]:
        """The blocks of columns: views of x."""
        return [self.x[first : first + self.num_rows] for first in self.offsets]

    def by_row(self, matrix: Array) -> Array:
        """(height, K d) as (height K, d): a view."""
        return matrix.reshape(-1, self.x.shape[1])

    def products(self, wide: Array) -> list[Array]:
        """Of x A'^T, (rows in, height K), what is to be added up: K views (rows, height)."""
        split = wide.reshape(len(wide), -1, len(self.offsets))
        return [split[first : first + self.num_rows, :, k] for k, first in enumerate(self.offsets)]

    def gaps(self, wide: Array) -> list[Array]:
        """Of S, (rows in, height K), the views that hold zeros."""
        split = wide.reshape(len(wide), -1, len(self.offsets))
        gaps = []
        for k, first in enumerate(self.offsets):
            gaps += [split[:first, :, k], split[first + self.num_rows :, :, k]]
        return [gap for gap in gaps if gap.size]


class SplicedRows:
    """The rows of a time splice as a matrix.

    Attributes:
        dim: Number of columns.
    """

    def __init__(self, splice: TimeSplice, memory: Array, *, spread: tuple[Array, Array]) -> None:
        """Prepares for products.

        Args:
            splice: The rows.
            memory: (rows in, at least K times the rank), to work in.
            spread: A matrix h, and what it is as S: see `TimeSplice`. For others S is made.
        """
        self._splice = splice
        self._memory = memory
        self._spread = spread
        self.dim = splice.x.shape[1] * len(splice.offsets)

    def _wide(self, height: int) -> Array:
        return self._memory[:, : height * len(self._splice.offsets)]

    def times_transposed(self, w: Array, out: Array) -> None:
        """Computes out = X w^T; w: (rank, dim), contiguous."""
        wide = self._wide(len(w))
        gemm(self._splice.x, self._splice.by_row(w).T, wide)
        first, *others = self._splice.products(wide)
        out[:] = first
        for product in others:
            out += product

    def transposed_times(
        self, h: Array, out: Array, *, alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        """Computes out = alpha h^T X + beta out; out: (height, dim), contiguous."""
        known, wide = self._spread
        if h is not known:
            wide = self._wide(h.shape[1])
            for gap in self._splice.gaps(wide):
                gap[:] = 0.0
            for view in self._splice.products(wide):
                view[:] = h
        gemm(wide.T, self._splice.x, self._splice.by_row(out), alpha=alpha, beta=beta)

    def sum_of_squares(self) -> float:
        """tr(X X^T)."""
        squares = np.vecdot(self._splice.x, self._splice.x)
        rows = self._splice.num_rows
        return sum(
            float(squares[first : first + rows].sum(dtype=np.float64))
            for first in self._splice.offsets
        )

    def sum_of_squared_differences(self, h: Array, w: Array) -> float:
        """tr(Y Y^T) of Y = X - h w."""
        return ColumnBlocks(self._splice.parts).sum_of_squared_differences(h, w)
