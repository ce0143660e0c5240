"""The plain gradient of affine maps.

For y = x A^T + b the gradient is dy^T x for A, and the sum of the rows of dy for b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..tape import Array, Tape


class Product(Protocol):
    """Records a product with some X in a way that takes less work than others."""

    def __call__(
        self, tape: Tape, dy: Array, out: Array, /, *, scale: Array | None, add: bool
    ) -> None:
        """Records out = scale dy^T X, or out += that.

        dy: (rows, output_dim); out: (output_dim, input_dim); scale: (1,) float64, None for 1.
        """


def add_column_sum(tape: Tape, a: Array, out: Array) -> None:
    """Records out[c] += sum over r of a[r, c]."""
    total = tape.scratch(1, a.shape[1])
    tape.column_sum(a, total)
    tape.add(out, total[0], out)


def add_affine_gradient(
    tape: Tape, x: Array, dy: Array, linear: Array, bias: Array | None = None
) -> None:
    """Records linear += dy^T x and bias += sum of the rows of dy.

    x: (rows, input_dim); dy: (rows, output_dim); linear: (output_dim, input_dim).
    """
    tape.matmul(dy.T, x, linear, add=True)
    if bias is not None:
        add_column_sum(tape, dy, bias)


def record_affine_gradient(
    tape: Tape,
    xs: Sequence[Array],
    dy: Array,
    linear: Array,
    bias: Array | None,
    *,
    first: bool,
    product: Product | None = None,
) -> None:
    """Records that the gradient is added to linear and bias, or replaces what they hold.

    Args:
        tape: Records the arithmetic.
        xs: The input, as blocks of columns: each (rows, some of the columns).
        dy: (rows, output_dim).
        linear: (output_dim, input_dim).
        bias: (output_dim,) or None.
        first: Replace.
        product: Records how dy^T X is computed with less work.
    """
    start = 0
    if product is not None:
        product(tape, dy, linear, scale=None, add=not first)
        xs = ()
    for x in xs:
        columns = linear[:, start : start + x.shape[1]]
        tape.matmul(dy.T, x, columns, add=not first)
        start += x.shape[1]
    if bias is not None and first:
        tape.column_sum(dy, bias[None])
    elif bias is not None:
        add_column_sum(tape, dy, bias)
