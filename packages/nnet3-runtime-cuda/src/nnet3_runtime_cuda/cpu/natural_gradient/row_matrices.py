"""Matrices whose rows are samples, and whose parts lie apart in memory.

The natural gradient needs a few products with them. Their parts are not copied into one matrix.
Blocks of columns are multiplied one by one. Rows that are several frames side by side share most of
their numbers; they are multiplied in place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from nnet3_runtime_cuda.cpu.natural_gradient.thin_products import ThinProduct
from nnet3_runtime_cuda.cpu.products import gemm
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import TimeSplice

SUM_LENGTH = 1 << 16
"""The number of squares that are added up in single precision."""


class RowMatrix(Protocol):
    """X: (rows, dim), one row for each sample."""

    @property
    def dim(self) -> int:
        """Number of columns."""

    def project(self, factor: Array, out: Array) -> float:
        """Computes out = X factor, and returns tr(X X^T).

        factor: (dim, columns), out: (rows, columns), both contiguous.
        """

    def transposed_times(
        self, h: Array, out: Array, *, alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        """Computes out = alpha h^T X + beta out; h: (rows, height), out: (height, dim)."""

    def sum_of_squared_differences(self, h: Array, w: Array) -> float:
        """tr(Y Y^T) of Y = X - h w."""


class ColumnBlocks:
    """A matrix in blocks of columns that lie apart in memory.

    Attributes:
        dim: Number of columns in all.
        last: (rows,), the last column; or None, and the last block has it.
    """

    def __init__(
        self, blocks: Sequence[Array], *, last: Array | None = None, thin_columns: int = 0
    ) -> None:
        """Puts blocks of columns side by side.

        Args:
            blocks: Each (rows, some columns).
            last: (rows,), one more column.
            thin_columns: Columns for `project` with a `ThinProduct`, if that is faster; or 0.
        """
        starts = [0, *itertools.accumulate(block.shape[1] for block in blocks)]
        self._blocks = [
            (block, slice(start, end))
            for block, start, end in zip(blocks, starts, starts[1:], strict=False)
        ]
        self.last = last
        self._thin_columns = thin_columns
        self._columns = starts[-1]
        self.dim = self._columns + (last is not None)
        self._thin = ThinProduct.of(blocks[0], thin_columns) if len(blocks) == 1 else None

    def project(self, factor: Array, out: Array) -> float:
        """Computes out = X factor, and returns tr(X X^T).

        factor: (dim, columns), out: (rows, columns), both contiguous.
        """
        if self._thin is not None:
            total = self._thin(factor[: self._columns], out)
            total += 0.0 if self.last is None else float(np.vdot(self.last, self.last))
        else:
            total = self.sum_of_squares()
            for number, (block, columns) in enumerate(self._blocks):
                gemm(block, factor[columns], out, beta=float(number > 0))
        if self.last is not None:
            out += self.last[:, None] * factor[-1]
        return total

    def transposed_times(
        self, h: Array, out: Array, *, alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        """Computes out = alpha h^T X + beta out; out: (height, dim), or without the last column."""
        for block, columns in self._blocks:
            gemm(h.T, block, out[:, columns], alpha=alpha, beta=beta)
        if self.last is not None and out.shape[1] == self.dim:
            gemm(h.T, self.last[:, None], out[:, -1:], alpha=alpha, beta=beta)

    def sum_of_squares(self) -> float:
        """tr(X X^T)."""
        total = sum(sum_of_squares(block) for block, _ in self._blocks)
        return total if self.last is None else total + float(np.vdot(self.last, self.last))

    def subtract(self, h: Array, w: Array, out: ColumnBlocks) -> None:
        """Computes out = X - h w.

        Args:
            h: (rows, rank).
            w: (rank, dim).
            out: One block, and the last column apart if it is here.
        """
        ((target, _),) = out._blocks
        for block, columns in self._blocks:
            part = target[:, columns]
            np.copyto(part, block)
            gemm(h, w[:, columns], part, alpha=-1.0, beta=1.0)
        if self.last is not None and out.last is not None:
            np.subtract(self.last, h @ w[:, -1], out.last)

    def rows(self, part: slice) -> ColumnBlocks:
        """Some of the rows."""
        last = None if self.last is None else self.last[part]
        blocks = [block[part] for block, _ in self._blocks]
        return ColumnBlocks(blocks, last=last, thin_columns=self._thin_columns)

    def sum_of_squared_differences(self, h: Array, w: Array) -> float:
        """tr(Y Y^T) of Y = X - h w."""
        memory = np.empty((len(h), self._columns), h.dtype)
        last = None if self.last is None else np.empty(len(h), h.dtype)
        difference = ColumnBlocks([memory], last=last)
        self.subtract(h, w, difference)
        return difference.sum_of_squares()


def sum_of_squares(matrix: Array) -> float:
    """The sum of the squares of the elements of a matrix, with small rounding errors."""
    if not matrix.flags.c_contiguous:
        return float(np.vecdot(matrix, matrix).sum(dtype=np.float64))
    flat = matrix.reshape(-1)
    parts = (flat[start : start + SUM_LENGTH] for start in range(0, flat.size, SUM_LENGTH))
    return math.fsum(float(np.dot(part, part)) for part in parts)


def spread_times_rows(
    splice: TimeSplice, wide: Array, part: slice, out: Array, *, alpha: float, beta: float
) -> None:
    """Computes out = alpha h^T X + beta out, for some columns of h, given as S.

    Args:
        splice: X, the rows of a time splice.
        wide: (rows in, height K), S; see `TimeSplice`.
        part: The columns of h.
        out: (columns of h in the part, K d), contiguous.
        alpha: Factor of the product.
        beta: Factor of the values in `out`.
    """
    count = len(splice.offsets)
    columns = wide[:, part.start * count : part.stop * count]
    gemm(columns.T, splice.x, splice.by_row(out), alpha=alpha, beta=beta)


class SplicedRows(ColumnBlocks):
    """The rows of a time splice as a matrix; most products use x itself."""

    def __init__(
        self,
        splice: TimeSplice,
        memory: Array,
        *,
        thin_columns: int = 0,
    ) -> None:
        """Prepares for products.

        Args:
            splice: The rows.
            memory: (rows in, at least K times the columns of factors), working memory.
            thin_columns: See `ColumnBlocks`.
        """
        super().__init__(splice.parts)
        self._thin_columns = thin_columns
        self._splice = splice
        self._memory = memory
        self._thin = ThinProduct.of(splice.x, thin_columns * len(splice.offsets))

    def project(self, factor: Array, out: Array) -> float:
        """Computes out = X factor, and returns tr(X X^T).

        factor: (dim, columns), out: (rows, columns), both contiguous.
        """
        columns, count = factor.shape[1], len(self._splice.offsets)
        wide = self._memory[:, : columns * count]
        by_offset = factor.reshape(count, -1, columns).transpose(1, 0, 2)
        side_by_side = by_offset.reshape(-1, columns * count)
        if self._thin is not None:
            once = self._thin(side_by_side, wide)
            total = count * once - sum(sum_of_squares(rest) for rest in self._splice.left_out)
        else:
            gemm(self._splice.x, side_by_side, wide)
            total = self.sum_of_squares()
        terms = [
            wide[first : first + len(out), columns * k : columns * (k + 1)]
            for k, first in enumerate(self._splice.offsets)
        ]
        np.add(terms[0], terms[1], out)
        for term in terms[2:]:
            out += term
        return total

    def sum_of_squares(self) -> float:
        """tr(X X^T)."""
        squares = np.vecdot(self._splice.x, self._splice.x)
        rows = self._splice.num_rows
        return sum(
            float(squares[first : first + rows].sum(dtype=np.float64))
            for first in self._splice.offsets
        )
