"""Normalization of rows, and of columns over the rows of a minibatch."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from nnet3_descriptors.components import BatchNormComponent, NormalizeComponent

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula

LEAST_SQUARE = 2.0**-66
"""The least value of the mean square of a row, relative to the mean square of the target."""


@formula(NormalizeComponent)
class Normalize(Formula):
    """y = x / r with r = sqrt(x . x / (D target_rms^2)), for each row and block of D columns.

    r is at least 2^-33. With add_log_stddev each block has one more column, log(target_rms r), the
    logarithm of the root mean square of x. Backward dx = (dy - y (y . dy) / (D target_rms^2)) / r,
    without the second term if r has its least value; the logarithm adds x / (x . x) times its dy.
    """

    def ratios(self, call: Call) -> tuple[Array, Array]:
        """Returns x as (rows of blocks, D), and r^2, (rows of blocks, 1)."""
        c = call.component
        x = call.x.reshape(-1, c.block_dim).astype(np.float64)  # squares may overflow
        square = (x**2).sum(axis=1, keepdims=True) / (c.block_dim * c.target_rms**2)
        return x, np.maximum(square, LEAST_SQUARE)

    def forward(self, call: Call) -> Array:
        """Returns the blocks of y, each with its logarithm if that is wanted."""
        c = call.component
        x, square = self.ratios(call)
        y = x / np.sqrt(square)
        if c.add_log_stddev:
            y = np.concatenate([y, np.log(c.target_rms) + 0.5 * np.log(square)], axis=1)
        return y.reshape(call.rows_out, -1)

    def backward(self, call: Call) -> Array:
        """Returns dx."""
        c = call.component
        x, square = self.ratios(call)
        dy = call.dy.reshape(len(x), -1)
        dy, d_log = dy[:, : c.block_dim], dy[:, c.block_dim :]
        y = x / np.sqrt(square)
        along = (y * dy).sum(axis=1, keepdims=True) / (c.block_dim * c.target_rms**2)
        dx = (dy - y * np.where(square > LEAST_SQUARE, along, 0)) / np.sqrt(square)
        if c.add_log_stddev:
            floor = c.block_dim * LEAST_SQUARE
            dx += d_log * x / np.maximum((x**2).sum(axis=1, keepdims=True), floor)
        return dx.reshape(call.rows_in, -1)


@attrs.frozen(kw_only=True, eq=False)
class Moments:
    """The mean and variance of the input of batch normalization.

    Attributes:
        rows: Number of rows, where each block counts as a row.
        mean: (block_dim,).
        variance: (block_dim,).
    """

    rows: int
    mean: Array
    variance: Array


@formula(BatchNormComponent)
class BatchNorm(Formula):
    """y = s (x - m) with s = target_rms / sqrt(v + epsilon), column by column.

    m and v are mean and variance over the rows of the minibatch; in test mode they come from the
    stored statistics. Blocks of block_dim columns count as further rows. S. Ioffe and C. Szegedy,
    "Batch normalization" (2015), without their scale and offset. Backward, with the mean M over the
    rows, dx = s (dy - M(dy) - y M(y dy) / target_rms^2); in test mode dx = s dy.
    """

    def memo(self, call: Call) -> Moments | None:
        """Returns mean and variance of the minibatch."""
        c = call.component
        if c.test_mode:
            return None
        x = call.x.reshape(-1, c.block_dim).astype(np.float64)  # squares may overflow
        return Moments(rows=len(x), mean=x.mean(axis=0), variance=x.var(axis=0))

    def _mean_and_scale(self, call: Call) -> tuple[Array, Array]:
        """Returns m and s, (block_dim,) each."""
        c = call.component
        if c.test_mode:
            mean, variance = call.parameter("stats_mean"), call.parameter("stats_var")
        else:
            mean, variance = call.memo.mean, call.memo.variance
        return mean, c.target_rms / np.sqrt(np.maximum(variance, 0) + c.epsilon)

    def forward(self, call: Call) -> Array:
        """Returns s (x - m)."""
        mean, scale = self._mean_and_scale(call)
        x = call.x.reshape(-1, call.component.block_dim)
        return (scale * (x - mean)).reshape(call.rows_out, -1)

    def backward(self, call: Call) -> Array:
        """Returns dx."""
        c = call.component
        _, scale = self._mean_and_scale(call)
        y, dy = (rows.reshape(-1, c.block_dim) for rows in (call.y, call.dy))
        if not c.test_mode:
            dy = dy - dy.mean(axis=0) - y * (y * dy).mean(axis=0) / c.target_rms**2
        return (scale * dy).reshape(call.rows_in, -1)

    def statistics(self, call: Call) -> dict[str, Any]:
        """Adds the rows of the minibatch to the stored statistics."""
        c, new = call.component, call.memo
        count = c.count + new.rows
        old_mean, old_variance = call.parameter("stats_mean"), call.parameter("stats_var")
        mean = (c.count * old_mean + new.rows * new.mean) / count
        square = c.count * (old_variance + old_mean**2) + new.rows * (new.variance + new.mean**2)
        return {"count": count, "stats_mean": mean, "stats_var": square / count - mean**2}
