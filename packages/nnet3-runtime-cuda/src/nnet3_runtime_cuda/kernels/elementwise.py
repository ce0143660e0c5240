"""Scales, offsets, products, constants and other maps that treat each element, or row, alone."""

from __future__ import annotations

from functools import partial

import numpy as np
from nnet3_descriptors.components import (
    ClipGradientComponent,
    Component,
    ConstantComponent,
    ConstantFunctionComponent,
    ElementwiseProductComponent,
    FixedBiasComponent,
    FixedScaleComponent,
    NaturalGradientPerElementScaleComponent,
    NoOpComponent,
    PerElementOffsetComponent,
    PerElementScaleComponent,
    ScaleAndOffsetComponent,
)

from ..natural_gradient import NaturalGradientOptions, OnlineNaturalGradient
from ..tape import Array, Tape
from .affine_gradient import add_column_sum
from .base import Backpropagation, Kernel, Propagation, as_blocks, kernel_for, same_array
from .counts import add_count_above

SMALLEST_SCALE = 1.0e-4
"""A ScaleAndOffsetComponent treats smaller scales as if they were this, keeping the sign."""


class RowPreconditioner:
    """The natural gradient of a parameter vector: the rows of its derivative preconditioned."""

    def __init__(self, options: NaturalGradientOptions) -> None:
        self.rows = OnlineNaturalGradient(options)

    def record(self, tape: Tape, derivative: Array, direction: Array) -> None:
        """Records direction += sum of the preconditioned rows; derivative is overwritten."""
        scale = tape.precondition(self.rows, derivative)
        total = tape.scratch(1, len(direction))
        tape.column_sum(derivative, total)
        tape.multiply(total, scale, total)
        tape.add(direction, total[0], direction)


def record_vector_update(
    tape: Tape,
    derivative: Array,
    direction: Array,
    preconditioner: RowPreconditioner | None,
    *,
    is_scratch: bool = False,
) -> None:
    """Records the addition of the sum of the rows of `derivative`, preconditioned if asked for.

    Args:
        tape: Records the arithmetic.
        derivative: (rows, dim), or (rows, k, dim): the derivative at each row.
        direction: (dim,).
        preconditioner: Of the natural gradient; None for the plain one.
        is_scratch: Whether derivative may be overwritten.
    """
    if derivative.ndim == 3 or (preconditioner is not None and not is_scratch):
        copy = tape.scratch(*derivative.shape)
        tape.copy(derivative, copy)
        derivative = copy.reshape(-1, direction.size)
    if preconditioner is None:
        add_column_sum(tape, derivative, direction)
    else:
        preconditioner.record(tape, derivative, direction)


