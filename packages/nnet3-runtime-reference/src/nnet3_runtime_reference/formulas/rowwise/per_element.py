"""Scales and offsets of the columns, trained or not. All gradients here are by the chain rule."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.components import (
    FixedBiasComponent,
    FixedScaleComponent,
    NaturalGradientPerElementScaleComponent,
    PerElementOffsetComponent,
    PerElementScaleComponent,
    ScaleAndOffsetComponent,
)

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula

LEAST_SCALE = 1e-4
"""The least size of a scale, since the backward pass may divide by it; the sign stays."""


def repeated(block: Array, count: int) -> Array:
    """Returns the values of a block of columns for so many blocks, side by side."""
    return np.tile(block, count)


def sum_of_blocks(columns: Array, block_dim: int) -> Array:
    """Returns (columns,) as (block_dim,): the sum of equal blocks."""
    return columns.reshape(-1, block_dim).sum(axis=0)


@formula(FixedScaleComponent)
class FixedScale(Formula):
    """y = s x, column by column.

    s is scales. Backward dx = s dy.
    """

    def forward(self, call: Call) -> Array:
        """Returns s x."""
        return call.x * call.parameter("scales")

    def backward(self, call: Call) -> Array:
        """Returns s dy."""
        return call.dy * call.parameter("scales")


@formula(PerElementScaleComponent, NaturalGradientPerElementScaleComponent)
class PerElementScale(FixedScale):
    """y = s x, column by column.

    s is scales. Backward dx = s dy, ds = the sum of the rows of x dy.
    """

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns ds."""
        return {"scales": (call.x * call.dy).sum(axis=0)}


@formula(FixedBiasComponent)
class FixedBias(Formula):
    """y = x + b, column by column.

    b is bias. Backward dx = dy.
    """

    def forward(self, call: Call) -> Array:
        """Returns x + b."""
        return call.x + call.parameter("bias")

    def backward(self, call: Call) -> Array:
        """Returns dy."""
        return call.dy


@formula(PerElementOffsetComponent)
class PerElementOffset(Formula):
    """y = x + b, column by column.

    b is offsets, repeated for each block of the columns. Backward dx = dy, db = the sum of the rows
    and blocks of dy.
    """

    def forward(self, call: Call) -> Array:
        """Returns x + b."""
        c = call.component
        return call.x + repeated(call.parameter("offsets"), c.dim // c.block_dim)

    def backward(self, call: Call) -> Array:
        """Returns dy."""
        return call.dy

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns db."""
        return {"offsets": sum_of_blocks(call.dy.sum(axis=0), call.component.block_dim)}


@formula(ScaleAndOffsetComponent)
class ScaleAndOffset(Formula):
    """y = s' x + b, column by column.

    s' is scales, but at least 0.0001 in size, so that x = (y - b) / s' follows from the output; b
    is offsets; both are repeated for each block of the columns. Backward, with s = scales: dx = s
    dy, ds = the sum of the rows and blocks of x dy, db = the sum of the rows and blocks of dy.
    """

    def _whole(self, call: Call, name: str) -> Array:
        """Returns a parameter for each column."""
        return repeated(call.parameter(name), call.component.dim // call.component.block_dim)

    def _divisor(self, call: Call) -> Array:
        """Returns s'."""
        scales = self._whole(call, "scales")
        return np.where(
            scales < 0, np.minimum(scales, -LEAST_SCALE), np.maximum(scales, LEAST_SCALE)
        )

    def forward(self, call: Call) -> Array:
        """Returns s' x + b."""
        return self._divisor(call) * call.x + self._whole(call, "offsets")

    def backward(self, call: Call) -> Array:
        """Returns s dy."""
        return self._whole(call, "scales") * call.dy

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns ds and db."""
        x = (call.y - self._whole(call, "offsets")) / self._divisor(call)
        block_dim = call.component.block_dim
        return {
            "scales": sum_of_blocks((x * call.dy).sum(axis=0), block_dim),
            "offsets": sum_of_blocks(call.dy.sum(axis=0), block_dim),
        }
