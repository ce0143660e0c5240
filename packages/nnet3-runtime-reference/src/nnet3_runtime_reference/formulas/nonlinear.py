"""Nonlinear functions of a row, with the statistics of their activations; normalization.

Self-repair is Kaldi's: if the average slope of an output column shows that the column is saturated,
a small term of the input derivative drives the input back. It acts on every second minibatch,
chosen at random, with twice the strength.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula

REPAIR_PROBABILITY = 0.5
STORE_PROBABILITY = 0.5
STORE_DERIVATIVES_PROBABILITY = 0.75
UNSET_THRESHOLD = -1000.0
LEAST_SOFTMAX = 1e-20


class Nonlinear(Formula):
    """y = f(x), with statistics of y, of the slope of f and of dy."""

    HAS_SLOPES: ClassVar[bool] = True
    """Whether the average slope is among the statistics."""

    def slope(self, y: Array) -> Array:
        """Returns the derivative of f where its value is y."""
        raise NotImplementedError

    def push(self, call: Call) -> Array | None:
        """Returns 1 or -1 for columns that are repaired this time, else 0, (dim,), or None."""
        return None

    def decide(self, call: Call) -> tuple[Array | None, bool]:
        """Returns which columns to repair, and whether to store statistics of dy."""
        push = self.push(call)
        stores = call.component.oderiv_count == 0 or call.chance(STORE_DERIVATIVES_PROBABILITY)
        return push, stores

    def can_repair(self, call: Call) -> bool:
        """Returns whether the component repairs, and has the statistics for it."""
        c = call.component
        return bool(c.self_repair_scale != 0 and c.count != 0 and len(c.deriv_avg) == c.dim)

    def store(self, call: Call) -> dict[str, Any]:
        """Returns the statistics with this output added."""
        c = call.component
        is_new = len(c.value_avg) != c.dim or (self.HAS_SLOPES and len(c.deriv_avg) != c.dim)
        old = 0.0 if is_new else c.count
        count = old + call.rows_out
        found: dict[str, Any] = {"count": count}
        averages = {"value_avg": call.y}
        if self.HAS_SLOPES:
            averages["deriv_avg"] = self.slope(call.y)
        for name, rows in averages.items():
            before = np.zeros(c.dim) if is_new else call.parameter(name)
            found[name] = (old * before + rows.sum(axis=0)) / count
        return found

    def statistics(self, call: Call) -> dict[str, Any]:
        """Stores the first minibatch, and every second one after it, chosen at random."""
        if call.component.count != 0 and not call.chance(STORE_PROBABILITY):
            return {}
        return self.store(call)

    def backward_statistics(self, call: Call) -> dict[str, Any]:
        """Stores the root mean square of dy, of the first minibatch and of 3 in 4 later ones."""
        c, (_, stores) = call.component, call.decision
        if not stores:
            return {}
        is_new = len(c.oderiv_rms) != c.dim
        old = 0.0 if is_new else c.oderiv_count
        before = np.zeros(c.dim) if is_new else call.parameter("oderiv_rms")
        count = old + call.rows_out
        square = (old * before**2 + (call.dy**2).sum(axis=0)) / count
        return {"oderiv_count": count, "oderiv_rms": np.sqrt(square)}


class Saturating(Nonlinear):
    """A nonlinearity that is flat at both ends; columns that are too flat are repaired."""

    DEFAULT_THRESHOLD: ClassVar[float]

    def push(self, call: Call) -> Array | None:
        """Returns 1 for columns with an average slope below the threshold."""
        c = call.component
        if not self.can_repair(call) or not call.chance(REPAIR_PROBABILITY):
            return None
        threshold = _threshold(c.self_repair_lower_threshold, self.DEFAULT_THRESHOLD)
        return (call.parameter("deriv_avg").astype(np.float32) < threshold).astype(call.dtype)

    def centred(self, y: Array) -> Array:
        """Returns y, shifted and scaled to the range from -1 to 1."""
        return y

    def backward(self, call: Call) -> Array:
        """Returns dy times the slope, plus the repair."""
        dx = call.dy * self.slope(call.y)
        push, _ = call.decision if call.updates else (None, False)
        if push is not None:
            scale = call.component.self_repair_scale / REPAIR_PROBABILITY
            dx -= scale * push * self.centred(call.y)
        return dx

    def backward_statistics(self, call: Call) -> dict[str, Any]:
        """Counts columns and repaired columns, and stores the statistics of dy."""
        c, (push, _) = call.component, call.decision
        repaired = 0.0 if push is None else float(push.sum())
        return super().backward_statistics(call) | {
            "num_dims_processed": c.num_dims_processed + c.dim,
            "num_dims_self_repaired": c.num_dims_self_repaired + repaired,
        }


def _threshold(value: float, default: float) -> np.float32:
    """Returns a threshold in the precision of the averages that are compared with it."""
    return np.float32(default if value == UNSET_THRESHOLD else value)


def sigmoid(x: Array) -> Array:
    """Returns 1 / (1 + exp(-x)), without overflow, and with all digits where it is nearly 0."""
    power = np.exp(-np.abs(x))
    value: Array = np.where(x < 0, power, 1.0) / (1.0 + power)
    return value


@formula(components.SigmoidComponent)
class Sigmoid(Saturating):
    """y = 1 / (1 + exp(-x)).

    Backward dx = y (1 - y) dy. Self-repair subtracts 2 scale (2 y - 1) from dx in columns whose
    average slope y (1 - y) is below the lower threshold (0.05 unless set).
    """

    DEFAULT_THRESHOLD = 0.05

    def forward(self, call: Call) -> Array:
        """Returns the sigmoid."""
        return sigmoid(call.x)

    def slope(self, y: Array) -> Array:
        """Returns y (1 - y)."""
        return y * (1.0 - y)

    def centred(self, y: Array) -> Array:
        """Returns 2 y - 1."""
        return 2.0 * y - 1.0


@formula(components.TanhComponent)
class Tanh(Saturating):
    """y = tanh(x).

    Backward dx = (1 - y^2) dy. Self-repair subtracts 2 scale y from dx in columns whose average
    slope 1 - y^2 is below the lower threshold (0.2 unless set).
    """

    DEFAULT_THRESHOLD = 0.2

    def forward(self, call: Call) -> Array:
        """Returns tanh(x)."""
        return np.tanh(call.x)

    def slope(self, y: Array) -> Array:
        """Returns 1 - y^2."""
        return 1.0 - y**2


@formula(components.RectifiedLinearComponent)
class RectifiedLinear(Nonlinear):
    """y = max(0, x).

    Backward dx = dy where y is positive, else 0. Self-repair adds 2 scale to dx in columns whose
    average slope is at most the lower threshold (0.05 unless set), and subtracts as much in columns
    whose average slope is above the upper threshold (0.95). Columns at the same place of each block
    of block_dim share the average.
    """

    def forward(self, call: Call) -> Array:
        """Returns max(0, x)."""
        return np.maximum(call.x, 0)

    def slope(self, y: Array) -> Array:
        """Returns 1 where y is positive."""
        return (y > 0).astype(y.dtype)

    def push(self, call: Call) -> Array | None:
        """Returns 1 for columns that are positive too seldom, -1 for too often."""
        c = call.component
        if not self.can_repair(call) or not call.chance(REPAIR_PROBABILITY):
            return None
        blocks = call.parameter("deriv_avg").reshape(-1, c.block_dim)
        average = blocks.mean(axis=0).astype(np.float32)
        low = average <= _threshold(c.self_repair_lower_threshold, 0.05)
        high = average > _threshold(c.self_repair_upper_threshold, 0.95)
        return np.tile(low.astype(call.dtype) - high, len(blocks))

    def backward(self, call: Call) -> Array:
        """Returns dy where y is positive, plus the repair."""
        dx = call.dy * self.slope(call.y)
        push, _ = call.decision if call.updates else (None, False)
        if push is not None:
            dx += call.component.self_repair_scale / REPAIR_PROBABILITY * push
        return dx

    def backward_statistics(self, call: Call) -> dict[str, Any]:
        """Counts columns and repaired columns of a block, if there was a repair."""
        c, (push, _) = call.component, call.decision
        found = super().backward_statistics(call)
        if push is not None:
            repaired = float(np.abs(push[: c.block_dim]).sum())
            found["num_dims_processed"] = c.num_dims_processed + c.block_dim
            found["num_dims_self_repaired"] = c.num_dims_self_repaired + repaired
        return found


@formula(components.SoftmaxComponent)
class Softmax(Nonlinear):
    """y = exp(x) / sum(exp(x)), over the columns of each row.

    y is at least 1e-20. Backward dx = y (dy - y . dy).
    """

    HAS_SLOPES = False

    def forward(self, call: Call) -> Array:
        """Returns the softmax."""
        e = np.exp(call.x - call.x.max(axis=1, keepdims=True))
        return np.maximum(e / e.sum(axis=1, keepdims=True), LEAST_SOFTMAX)

    def backward(self, call: Call) -> Array:
        """Returns y (dy - y . dy)."""
        return call.y * (call.dy - (call.y * call.dy).sum(axis=1, keepdims=True))

    def statistics(self, call: Call) -> dict[str, Any]:
        """Stores every minibatch."""
        return self.store(call)


@formula(components.LogSoftmaxComponent)
class LogSoftmax(Nonlinear):
    """y = x - log(sum(exp(x))), over the columns of each row.

    Backward dx = dy - exp(y) sum(dy).
    """

    def forward(self, call: Call) -> Array:
        """Returns the logarithm of the softmax."""
        x = call.x - call.x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    def backward(self, call: Call) -> Array:
        """Returns dy - exp(y) sum(dy)."""
        return call.dy - np.exp(call.y) * call.dy.sum(axis=1, keepdims=True)

    def statistics(self, call: Call) -> dict[str, Any]:
        """Stores nothing: the component has statistics of dy alone."""
        return {}


LEAST_SQUARE = 2.0**-66
"""The least value of the mean square of a row, relative to the mean square of the target."""


@formula(components.NormalizeComponent)
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


@formula(components.BatchNormComponent)
class BatchNorm(Formula):
    """y = s (x - m) with s = target_rms / sqrt(v + epsilon), column by column.

    m and v are mean and variance over the rows of the minibatch; in test mode they come from the
    stored statistics. Blocks of block_dim columns count as further rows. S. Ioffe and C. Szegedy,
    "Batch normalization" (2015), without their scale and offset. Backward, with the mean M over the
    rows, dx = s (dy - M(dy) - y M(y dy) / target_rms^2); in test mode dx = s dy.
    """

    def memo(self, call: Call) -> tuple[Array, Array] | None:
        """Returns mean and variance of the minibatch, (block_dim,) each."""
        c = call.component
        if c.test_mode:
            return None
        x = call.x.reshape(-1, c.block_dim).astype(np.float64)  # squares may overflow
        return x.mean(axis=0), x.var(axis=0)

    def _mean_and_scale(self, call: Call) -> tuple[Array, Array]:
        """Returns m and s, (block_dim,) each."""
        c = call.component
        if c.test_mode:
            mean, variance = call.parameter("stats_mean"), call.parameter("stats_var")
        else:
            mean, variance = call.memo
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
        c, (new_mean, new_variance) = call.component, call.memo
        rows = call.rows_out * (c.dim // c.block_dim)  # each block counts as a row
        count = c.count + rows
        old_mean, old_variance = call.parameter("stats_mean"), call.parameter("stats_var")
        mean = (c.count * old_mean + rows * new_mean) / count
        square = c.count * (old_variance + old_mean**2) + rows * (new_variance + new_mean**2)
        return {"count": count, "stats_mean": mean, "stats_var": square / count - mean**2}
