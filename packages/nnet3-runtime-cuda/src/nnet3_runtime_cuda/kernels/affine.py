"""Affine and linear maps, with plain and natural gradient.

y = x A^T + b with A: (output_dim, input_dim). Backward: dx = dy A; the gradient is dy^T x for A
and the sum of the rows of dy for b.
"""

from __future__ import annotations

from nnet3_descriptors.components import (
    AffineComponent,
    BlockAffineComponent,
    FixedAffineComponent,
    LinearComponent,
    NaturalGradientAffineComponent,
    NaturalGradientRepeatedAffineComponent,
    RepeatedAffineComponent,
)

from ..blas import gemm
from ..natural_gradient import ColumnBlocks, NaturalGradientOptions, OnlineNaturalGradient
from ..tape import Array, Tape
from .base import Backpropagation, Kernel, Propagation, as_blocks, kernel_for

TRANSPOSED_ROWS = range(49, 257)
"""Products with so many rows are up to a fifth faster with parameters transposed beforehand."""


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
        self, tape: Tape, xs: list[Array], dy: Array, linear: Array, bias: Array | None
    ) -> None:
        """Records that the natural gradient is added to linear and bias.

        With the preconditioned input s (X - H W) and output derivative s' (D - H' W') it is

            s s' (D^T X - W'^T H'^T X - (D^T H - W'^T H'^T H) W)

        where all but the first product have a low rank on one side; so neither of the two needs to
        be written.

        Args:
            tape: Records the arithmetic.
            xs: The input, as blocks of columns: each (rows, some of the columns).
            dy: (rows, output_dim).
            linear: (output_dim, input_dim).
            bias: (output_dim,) or None.
        """
        x, derivative = ColumnBlocks(xs, ones=bias is not None), ColumnBlocks([dy])
        rank_in, rank_out = self.input_side.rank(x.dim), self.output_side.rank(derivative.dim)
        tape.call(
            self._add,
            x,
            derivative,
            dy,
            h_in=tape.scratch(len(dy), rank_in),
            h_out=tape.scratch(len(dy), rank_out),
            left=tape.scratch(derivative.dim, rank_out + rank_in),
            right=tape.scratch(rank_out + rank_in, x.dim),
            linear=linear,
            bias=bias,
        )

    def _add(
        self,
        x: ColumnBlocks,
        derivative: ColumnBlocks,
        dy: Array,
        *,
        h_in: Array,
        h_out: Array,
        left: Array,
        right: Array,
        linear: Array,
        bias: Array | None,
    ) -> None:
        w_in, scale = self.input_side.factor(x, h_in)
        w_out, scale_out = self.output_side.factor(derivative, h_out)
        scale *= scale_out
        # left = [W'^T, D^T H - W'^T H'^T H], right = [H'^T X; W]
        split = h_out.shape[1]
        left[:, :split] = w_out.T
        gemm(dy.T, h_in, left[:, split:])
        gemm(w_out.T, h_out.T @ h_in, left[:, split:], alpha=-1.0, beta=1.0)
        x.transposed_times(h_out, right[:split])
        right[split:] = w_in
        x.transposed_times(dy, linear, alpha=scale, beta=1.0)
        gemm(left, right[:, : linear.shape[1]], linear, alpha=-scale, beta=1.0)
        if bias is not None:
            bias += scale * (dy.sum(axis=0) - left @ right[:, -1])


@kernel_for(FixedAffineComponent)
class FixedAffineKernel(Kernel):
    """y = x A^T + b with fixed A and b."""

    linear: Array
    bias: Array
    can_split_input = True

    def prepare(self) -> None:
        """Puts the parameters on the device."""
        self.linear = self.store.constant(self.component.linear_params)
        self.bias = self.store.constant(self.component.bias_params)

    def propagate(self, p: Propagation) -> None:
        """Records y = x A^T + b."""
        if p.known is not None:
            x, linear = p.x[:, p.known.columns :], self.linear[:, p.known.columns :]
            p.tape.matmul(x, linear.T, p.y, plus=p.known.value)
            return
        weights = self.store.transposed(self.linear, pays=len(p.y) in TRANSPOSED_ROWS)
        p.tape.matmul(p.x, weights, p.y)
        p.tape.add(p.y, self.bias, p.y)

    def propagate_known(self, tape: Tape, x: Array, out: Array) -> None:
        """Records out = x A_1^T + b with the first columns A_1 of A."""
        tape.matmul(x, self.linear[:, : x.shape[1]].T, out)
        tape.add(out, self.bias, out)

    def backprop(self, b: Backpropagation) -> None:
        """Records dx (+)= dy A."""
        if b.dx is not None:
            b.tape.matmul(b.dy, self.linear, b.dx, add=b.add)
        if b.update:
            self.update(b.tape, b.x, b.dy)

    def update(self, tape: Tape, x: Array, dy: Array) -> None:
        """Records the addition of the gradient; there is none of fixed parameters."""


@kernel_for(AffineComponent)
class AffineKernel(FixedAffineKernel):
    """y = x A^T + b."""

    def prepare(self) -> None:
        """Finds the parameters."""
        self.linear = self.store.parameters["linear_params"]
        self.bias = self.store.parameters["bias_params"]

    def update(self, tape: Tape, x: Array, dy: Array) -> None:
        """Records the addition of the plain gradient."""
        directions = self.store.directions
        add_affine_gradient(tape, x, dy, directions["linear_params"], directions["bias_params"])


