"""Linear maps of a row: affine maps, scales, offsets, products and sums of columns.

All gradients here are by the chain rule.
"""

from __future__ import annotations

import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula


@formula(components.FixedAffineComponent)
class FixedAffine(Formula):
    """y = x W^T + b.

    W is linear_params, b is bias_params. Backward dx = dy W.
    """

    def forward(self, call: Call) -> Array:
        """Returns x W^T + b."""
        return call.x @ call.parameter("linear_params").T + call.parameter("bias_params")

    def backward(self, call: Call) -> Array:
        """Returns dy W."""
        return call.dy @ call.parameter("linear_params")


@formula(components.AffineComponent, components.NaturalGradientAffineComponent)
class Affine(FixedAffine):
    """y = x W^T + b.

    W is linear_params, b is bias_params. Backward dx = dy W, dW = dy^T x, db = the sum of the rows
    of dy.
    """

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns dW and db."""
        return {"linear_params": call.dy.T @ call.x, "bias_params": call.dy.sum(axis=0)}


@formula(components.LinearComponent)
class Linear(Formula):
    """y = x W^T.

    W is params. Backward dx = dy W, dW = dy^T x.
    """

    def forward(self, call: Call) -> Array:
        """Returns x W^T."""
        return call.x @ call.parameter("params").T

    def backward(self, call: Call) -> Array:
        """Returns dy W."""
        return call.dy @ call.parameter("params")

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns dW."""
        return {"params": call.dy.T @ call.x}


def blocks(rows: Array, count: int) -> Array:
    """Returns (rows, columns) as (blocks, rows, columns of a block)."""
    return rows.reshape(len(rows), count, -1).swapaxes(0, 1)


def side_by_side(parts: Array) -> Array:
    """Returns (blocks, rows, columns of a block) as (rows, columns)."""
    return parts.swapaxes(0, 1).reshape(parts.shape[1], -1)


@formula(components.BlockAffineComponent)
class BlockAffine(Formula):
    """y_k = x_k W_k^T + b_k for each block k of the columns.

    linear_params has the W_k one below the other, bias_params the b_k side by side. Backward
    dx_k = dy_k W_k, dW_k = dy_k^T x_k, db = the sum of the rows of dy.
    """

    def _blocks(self, call: Call) -> Array:
        """Returns W, (blocks, output columns of a block, input columns of a block)."""
        linear = call.parameter("linear_params")
        return linear.reshape(call.component.num_blocks, -1, linear.shape[1])

    def forward(self, call: Call) -> Array:
        """Returns the x_k W_k^T + b_k."""
        product = blocks(call.x, call.component.num_blocks) @ self._blocks(call).swapaxes(1, 2)
        return side_by_side(product) + call.parameter("bias_params")

    def backward(self, call: Call) -> Array:
        """Returns the dy_k W_k."""
        return side_by_side(blocks(call.dy, call.component.num_blocks) @ self._blocks(call))

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns the dW_k and db."""
        x, dy = (blocks(rows, call.component.num_blocks) for rows in (call.x, call.dy))
        linear = (dy.swapaxes(1, 2) @ x).reshape(call.component.linear_params.shape)
        return {"linear_params": linear, "bias_params": call.dy.sum(axis=0)}


@formula(components.RepeatedAffineComponent, components.NaturalGradientRepeatedAffineComponent)
class RepeatedAffine(Formula):
    """y_k = x_k W^T + b for each block k of the columns.

    W is linear_params, b is bias_params, the same for all blocks. Backward dx_k = dy_k W,
    dW = the sum of the dy_k^T x_k, db = the sum of the rows of all dy_k.
    """

    def forward(self, call: Call) -> Array:
        """Returns the x_k W^T + b."""
        x = blocks(call.x, call.component.num_repeats)
        linear, bias = call.parameter("linear_params"), call.parameter("bias_params")
        return side_by_side(x @ linear.T + bias)

    def backward(self, call: Call) -> Array:
        """Returns the dy_k W."""
        dy = blocks(call.dy, call.component.num_repeats)
        return side_by_side(dy @ call.parameter("linear_params"))

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns dW and db."""
        x, dy = (blocks(rows, call.component.num_repeats) for rows in (call.x, call.dy))
        linear = (dy.swapaxes(1, 2) @ x).sum(axis=0)
        return {"linear_params": linear, "bias_params": dy.sum(axis=(0, 1))}


