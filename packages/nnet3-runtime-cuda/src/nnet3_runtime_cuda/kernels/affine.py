"""Affine and linear maps, with plain and natural gradient.

y = x A^T + b with A: (output_dim, input_dim). Backward: dx = dy A; the gradient is dy^T x for A
and the sum of the rows of dy for b.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nnet3_descriptors import components

from nnet3_runtime_cuda.kernels.base import (
    Backpropagation,
    Kernel,
    Propagation,
    as_blocks,
    flat_blocks,
)
from nnet3_runtime_cuda.kernels.parameters import (
    add_column_sum,
    record_affine_gradient,
    record_factor_product,
    record_product,
)
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.kernels.tiled_product import TiledProduct
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.gradients import (
    AffineGradient,
    FisherEstimate,
    Sides,
    TimeSplice,
    sides_of,
)


@kernel_for(
    components.FixedAffineComponent,
    components.AffineComponent,
    components.NaturalGradientAffineComponent,
)
class AffineKernel(Kernel):
    """y = x A^T + b; the first type is not trained, the third has the natural gradient.

    If x is a splice, the processor computes several frames with fewer products: see `TiledProduct`.
    """

    can_split_input = True
    sets_gradient = True
    sides: Sides | None = None

    def prepare(self) -> None:
        """Finds the parameters, and sets up the preconditioner, if there is one."""
        self.linear = self.store.values("linear_params", self.component.linear_params)
        self.bias = self.store.values("bias_params", self.component.bias_params)
        if isinstance(self.component, components.NaturalGradientAffineComponent):
            self.sides = self.store.both_estimates(sides_of(self.component))

    def gains_by_splice(self, tape: Tape, num_rows: int, offsets: Sequence[int]) -> bool:
        """Whether products with such a splice are computed by tiles."""
        if not (self.can_split_input and self.store.parameters):
            return False
        return TiledProduct.around(tape, self.store, self.linear, offsets, num_rows) is not None

    def _tiled(self, tape: Tape, splice: TimeSplice, *, is_precise: bool = False) -> TiledProduct:
        """The product with a splice by tiles, if it is faster."""
        offsets, rows = splice.offsets, splice.num_rows
        tiled = TiledProduct.around(
            tape, self.store, self.linear, offsets, rows, is_precise=is_precise
        )
        assert tiled is not None
        return tiled

    def propagate(self, p: Propagation) -> None:
        """Records y = x A^T + b."""
        if p.splice is not None:
            tiled = self._tiled(p.tape, p.splice, is_precise=self.store.forward_is_precise)
            tiled.record_forward(p.tape, p.splice.x, p.y, bias=self.bias)
            return
        x, linear = p.x[:, p.skipped :], self.linear[:, p.skipped :]
        record_product(self.store, p.tape, x, linear, p.y, plus=p.known, panels=p.panels)
        if p.known is None:
            p.tape.add(p.y, self.bias, p.y)

    def factor(self, skipped: int) -> Array:
        """A without its first columns."""
        return self.linear[:, skipped:]

    def propagate_known(self, tape: Tape, x: Array, out: Array) -> None:
        """Records out = x A_1^T + b with the first columns A_1 of A."""
        record_product(self.store, tape, x, self.linear[:, : x.shape[1]], out)
        tape.add(out, self.bias, out)

    def backprop_known(self, tape: Tape, dy: Array, out: Array) -> None:
        """Records out = dy A_1 with the first columns A_1 of A."""
        tape.matmul(dy, self.linear[:, : out.shape[1]], out)

    def backprop(self, b: Backpropagation) -> None:
        """Records dx (+)= dy A, and the gradient."""
        if b.dx is not None:
            dx, linear = b.dx[:, b.skipped :], self.linear[:, b.skipped :]
            factor = linear if b.panels is None else b.panels
            record_factor_product(b.tape, b.dy, factor, dx, add=b.add)
        if b.dx_splice is not None:
            tiled = self._tiled(b.tape, b.dx_splice)
            tiled.record_input_derivative(b.tape, b.dy, b.dx_splice.x, add=False)
        if not (b.update and self.store.parameters):
            return
        gradient = AffineGradient([b.x], b.dy, *self.directions, first=b.first)
        if b.splice is not None:
            product = partial(self._tiled(b.tape, b.splice).record_gradient, b.tape, b.splice.x)
            gradient = gradient._replace(xs=b.splice.parts, product=product)
        self.update(b.tape, gradient)

    def update(self, tape: Tape, gradient: AffineGradient) -> None:
        """Records the addition of the gradient: the natural one, if it is there and wanted."""
        record_affine_gradient(tape, gradient, self.natural(self.sides))

    @property
    def directions(self) -> tuple[Array, Array]:
        """The arrays for the gradients of A and b."""
        directions = self.store.directions
        return directions["linear_params"], directions["bias_params"]


@kernel_for(components.LinearComponent)
class LinearKernel(Kernel):
    """y += x A^T.

    As in Kaldi, it uses the natural gradient and ignores the option use-natural-gradient.
    """

    sets_gradient = True

    def prepare(self) -> None:
        """Finds the parameters and sets up the preconditioner."""
        self.linear = self.store.parameters["params"]
        self.sides = self.store.both_estimates(sides_of(self.component))

    def propagate(self, p: Propagation) -> None:
        """Records y (+)= x A^T."""
        record_product(self.store, p.tape, p.x, self.linear, p.y, add=p.add)

    def backprop(self, b: Backpropagation) -> None:
        """Records dx (+)= dy A and the gradient."""
        if b.dx is not None:
            b.tape.matmul(b.dy, self.linear, b.dx, add=b.add)
        if not b.update:
            return
        direction = self.store.directions["params"]
        gradient = AffineGradient(xs=[b.x], dy=b.dy, linear=direction, first=b.first)
        natural = self.store.natural_gradient
        record_affine_gradient(b.tape, gradient, self.sides if natural else None)


@kernel_for(components.RepeatedAffineComponent, components.NaturalGradientRepeatedAffineComponent)
class RepeatedAffineKernel(AffineKernel):
    """The same small affine map applied to each block of columns.

    The second type preconditions its gradient, a matrix of few rows, as a whole.
    """

    can_split_input = False
    input_side: FisherEstimate | None = None

    def prepare(self) -> None:
        """Finds the parameters, and sets up the preconditioner, if there is one."""
        super().prepare()
        if isinstance(self.component, components.NaturalGradientRepeatedAffineComponent):
            rank = min(40, max(1, self.linear.shape[1] // 2))
            self.input_side = self.store.estimate(FisherEstimate(rank=rank, update_period=4))
            self.sets_gradient = False

    def propagate(self, p: Propagation) -> None:
        """Records y_k = x_k A^T + b for each block k."""
        rows, cols = self.linear.shape
        x, y = as_blocks(p.x, cols), as_blocks(p.y, rows)
        p.tape.matmul(x, self.store.transposed(self.linear, pays=False), y)
        p.tape.add(y, self.bias, y)

    def backprop(self, b: Backpropagation) -> None:
        """Records dx_k (+)= dy_k A, and the gradient summed over the blocks."""
        rows, cols = self.linear.shape
        dy = as_blocks(b.dy, rows)
        if b.dx is not None:
            b.tape.matmul(dy, self.linear, as_blocks(b.dx, cols), add=b.add)
        if b.update:
            x, dy = flat_blocks(b.tape, b.x, cols), flat_blocks(b.tape, b.dy, rows)
            self.update(b.tape, AffineGradient([x], dy, *self.directions, first=b.first))

    def update(self, tape: Tape, gradient: AffineGradient) -> None:
        """Records the addition of the natural or the plain gradient."""
        if self.input_side is None or not self.store.natural_gradient:
            super().update(tape, gradient)
            return
        (x,), (rows, cols), (linear, direction) = gradient.xs, self.linear.shape, self.directions
        whole = tape.scratch(rows, cols + 1)
        bias = tape.scratch(1, rows)
        tape.matmul(gradient.dy.T, x, whole[:, :cols])
        tape.column_sum(gradient.dy, bias)
        tape.copy(bias[0], whole[:, cols])
        scale = tape.precondition(self.input_side, whole)
        tape.multiply(whole, scale, whole)
        tape.add(linear, whole[:, :-1], linear)
        tape.add(direction, whole[:, -1], direction)


@kernel_for(components.BlockAffineComponent)
class BlockAffineKernel(AffineKernel):
    """A block-diagonal affine map: block k of the output depends on block k of the input."""

    can_split_input = False
    sets_gradient = False

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
            p.tape.matmul(x, self.store.transposed(self.linear[rows], pays=False), y)
        p.tape.add(p.y, self.bias, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records dx_k (+)= dy_k A_k, and the gradient."""
        if b.dx is not None:
            for dx, dy, rows in self._blocks(b.dx, b.dy):
                b.tape.matmul(dy, self.linear[rows], dx, add=b.add)
        if b.update:
            linear, bias = self.directions
            for x, dy, rows in self._blocks(b.x, b.dy):
                b.tape.matmul(dy.T, x, linear[rows], add=True)
            add_column_sum(b.tape, b.dy, bias)
