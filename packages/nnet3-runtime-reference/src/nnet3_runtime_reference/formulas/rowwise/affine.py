"""Affine and linear maps of the columns. All gradients here are by the chain rule."""

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

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula


@formula(FixedAffineComponent)
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


@formula(AffineComponent, NaturalGradientAffineComponent)
class Affine(FixedAffine):
    """y = x W^T + b.

    W is linear_params, b is bias_params. Backward dx = dy W, dW = dy^T x, db = the sum of the rows
    of dy.
    """

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns dW and db."""
        return {"linear_params": call.dy.T @ call.x, "bias_params": call.dy.sum(axis=0)}


@formula(LinearComponent)
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


@formula(BlockAffineComponent)
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


@formula(RepeatedAffineComponent, NaturalGradientRepeatedAffineComponent)
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
