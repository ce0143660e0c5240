"""The plain gradient of affine maps.

For y = x A^T + b the gradient is dy^T x for A, and the sum of the rows of dy for b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from nnet3_runtime_cuda.cpu.natural_gradient.row_matrices import TimeSplice
from nnet3_runtime_cuda.cpu.tape import Array, Tape


class Product(Protocol):
    """Records a product with some X in a way that takes less work than others."""

    def __call__(
        self, tape: Tape, dy: Array, out: Array, /, *, scale: Array | None, add: bool
    ) -> None:
        """Records out = scale dy^T X, or out += that.

        dy: (rows, output_dim); out: (output_dim, input_dim); scale: (1,) float64, None for 1.
        """


@attrs.frozen(kw_only=True, eq=False)
class AffineGradient:
    """The gradient of an affine map: what it is made of, and what it is added to.

    Attributes:
        xs: The input X, as blocks of columns: each (rows, some of the columns).
        dy: The output derivative D, (rows, output_dim).
        linear: (output_dim, input_dim), for D^T X.
        bias: (output_dim,), for the sum of the rows of D; or None.
        first: The gradient replaces what linear and bias hold.
        splice: The time splice that xs are the parts of, if that is to save work; only without
            bias.
        wide: The matrix S for D, see `TimeSplice`; only with a splice.
        product: Records how D^T X is computed with less work; only without S.
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


def add_column_sum(tape: Tape, a: Array, out: Array) -> None:
    """Records out[c] += sum over r of a[r, c]."""
    total = tape.scratch(1, a.shape[1])
    tape.column_sum(a, total)
    tape.add(out, total[0], out)


def add_affine_gradient(tape: Tape, x: Array, dy: Array, linear: Array) -> None:
    """Records linear += dy^T x.

    x: (rows, input_dim); dy: (rows, output_dim); linear: (output_dim, input_dim).
    """
    tape.matmul(dy.T, x, linear, add=True)


def record_affine_gradient(tape: Tape, gradient: AffineGradient) -> None:
    """Records that the plain gradient is added to linear and bias, or replaces what they hold."""
    dy, linear, bias = gradient.dy, gradient.linear, gradient.bias
    add = not gradient.first
    if gradient.product is not None:
        gradient.product(tape, dy, linear, scale=None, add=add)
    elif gradient.splice is not None and gradient.wide is not None:
        splice = gradient.splice
        tape.matmul(gradient.wide.T, splice.x, splice.by_row(linear), add=add)
    else:
        start = 0
        for x in gradient.xs:
            columns = linear[:, start : start + x.shape[1]]
            tape.matmul(dy.T, x, columns, add=add)
            start += x.shape[1]
    if bias is None:
        return
    if gradient.first:
        tape.column_sum(dy, bias[None])
    else:
        add_column_sum(tape, dy, bias)
