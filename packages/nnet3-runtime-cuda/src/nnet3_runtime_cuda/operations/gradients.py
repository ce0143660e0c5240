"""The operands of the gradient of an affine map, which kernels give to operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import numpy.typing as npt

Array = npt.NDArray[Any]


@attrs.frozen(eq=False)
class TimeSplice:
    """A splice at constant distances: each row holds several rows of a matrix side by side.

    Row i is [x[i + offsets[0]], x[i + offsets[1]], ...]. Of a parameter matrix A with as many
    columns, A[i, k d : (k + 1) d] belongs to offset k. A, (height, K d), has the same elements in
    the same order as A', (height K, d). So products with A become products with x, in which each
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
        """The K blocks of columns, each (num_rows, d): views of x."""
        return [self.x[first : first + self.num_rows] for first in self.offsets]

    @property
    def left_out(self) -> list[Array]:
        """The rows of x that an offset does not reach, for each offset."""
        x, count = self.x, self.num_rows
        return [rest for k in self.offsets for rest in (x[:k], x[k + count :]) if len(rest)]

    def rows(self, part: slice) -> TimeSplice:
        """The splice of some of the rows."""
        end = part.stop + max(self.offsets)
        return TimeSplice(self.x[part.start : end], self.offsets, part.stop - part.start)

    def by_row(self, matrix: Array) -> Array:
        """(height, K d) as (height K, d): a view."""
        return matrix.reshape(-1, self.x.shape[1])

    def products(self, wide: Array) -> list[Array]:
        """The terms of X A^T in x A'^T, (rows in, height K): K views, each (rows, height)."""
        split = wide.reshape(len(wide), -1, len(self.offsets))
        return [split[first : first + self.num_rows, :, k] for k, first in enumerate(self.offsets)]

    def gaps(self, wide: Array) -> list[Array]:
        """The zeros of S, (rows in, height K): views."""
        split = wide.reshape(len(wide), -1, len(self.offsets))
        gaps = []
        for k, first in enumerate(self.offsets):
            gaps += [split[:first, :, k], split[first + self.num_rows :, :, k]]
        return [gap for gap in gaps if gap.size]


class Product(Protocol):
    """Records a product with X in a way that takes less work than the product itself."""

    def __call__(self, dy: Array, out: Array, /, *, scale: Array | None, add: bool) -> None:
        """Records out = scale dy^T X, or out += that.

        dy: (rows, output_dim); out: (output_dim, input_dim); scale: (1,) float64, None for 1.
        """


@attrs.frozen(kw_only=True, eq=False)
class AffineGradient:
    """The gradient of an affine map: its operands, and the arrays to add it to.

    Attributes:
        xs: The input X, as blocks of columns: each (rows, some of the columns).
        dy: The output derivative D, (rows, output_dim).
        linear: (output_dim, input_dim), for D^T X.
        bias: (output_dim,), for the sum of the rows of D; or None.
        first: Whether the gradient replaces the contents of linear and bias.
        splice: The time splice with the parts xs, if it saves work; only without bias.
        wide: The matrix S of D, see `TimeSplice`; only with a splice.
        product: Records D^T X in a way that takes less work; only without wide.
    """

    xs: Sequence[Array]
    dy: Array
    linear: Array
    bias: Array | None = None
    first: bool = False
    splice: TimeSplice | None = None
    wide: Array | None = None
    product: Product | None = None

    def __attrs_post_init__(self) -> None:
        assert self.splice is None or self.bias is None
        assert self.wide is None or (self.splice is not None and self.product is None)