@formula(components.PnormComponent)
class Pnorm(Formula):
    """y_g = |x_g|, the Euclidean norm, for each group g of neighbouring columns.

    X. Zhang et al., "Improving deep neural network acoustic models using generalized maxout
    networks" (2014), with p = 2. Backward dx_g = dy_g x_g / y_g, and 0 where y_g is 0.
    """

    def _groups(self, call: Call) -> Array:
        """Returns x as (rows, groups, columns of a group)."""
        return call.x.reshape(call.rows_in, call.component.output_dim, -1)

    def forward(self, call: Call) -> Array:
        """Returns the norms."""
        groups = self._groups(call).astype(np.float64)  # squares may overflow
        return np.sqrt((groups**2).sum(axis=2))

    def backward(self, call: Call) -> Array:
        """Returns the dy_g x_g / y_g."""
        slope = np.where(call.y == 0, 0, call.dy / np.where(call.y == 0, 1, call.y))
        return (slope[:, :, None] * self._groups(call)).reshape(call.rows_in, -1)


@formula(components.SumGroupComponent)
class SumGroup(Formula):
    """y_g = the sum of the columns of group g.

    sizes are the numbers of columns of the groups. Backward dx = dy_g in each column of the group.
    """

    def forward(self, call: Call) -> Array:
        """Returns the sums."""
        ends = np.cumsum(call.component.sizes)
        groups = np.split(call.x, ends[:-1], axis=1)
        return np.stack([group.sum(axis=1) for group in groups], axis=1)

    def backward(self, call: Call) -> Array:
        """Returns dy_g for each column."""
        return np.repeat(call.dy, call.component.sizes, axis=1)


@formula(components.SumBlockComponent)
class SumBlock(Formula):
    """y = scale (x_1 + ... + x_k), for the blocks of the columns.

    Backward dx_j = scale dy.
    """

    def forward(self, call: Call) -> Array:
        """Returns the scaled sum."""
        c = call.component
        return c.scale * blocks(call.x, c.input_dim // c.output_dim).sum(axis=0)

    def backward(self, call: Call) -> Array:
        """Returns the scaled dy for each block."""
        c = call.component
        return np.tile(c.scale * call.dy, (1, c.input_dim // c.output_dim))


@formula(components.PermuteComponent)
class Permute(Formula):
    """y_i = x_m(i) for each column i.

    m is column_map. Backward dx_m(i) = dy_i.
    """

    def forward(self, call: Call) -> Array:
        """Returns the columns of x in their new order."""
        return call.x[:, call.component.column_map]

    def backward(self, call: Call) -> Array:
        """Returns the columns of dy in their old order."""
        dx = call.zeros_in()
        dx[:, call.component.column_map] = call.dy
        return dx


@formula(components.NoOpComponent)
class NoOp(Formula):
    """y = x.

    Backward dx = backprop_scale dy.
    """

    def forward(self, call: Call) -> Array:
        """Returns x."""
        return call.x

    def backward(self, call: Call) -> Array:
        """Returns the scaled dy."""
        return call.dy * call.component.backprop_scale


@formula(components.ElementwiseProductComponent)
class ElementwiseProduct(Formula):
    """y = x_1 x_2 ... x_k, element by element, of the blocks of the columns.

    Backward dx_j = dy times the product of the other blocks.
    """

    def _parts(self, call: Call) -> Array:
        return blocks(call.x, call.component.input_dim // call.component.output_dim)

    def forward(self, call: Call) -> Array:
        """Returns the product."""
        return self._parts(call).prod(axis=0)

    def backward(self, call: Call) -> Array:
        """Returns the dx_j side by side."""
        parts = self._parts(call)
        others = [np.delete(parts, j, axis=0).prod(axis=0) for j in range(len(parts))]
        return side_by_side(call.dy * np.stack(others))


LEAST_SCALE = 1e-4
"""The least size of a scale, since the backward pass may divide by it; the sign stays."""


def repeated(block: Array, count: int) -> Array:
    """Returns the values of a block of columns for so many blocks, side by side."""
    return np.tile(block, count)


def sum_of_blocks(columns: Array, block_dim: int) -> Array:
    """Returns (columns,) as (block_dim,): the sum of equal blocks."""
    return columns.reshape(-1, block_dim).sum(axis=0)


@formula(components.FixedScaleComponent)
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


@formula(components.PerElementScaleComponent, components.NaturalGradientPerElementScaleComponent)
class PerElementScale(FixedScale):
    """y = s x, column by column.

    s is scales. Backward dx = s dy, ds = the sum of the rows of x dy.
    """

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns ds."""
        return {"scales": (call.x * call.dy).sum(axis=0)}


@formula(components.FixedBiasComponent)
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


@formula(components.PerElementOffsetComponent)
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


@formula(components.ScaleAndOffsetComponent)
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
