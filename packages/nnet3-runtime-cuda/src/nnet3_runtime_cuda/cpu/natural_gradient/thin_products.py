"""Products of many rows with few columns, and sums of squares, in one pass over the rows.

The matrix library spends most of such a product on copying the rows to its buffers. Small products,
as in `panels`, read the rows in place, and leave a block of rows in the cache for the sum of
squares.
"""

from __future__ import annotations

import numpy as np

from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.panels import MOST_WORK, piece_height

MOST_COLUMNS = 80
"""The largest number of columns; with more, the library's own product is as fast."""

FEWEST_TERMS = 1024
"""The least number of columns of x. With fewer, as in convolutions, calls cost too much."""

MOST_INNER = 384
"""The largest number of terms in a small product; fewer with more columns."""

INNER_TIMES_COLUMNS = 384 * 40


class ThinProduct:
    """x W and tr(x x^T) for rows x and matrices W of few columns."""

    def __init__(self, x: Array, columns: int) -> None:
        """Cuts up the rows.

        Args:
            x: (rows, dim), contiguous; its values may change later.
            columns: Number of columns of W.
        """
        rows, dim = x.shape
        most = min(MOST_INNER, max(INNER_TIMES_COLUMNS // columns, 1))
        self._parts = next(n for n in range(-(-dim // most), dim + 1) if dim % n == 0)
        self._height = piece_height(rows, MOST_WORK // (dim // self._parts * columns))
        self._blocks = []
        for start in range(0, rows, self._height):
            block = x[start : start + self._height]
            stack = block.reshape(len(block), self._parts, -1).transpose(1, 0, 2)
            self._blocks.append((slice(start, start + len(block)), stack, block.reshape(-1)))

    @classmethod
    def of(cls, x: Array, columns: int) -> ThinProduct | None:
        """The product for a number of columns, or None if the library's product is as fast."""
        is_thin = 0 < columns <= MOST_COLUMNS and x.shape[1] >= FEWEST_TERMS
        return cls(x, columns) if is_thin and x.flags.c_contiguous else None

    def __call__(self, factor: Array, out: Array) -> float:
        """Computes out = x W, and returns tr(x x^T).

        Args:
            factor: (dim, columns), W, contiguous.
            out: (rows, columns).
        """
        columns = factor.shape[1]
        factors = factor.reshape(self._parts, -1, columns)
        terms = np.empty((self._parts, self._height, columns), out.dtype)
        total = 0.0
        for rows, stack, values in self._blocks:
            products = terms[:, : stack.shape[1]]
            np.matmul(stack, factors, products)
            np.add.reduce(products, axis=0, out=out[rows])
            total += float(np.dot(values, values))
        return total
