"""The gradient of affine maps, plain and natural.

For y = x A^T + b the gradient is dy^T x for A, and the sum of the rows of dy for b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import numpy as np

from ..blas import gemm
from ..natural_gradient import NaturalGradientOptions, OnlineNaturalGradient
from ..panels import ROWS
from ..row_matrices import ColumnBlocks, RowMatrix, SplicedRows, TimeSplice
from ..tape import Array, Tape
from .parameter_products import gains_by_panels

PASSES = 40
"""Writing a preconditioned element takes as long as so many multiplications."""


class Product(Protocol):
    """A product with some X."""

    def __call__(self, dy: Array, out: Array, /, *, alpha: float, beta: float) -> None:
        """Computes out = alpha dy^T X + beta out; dy: (rows, output_dim)."""


ProductMaker = Callable[[Tape, Array], Product]
"""Prepares a product, given a tape that has memory and the dy that it will be called with."""


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
    product: ProductMaker | None = None,
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
        tape.call(product(tape, dy), dy, linear, alpha=1.0, beta=0.0 if first else 1.0)
        xs = ()
    for x in xs:
        columns = linear[:, start : start + x.shape[1]]
        tape.matmul(dy.T, x, columns, add=not first)
        start += x.shape[1]
    if bias is not None and first:
        tape.column_sum(dy, bias[None])
    elif bias is not None:
        add_column_sum(tape, dy, bias)


class AffinePreconditioner:
    """The natural gradient of an affine map: rows of input and output derivative preconditioned.

    The bias counts as the weight of a constant input of one, so the input side has one column
    more than the map.
    """

    def __init__(
        self, input_options: NaturalGradientOptions, output_options: NaturalGradientOptions
    ) -> None:
        self.input_side = OnlineNaturalGradient(input_options)
        self.output_side = OnlineNaturalGradient(output_options)

    def record(
        self,
        tape: Tape,
        xs: Sequence[Array],
        dy: Array,
        linear: Array,
        bias: Array | None,
        *,
        first: bool = False,
        spread: tuple[TimeSplice, Array | None] | None = None,
        product: ProductMaker | None = None,
    ) -> None:
        """Records that the natural gradient is added to linear and bias, or replaces them.

        With the preconditioned input s (X - H W) and output derivative s' (D - H' W'), where
        H = X W^T and H' = D W'^T, it is

            (I - W'^T W') G (I - W^T W) = G - W'^T (T - (T W^T) W) - S W
            G = s s' D^T X      T = W' G = s s' H'^T X      S = G W^T = s s' D^T H

        so that only the products that lead to G have many rows and many columns; T and S are
        computed in the way that is less work. Where X or D is narrow, it is less work yet to
        precondition its rows: `precondition_rows_of` decides for each of them.

        Args:
            tape: Records the arithmetic.
            xs: The input, as blocks of columns: each (rows, some of the columns).
            dy: (rows, output_dim).
            linear: (output_dim, input_dim).
            bias: (output_dim,) or None.
            first: Replace what linear and bias hold.
            spread: The time splice that xs are the parts of, and the matrix S for dy, or None
                with a product; only without bias. It saves work.
            product: Records how dy^T X is computed with less work.
        """
        tape.precondition_affine(
            self, xs, dy, linear, bias, first=first, spread=spread, product=product
        )

    def record_calls(
        self,
        tape: Tape,
        xs: Sequence[Array],
        dy: Array,
        linear: Array,
        bias: Array | None,
        *,
        first: bool,
        spread: tuple[TimeSplice, Array | None] | None,
        product: ProductMaker | None,
    ) -> None:
        """What `record` does with a tape of NumPy calls."""
        rows, ones = len(dy), tape.ones(len(dy))
        columns_in = sum(part.shape[1] for part in xs) + (bias is not None)
        rank_in, rank_out = self.input_side.rank(columns_in), self.output_side.rank(dy.shape[1])
        gains = gains_by_panels(tape, ROWS[-1])
        thin_in, thin_out = (rank if gains else 0 for rank in (rank_in, rank_out))
        x = ColumnBlocks(xs, last=None if bias is None else ones[0], thin_columns=thin_in)
        derivative = ColumnBlocks([dy], thin_columns=thin_out)
        rows_in = rows_out = None
        if precondition_rows_of(rows, derivative.dim, rank_out, other=x.dim):
            rows_out = tape.scratch(rows, derivative.dim)
        if spread is not None:
            splice, wide = spread
            memory = tape.scratch(len(splice.x), rank_in * len(splice.offsets))
            known = None if wide is None else (dy if rows_out is None else rows_out, wide)
            x = SplicedRows(splice, memory, spread=known, thin_columns=thin_in)
        elif precondition_rows_of(rows, x.dim, rank_in, other=derivative.dim):
            # What is preconditioned is no splice any more, but that is less work than is saved.
            rows_in, product = tape.scratch(rows, x.dim - (bias is not None)), None
        rank = (rank_in if rows_in is None else 0) + (rank_out if rows_out is None else 0)
        operands = _Operands(
            x=x,
            derivative=derivative,
            dy=dy,
            h_in=tape.scratch(rows, rank_in),
            h_out=tape.scratch(rows, rank_out),
            rows_in=rows_in,
            rows_out=rows_out,
            left=tape.scratch(rank, derivative.dim),
            right=tape.scratch(rank, x.dim),
            linear=linear,
            bias=bias,
            first=first,
            product=None
            if product is None
            else product(tape, dy if rows_out is None else rows_out),
        )
        tape.call(self._run, operands)

    def _run(self, o: _Operands) -> None:
        w_in, scale = self.input_side.factor(o.x, o.h_in)
        w_out, scale_out = self.output_side.factor(o.derivative, o.h_out)
        scale *= scale_out
        x, dy = o.x, o.dy
        if o.rows_in is not None:
            x, w_in = x.subtract(o.h_in, w_in, o.rows_in), w_in[:0]
        if o.rows_out is not None:
            o.derivative.subtract(o.h_out, w_out, o.rows_out)
            dy, w_out = o.rows_out, w_out[:0]
            if isinstance(x, SplicedRows):
                x.spread()
        beta = 0.0 if o.first else 1.0
        compute = x.transposed_times if o.product is None else o.product
        compute(dy, o.linear, alpha=scale, beta=beta)
        if o.bias is not None:
            assert x.last is not None
            total = scale * (x.last @ dy)
            o.bias[:] = total if o.first else o.bias + total
        if not len(o.right):
            return
        # The rows of right are T - (T W^T) W and W, those of left are W' and S^T.
        split, columns = len(w_out), o.linear.shape[1]
        t, s = o.right[:split], o.left[split:]
        if len(t):
            self._set_t(o, x, w_out, scale, t)
        if len(s):
            self._set_s(o, dy, w_in, scale, s)
        if len(t) and len(s):
            gemm(t @ w_in.T, w_in, t, alpha=-1.0, beta=1.0)
        o.right[split:], o.left[:split] = w_in, w_out
        gemm(o.left.T, o.right[:, :columns], o.linear, alpha=-1.0, beta=1.0)
        if o.bias is not None:
            np.subtract(o.bias, o.right[:, -1] @ o.left, o.bias)

    def _set_t(self, o: _Operands, x: RowMatrix, w_out: Array, scale: float, t: Array) -> None:
        """Sets T: (rank on the output side, columns of X)."""
        if not (o.first and len(o.linear) < len(o.dy)):
            x.transposed_times(o.h_out, t, alpha=scale)
            return
        gemm(w_out, o.linear, t[:, : o.linear.shape[1]])
        if o.bias is not None:
            t[:, -1] = w_out @ o.bias

    def _set_s(self, o: _Operands, dy: Array, w_in: Array, scale: float, s: Array) -> None:
        """Sets S^T: (rank on the input side, output_dim)."""
        columns = o.linear.shape[1]
        if not (o.first and columns < len(o.dy)):
            gemm(o.h_in.T, dy, s, alpha=scale)
            return
        gemm(w_in[:, :columns], o.linear.T, s)
        if o.bias is not None:
            s += np.outer(w_in[:, -1], o.bias)


@attrs.frozen(kw_only=True, eq=False)
class _Operands:
    """What a preconditioner works on and with; the names are those of `record`.

    `rows_in` and `rows_out` are memory for preconditioned rows, or None where the gradient is
    preconditioned from that side.
    """

    x: ColumnBlocks
    derivative: ColumnBlocks
    dy: Array
    h_in: Array
    h_out: Array
    rows_in: Array | None
    rows_out: Array | None
    left: Array
    right: Array
    linear: Array
    bias: Array | None
    first: bool
    product: Product | None


def precondition_rows_of(rows: int, dim: int, rank: int, *, other: int) -> bool:
    """Whether preconditioning rows is less work than preconditioning the gradient.

    Args:
        rows: How many rows there are.
        dim: Columns of the matrix that is to be preconditioned.
        rank: Of the estimate of its Fisher matrix.
        other: Columns of the matrix on the other side, so that the gradient is (dim, other).
    """
    return rows * dim * (rank + PASSES) < rank * other * (min(rows, dim) + dim)


def in_out_options(component: object) -> tuple[NaturalGradientOptions, NaturalGradientOptions]:
    """The options for the input and the output side that the fields of a component give."""
    ranks = getattr(component, "rank_in"), getattr(component, "rank_out")  # noqa: B009
    first, second = (
        NaturalGradientOptions(
            rank=rank,
            update_period=getattr(component, "update_period", 4),
            num_samples_history=getattr(component, "num_samples_history", 2000.0),
            alpha=getattr(component, f"alpha_{side}", getattr(component, "alpha", 4.0)),
        )
        for rank, side in zip(ranks, ("in", "out"), strict=True)
    )
    return first, second
