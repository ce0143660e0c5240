"""Scales, offsets and constants, one for each column, fixed or trainable."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_cuda.kernels.base import (
    Backpropagation,
    Kernel,
    Propagation,
    as_blocks,
    copy_unless_same,
    same_blocks,
)
from nnet3_runtime_cuda.kernels.parameters import record_vector_update
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.gradients import FisherEstimate

SMALLEST_SCALE = 1.0e-4
"""The least magnitude of scales in a ScaleAndOffsetComponent; smaller ones keep their sign only."""


@kernel_for(
    components.FixedScaleComponent,
    components.PerElementScaleComponent,
    components.NaturalGradientPerElementScaleComponent,
)
class PerElementScaleKernel(Kernel):
    """y = x s for each column, dx = dy s; the gradient of trainable s sums x dy over the rows.

    The third type has the natural gradient.
    """

    preconditioner: FisherEstimate | None = None

    def prepare(self) -> None:
        """Finds the scales, and sets up the preconditioner, if there is one."""
        c = self.component
        self.scales = self.store.values("scales", c.scales)
        if isinstance(c, components.NaturalGradientPerElementScaleComponent):
            self.preconditioner = self.store.estimate(
                FisherEstimate(
                    rank=c.rank,
                    update_period=c.update_period,
                    num_samples_history=c.num_samples_history,
                    alpha=c.alpha,
                )
            )

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        p.tape.multiply(p.x, self.scales, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass; the update reads dy before it may be overwritten."""
        if b.update and self.store.parameters:
            product = b.tape.scratch(*b.x.shape)
            b.tape.multiply(b.x, b.dy, product)
            natural, direction = self.natural(self.preconditioner), self.store.directions["scales"]
            record_vector_update(b.tape, product, direction, natural, is_scratch=True)
        if b.dx is not None:
            b.tape.multiply(b.dy, self.scales, b.dx)


@kernel_for(components.FixedBiasComponent, components.PerElementOffsetComponent)
class PerElementOffsetKernel(Kernel):
    """y = x + b, dx = dy; trainable b repeats over blocks of columns, and its gradient sums dy."""

    preconditioner: FisherEstimate | None = None

    def prepare(self) -> None:
        """Finds the offsets, and sets up the preconditioner, if they are trainable."""
        c = self.component
        if isinstance(c, components.FixedBiasComponent):
            self.offsets = self.store.constant(c.bias)
            return
        self.offsets = self.store.parameters["offsets"]
        self.preconditioner = self.store.estimate(FisherEstimate(rank=20, update_period=4))

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        x, y = same_blocks(p.x, p.y, self.offsets.size)
        p.tape.add(x, self.offsets, y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is not None:
            copy_unless_same(b.tape, b.dy, b.dx)
        if b.update and self.store.parameters:
            dy, direction = as_blocks(b.dy, self.offsets.size), self.store.directions["offsets"]
            record_vector_update(b.tape, dy, direction, self.natural(self.preconditioner))


@kernel_for(components.ScaleAndOffsetComponent)
class ScaleAndOffsetKernel(Kernel):
    """y = x s + b, with trainable s and b that repeat over blocks of columns.

    The backward pass uses the output: x = (y - b) / s. Scales near zero count as +-1e-4, forward
    and backward. dx = dy s; the gradients are the sums over the rows of x dy and dy.
    """

    def prepare(self) -> None:
        """Finds the parameters and sets up the preconditioners."""
        self.scales = self.store.parameters["scales"]
        self.offsets = self.store.parameters["offsets"]
        self.scale_preconditioner, self.offset_preconditioner = (
            self.store.estimate(FisherEstimate(rank=self.component.rank, update_period=4))
            for _ in range(2)
        )

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
        """Records the backward pass; the update reads dy before dx can overwrite it."""
        dim = self.scales.size
        dy = as_blocks(b.dy, dim)
        if b.update:
            self._update(b.tape, as_blocks(b.y, dim), dy)
        if b.dx is not None:
            b.tape.multiply(dy, self.scales, as_blocks(b.dx, dim))

    def _update(self, tape: Tape, y: Array, dy: Array) -> None:
        scales, offsets = (self.store.directions[name] for name in ("scales", "offsets"))
        record_vector_update(tape, dy, offsets, self.natural(self.offset_preconditioner))
        product = tape.scratch(*y.shape)
        tape.subtract(y, self.offsets, product)
        tape.divide(product, self._nonzero_scales(tape), product)
        tape.multiply(product, dy, product)
        natural = self.natural(self.scale_preconditioner)
        record_vector_update(tape, product, scales, natural, is_scratch=True)


@kernel_for(components.ConstantComponent, components.ConstantFunctionComponent)
class ConstantKernel(Kernel):
    """y = c in each row, whatever the input, if any; dx = 0; the gradient is the sum of dy."""

    def prepare(self) -> None:
        """Finds the constant and sets up the preconditioner."""
        self.output = self.store.values("output", self.component.output)
        self.preconditioner = self.store.estimate(FisherEstimate())

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        p.tape.copy(self.output, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is not None and not b.add:
            b.tape.fill(0.0, b.dx)
        if b.update and self.store.parameters:
            direction, natural = self.store.directions["output"], self.natural(self.preconditioner)
            record_vector_update(b.tape, b.dy, direction, natural)