@kernel_for(NoOpComponent)
class NoOpKernel(Kernel):
    """y = x; dx = backprop_scale dy."""

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        if not same_array(p.x, p.y):
            p.tape.copy(p.x, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        if self.component.backprop_scale != 1.0:
            b.tape.multiply(b.dy, self.component.backprop_scale, b.dx)
        elif not same_array(b.dx, b.dy):
            b.tape.copy(b.dy, b.dx)


@kernel_for(FixedScaleComponent)
class FixedScaleKernel(Kernel):
    """y = x s for each column; dx = dy s."""

    def prepare(self) -> None:
        """Puts the scales on the device."""
        self.scales = self.store.constant(self.component.scales)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        p.tape.multiply(p.x, self.scales, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass; the update reads dy before it may be overwritten."""
        if b.update:
            self.update(b.tape, b.x, b.dy)
        if b.dx is not None:
            b.tape.multiply(b.dy, self.scales, b.dx)

    def update(self, tape: Tape, x: Array, dy: Array) -> None:
        """Records the addition of the gradient; there is none of fixed scales."""


@kernel_for(PerElementScaleComponent)
class PerElementScaleKernel(FixedScaleKernel):
    """y = x s with trainable s; the gradient is the sum over the rows of x dy."""

    preconditioner: RowPreconditioner | None = None

    def prepare(self) -> None:
        """Finds the parameters."""
        self.scales = self.store.parameters["scales"]

    def update(self, tape: Tape, x: Array, dy: Array) -> None:
        """Records the addition of the gradient."""
        product = tape.scratch(*x.shape)
        tape.multiply(x, dy, product)
        preconditioner = self.preconditioner if self.store.natural_gradient else None
        direction = self.store.directions["scales"]
        record_vector_update(tape, product, direction, preconditioner, is_scratch=True)


@kernel_for(NaturalGradientPerElementScaleComponent)
class NaturalGradientPerElementScaleKernel(PerElementScaleKernel):
    """y = x s, with the natural gradient."""

    def prepare(self) -> None:
        """Sets up the preconditioner."""
        super().prepare()
        c = self.component
        self.preconditioner = RowPreconditioner(
            NaturalGradientOptions(
                rank=c.rank,
                update_period=c.update_period,
                num_samples_history=c.num_samples_history,
                alpha=c.alpha,
            )
        )


@kernel_for(FixedBiasComponent)
class FixedBiasKernel(Kernel):
    """y = x + b; dx = dy."""

    def prepare(self) -> None:
        """Puts the bias on the device."""
        self.bias = self.store.constant(self.component.bias)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        p.tape.add(p.x, self.bias, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is not None and not same_array(b.dx, b.dy):
            b.tape.copy(b.dy, b.dx)


@kernel_for(PerElementOffsetComponent)
class PerElementOffsetKernel(Kernel):
    """y = x + b, with trainable b that repeats over blocks of columns; the gradient sums dy."""

    def prepare(self) -> None:
        """Finds the parameters and sets up the preconditioner."""
        self.offsets = self.store.parameters["offsets"]
        self.preconditioner = RowPreconditioner(NaturalGradientOptions(rank=20, update_period=4))

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        dim = self.offsets.size
        p.tape.add(as_blocks(p.x, dim), self.offsets, as_blocks(p.y, dim))

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is not None and not same_array(b.dx, b.dy):
            b.tape.copy(b.dy, b.dx)
        if b.update:
            natural = self.store.natural_gradient and self.component.use_natural_gradient
            record_vector_update(
                b.tape,
                as_blocks(b.dy, self.offsets.size),
                self.store.directions["offsets"],
                self.preconditioner if natural else None,
            )


@kernel_for(ScaleAndOffsetComponent)
class ScaleAndOffsetKernel(Kernel):
    """y = x s + b, with trainable s and b that repeat over blocks of columns.

    Backward works from the output: x = (y - b) / s, where scales near zero count as +-1e-4, in both
    directions. dx = dy s; the gradients are the sums over the rows of x dy and dy.
    """

    def prepare(self) -> None:
        """Finds the parameters and sets up the preconditioners."""
        self.scales = self.store.parameters["scales"]
        self.offsets = self.store.parameters["offsets"]
        options = NaturalGradientOptions(rank=self.component.rank, update_period=4)
        self.scale_preconditioner = RowPreconditioner(options)
        self.offset_preconditioner = RowPreconditioner(options)

    def _nonzero_scales(self, tape: Tape) -> Array:
        scales = tape.scratch(*self.scales.shape)
        sign = tape.scratch(*self.scales.shape)
        is_negative = tape.scratch(*self.scales.shape, dtype=np.bool_)
        tape.greater(0.0, self.scales, is_negative)
        tape.multiply(is_negative, -2.0, sign)
        tape.add(sign, 1.0, sign)
        tape.multiply(self.scales, sign, scales)
        tape.maximum(scales, SMALLEST_SCALE, scales)
        tape.multiply(scales, sign, scales)
        return scales

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        dim = self.scales.size
        y = as_blocks(p.y, dim)
        p.tape.multiply(as_blocks(p.x, dim), self._nonzero_scales(p.tape), y)
        p.tape.add(y, self.offsets, y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass; the update reads dy before it may be overwritten."""
        dim = self.scales.size
        dy = as_blocks(b.dy, dim)
        if b.update:
            self._update(b.tape, as_blocks(b.y, dim), dy)
        if b.dx is not None:
            b.tape.multiply(dy, self.scales, as_blocks(b.dx, dim))

    def _update(self, tape: Tape, y: Array, dy: Array) -> None:
        natural = self.store.natural_gradient and self.component.use_natural_gradient
        directions = self.store.directions
        record_vector_update(
            tape, dy, directions["offsets"], self.offset_preconditioner if natural else None
        )
        product = tape.scratch(*y.shape)
        tape.subtract(y, self.offsets, product)
        tape.divide(product, self._nonzero_scales(tape), product)
        tape.multiply(product, dy, product)
        record_vector_update(
            tape,
            product,
            directions["scales"],
            self.scale_preconditioner if natural else None,
            is_scratch=True,
        )


@kernel_for(ConstantComponent, ConstantFunctionComponent)
class ConstantKernel(Kernel):
    """y = c in each row, whatever the input, if any; dx = 0; the gradient sums dy."""

    def prepare(self) -> None:
        """Finds the constant and sets up the preconditioner."""
        self.is_updatable = "output" in self.store.parameters
        self.output = (
            self.store.parameters["output"]
            if self.is_updatable
            else self.store.constant(self.component.output)
        )
        self.preconditioner = RowPreconditioner(NaturalGradientOptions())

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        p.tape.copy(self.output, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is not None and not b.add:
            b.tape.fill(0.0, b.dx)
        if b.update and self.is_updatable:
            natural = self.store.natural_gradient and self.component.use_natural_gradient
            record_vector_update(
                b.tape,
                b.dy,
                self.store.directions["output"],
                self.preconditioner if natural else None,
            )


@kernel_for(ElementwiseProductComponent)
class ElementwiseProductKernel(Kernel):
    """y = product of the blocks of x; d of one block = dy times the other blocks."""

    def _blocks(self, x: Array) -> list[Array]:
        dim = self.component.output_dim
        return [x[:, k : k + dim] for k in range(0, self.component.input_dim, dim)]

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        first, *others = self._blocks(p.x)
        for other in others:
            p.tape.multiply(first, other, p.y)
            first = p.y

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        xs = self._blocks(b.x)
        for i, dx in enumerate(self._blocks(b.dx)):
            source = b.dy
            for j, x in enumerate(xs):
                if i != j:
                    b.tape.multiply(source, x, dx)
                    source = dx


@kernel_for(ClipGradientComponent)
class ClipGradientKernel(Kernel):
    """y = x; dx = dy, clipped: each row to a norm of clipping_threshold, or each element to it.

    Self-repair: where more than a given proportion of the rows had to be clipped so far, inputs
    beyond self_repair_target are pushed back, with a term of the size of the derivative.
    """

    def prepare(self) -> None:
        """Starts from the counts in the component."""
        self.num_clipped = self.store.state([[self.component.num_clipped]])
        self.count = float(self.component.count)
        self.num_self_repaired = self.store.state([[self.component.num_self_repaired]])
        self.num_backpropped = int(self.component.num_backpropped)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        if not same_array(p.x, p.y):
            p.tape.copy(p.x, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        tape, threshold = b.tape, self.component.clipping_threshold
        if threshold == 0.0:
            tape.fill(0.0, b.dx)
        elif self.component.norm_based_clipping:
            scale = tape.scratch(len(b.dy))
            tape.row_dot(b.dy, b.dy, scale)
            tape.multiply(scale, threshold**-2, scale)
            if b.update:
                add_count_above(tape, scale, 1.0, self.num_clipped)
                tape.note(partial(self._count_rows, len(scale)))
            tape.maximum(scale, 1.0, scale)
            tape.sqrt(scale, scale)
            tape.divide(b.dy, scale[:, None], b.dx)
        else:
            tape.minimum(b.dy, threshold, b.dx)
            tape.maximum(b.dx, -threshold, b.dx)
        if b.update and threshold > 0.0:
            self._record_repair(tape, b.x, b.dx)

    def _count_rows(self, rows: int) -> None:
        self.count += rows

    def _record_repair(self, tape: Tape, x: Array, dx: Array) -> None:
        c = self.component
        limit = c.self_repair_clipped_proportion_threshold
        tape.note(self._count_minibatch)
        if limit >= 1.0 or c.self_repair_scale == 0.0:
            return
        proportion, factor, before, after = (tape.scratch(1, 1, dtype=np.float64) for _ in range(4))
        acts, is_above = tape.scratch(1, 1), tape.scratch(1, 1, dtype=np.bool_)
        tape.divide(self.num_clipped, tape.value(lambda: max(self.count, 1.0)), proportion)
        tape.greater(proportion, limit, is_above)
        tape.copy(tape.value(lambda: self.chance(0.5)), factor)
        tape.multiply(factor, is_above, acts)
        with tape.when(acts):
            tape.add(self.num_self_repaired, 1.0, self.num_self_repaired)
            excess = tape.scratch(*x.shape)
            tape.minimum(x, c.self_repair_target, excess)
            tape.maximum(excess, -c.self_repair_target, excess)
            tape.subtract(x, excess, excess)
            _record_mean_norm(tape, dx, before)
            # Where there is no excess at all, any factor of it will do.
            _record_mean_norm(tape, excess, factor)
            tape.divide(before, factor, factor)
            tape.multiply(factor, proportion, factor)
            tape.multiply(factor, 2.0 * c.self_repair_scale, factor)
            scale = tape.scratch(1, 1)
            tape.convert(factor, scale)
            tape.multiply(excess, scale, excess)
            tape.subtract(dx, excess, dx)
            _record_mean_norm(tape, dx, after)
            tape.divide(before, after, after)
            tape.convert(after, scale)
            tape.multiply(dx, scale, dx)

    def _count_minibatch(self) -> None:
        self.num_backpropped += 1

    def with_statistics(self) -> Component:
        """The component with the counts of now."""
        changed: Component = self.component.replace(
            num_clipped=int(self.num_clipped[0, 0]),
            count=int(self.count),
            num_self_repaired=int(self.num_self_repaired[0, 0]),
            num_backpropped=self.num_backpropped,
        )
        return changed


def _record_mean_norm(tape: Tape, a: Array, out: Array) -> None:
    """Records out = the mean norm of the rows of a, or a tiny number if that is 0; out: (1, 1)."""
    norms = tape.scratch(len(a))
    tape.row_dot(a, a, norms)
    tape.sqrt(norms, norms)
    tape.row_sum(norms.reshape(1, -1), out)
    tape.multiply(out, 1.0 / len(a), out)
    tape.maximum(out, float(np.finfo(np.float32).tiny), out)