@kernel_for(NaturalGradientAffineComponent)
class NaturalGradientAffineKernel(AffineKernel):
    """y = x A^T + b, with the natural gradient on both sides of A."""

    def prepare(self) -> None:
        """Sets up the preconditioner."""
        super().prepare()
        self.preconditioner = AffinePreconditioner(*in_out_options(self.component))

    def update(self, tape: Tape, x: Array, dy: Array) -> None:
        """Records the addition of the natural or the plain gradient."""
        if not self.store.natural_gradient:
            super().update(tape, x, dy)
            return
        directions = self.store.directions
        self.preconditioner.record(
            tape, [x], dy, directions["linear_params"], directions["bias_params"]
        )


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


@kernel_for(LinearComponent)
class LinearKernel(Kernel):
    """y += x A^T.

    As in Kaldi the natural gradient is used whatever the option use-natural-gradient says.
    """

    def prepare(self) -> None:
        """Finds the parameters and sets up the preconditioner."""
        self.linear = self.store.parameters["params"]
        self.preconditioner = AffinePreconditioner(*in_out_options(self.component))

    def propagate(self, p: Propagation) -> None:
        """Records y (+)= x A^T."""
        weights = self.store.transposed(self.linear, pays=len(p.y) in TRANSPOSED_ROWS)
        p.tape.matmul(p.x, weights, p.y, add=p.add)

    def backprop(self, b: Backpropagation) -> None:
        """Records dx (+)= dy A and the gradient."""
        if b.dx is not None:
            b.tape.matmul(b.dy, self.linear, b.dx, add=b.add)
        if not b.update:
            return
        direction = self.store.directions["params"]
        if self.store.natural_gradient:
            self.preconditioner.record(b.tape, [b.x], b.dy, direction, None)
        else:
            add_affine_gradient(b.tape, b.x, b.dy, direction)


@kernel_for(RepeatedAffineComponent)
class RepeatedAffineKernel(AffineKernel):
    """The same small affine map applied to each block of columns."""

    can_split_input = False

    def propagate(self, p: Propagation) -> None:
        """Records y_k = x_k A^T + b for each block k."""
        rows, cols = self.linear.shape
        x, y = as_blocks(p.x, cols), as_blocks(p.y, rows)
        p.tape.matmul(x, self.linear.T, y)
        p.tape.add(y, self.bias, y)

    def backprop(self, b: Backpropagation) -> None:
        """Records dx_k (+)= dy_k A, and the gradient summed over the blocks."""
        rows, cols = self.linear.shape
        dy = as_blocks(b.dy, rows)
        if b.dx is not None:
            b.tape.matmul(dy, self.linear, as_blocks(b.dx, cols), add=b.add)
        if b.update:
            self.update(b.tape, flat_blocks(b.tape, b.x, cols), flat_blocks(b.tape, b.dy, rows))


def flat_blocks(tape: Tape, a: Array, dim: int) -> Array:
    """(rows, k dim) as (rows k, dim), copied to scratch memory where no view can be."""
    blocks = as_blocks(a, dim)
    if blocks.ndim == 2:
        return blocks
    copy = tape.scratch(*a.shape)
    tape.copy(a, copy)
    return as_blocks(copy, dim)


@kernel_for(NaturalGradientRepeatedAffineComponent)
class NaturalGradientRepeatedAffineKernel(RepeatedAffineKernel):
    """A repeated affine map whose gradient, a matrix of few rows, is preconditioned as a whole."""

    def prepare(self) -> None:
        """Sets up the preconditioner of the input side."""
        super().prepare()
        rank = min(40, max(1, self.linear.shape[1] // 2))
        self.preconditioner = OnlineNaturalGradient(
            NaturalGradientOptions(rank=rank, update_period=4)
        )

    def update(self, tape: Tape, x: Array, dy: Array) -> None:
        """Records the addition of the natural or the plain gradient."""
        if not self.store.natural_gradient:
            super().update(tape, x, dy)
            return
        rows, cols = self.linear.shape
        gradient = tape.scratch(rows, cols + 1)
        bias = tape.scratch(1, rows)
        tape.matmul(dy.T, x, gradient[:, :cols])
        tape.column_sum(dy, bias)
        tape.copy(bias[0], gradient[:, cols])
        tape.call(self._add, gradient)

    def _add(self, gradient: Array) -> None:
        gradient *= self.preconditioner.precondition(gradient)
        self.store.directions["linear_params"] += gradient[:, :-1]
        self.store.directions["bias_params"] += gradient[:, -1]


@kernel_for(BlockAffineComponent)
class BlockAffineKernel(AffineKernel):
    """A block-diagonal affine map: block k of the output depends on block k of the input."""

    can_split_input = False

    def _blocks(self, x: Array, y: Array) -> list[tuple[Array, Array, slice]]:
        """Views of the columns of each block of x and y, and the rows of A that join them."""
        count = self.component.num_blocks
        width, height = self.linear.shape[1], len(self.linear) // count
        return [
            (
                x[:, k * width : (k + 1) * width],
                y[:, k * height : (k + 1) * height],
                slice(k * height, (k + 1) * height),
            )
            for k in range(count)
        ]

    def propagate(self, p: Propagation) -> None:
        """Records y_k = x_k A_k^T + b_k for each block k."""
        for x, y, rows in self._blocks(p.x, p.y):
            p.tape.matmul(x, self.linear[rows].T, y)
        p.tape.add(p.y, self.bias, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records dx_k (+)= dy_k A_k, and the gradient."""
        if b.dx is not None:
            for dx, dy, rows in self._blocks(b.dx, b.dy):
                b.tape.matmul(dy, self.linear[rows], dx, add=b.add)
        if b.update:
            for x, dy, rows in self._blocks(b.x, b.dy):
                add_affine_gradient(b.tape, x, dy, self.store.directions["linear_params"][rows])
            add_column_sum(b.tape, b.dy, self.store.directions["bias_params"])
