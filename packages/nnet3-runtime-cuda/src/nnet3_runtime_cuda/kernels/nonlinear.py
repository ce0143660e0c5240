"""Element-wise nonlinearities, with Kaldi's statistics of them."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Memo, Propagation, as_blocks
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Tape

UNSET_THRESHOLD = -1000.0
"""The value of a self-repair threshold that means the default of the type."""

REPAIR_PROBABILITY = 0.5
"""Self-repair acts on this fraction of the minibatches, and is made stronger by its inverse."""


class NonlinearKernel(Kernel):
    """Statistics of a nonlinearity, and its self-repair.

    The statistics are sums in double precision: of the outputs, of the function's derivative (if
    the type has one for single elements), and of the squares of the output derivatives. With them
    go the numbers of rows, and the numbers of times that self-repair considered and repaired a
    unit. The host decides which minibatches count, so it knows the numbers of rows; the sums are in
    the memory of the device.
    """

    has_slope: ClassVar[bool] = True
    """Whether the derivative of the function is recorded too."""

    def prepare(self) -> None:
        """Turns the averages in the component into sums."""
        c = self.component
        # Statistics that were recorded without the derivatives do not count.
        usable = c.deriv_avg.size > 0 or not self.has_slope
        self.count = float(c.count) if usable else 0.0
        self.oderiv_count = float(c.oderiv_count)
        self.value_sum = self.store.state(_as_sum(c.value_avg, self.count, c.dim))
        self.deriv_sum = self.store.state(_as_sum(c.deriv_avg, self.count, c.dim))
        rms = np.square(c.oderiv_rms, dtype=float)
        self.oderiv_sumsq = self.store.state(_as_sum(rms, self.oderiv_count, c.dim))
        self.num_dims_self_repaired = self.store.state([[c.num_dims_self_repaired]])
        self.num_dims_processed = float(c.num_dims_processed)

    def with_statistics(self) -> components.Component:
        """The component with averages made of the sums."""
        changed: dict[str, Any] = {
            "num_dims_self_repaired": float(self.num_dims_self_repaired[0, 0]),
            "num_dims_processed": self.num_dims_processed,
        }
        if self.count:
            changed["count"] = self.count
            changed["value_avg"] = _as_average(self.value_sum, self.count)
            if self.has_slope:
                changed["deriv_avg"] = _as_average(self.deriv_sum, self.count)
        if self.oderiv_count:
            changed["oderiv_count"] = self.oderiv_count
            changed["oderiv_rms"] = np.sqrt(_as_average(self.oderiv_sumsq, self.oderiv_count))
        return self.replaced(**changed)

    # ---- statistics of activations ----

    def store_stats(self, tape: Tape, y: Array, memo: Memo | None) -> None:
        """Records the update of the statistics: for every other minibatch or so, and the first."""
        with tape.when(tape.value(partial(self._counts_activations, len(y)))):
            self.record_stats(tape, y)

    def record_slope_sum(self, tape: Tape, y: Array, out: Array) -> None:
        """Records the sums over rows of the derivative at outputs y; out: (1, columns)."""
        raise NotImplementedError

    def record_stats(self, tape: Tape, y: Array) -> None:
        """Records the addition of a minibatch to the sums of outputs and of the slopes there."""
        rows, dim = tape.rows_per_sum(y), y.shape[1]
        count = -(-len(y) // rows)
        values, slopes = tape.scratch(count, dim), tape.scratch(count, dim)
        for number, (block,) in enumerate(tape.row_blocks(y, rows=rows)):
            tape.column_sum(block, values[number : number + 1])
            if self.has_slope:
                self.record_slope_sum(tape, block, slopes[number : number + 1])
        total = tape.scratch(1, dim)
        tape.column_sum(values, total)
        tape.add(self.value_sum, total[0], self.value_sum)
        if self.has_slope:
            tape.column_sum(slopes, total)
            tape.add(self.deriv_sum, total[0], self.deriv_sum)

    def _counts_activations(self, rows: int) -> bool:
        if self.count and not self.chance(0.5):
            return False
        self.count += rows
        return True

    def record_backprop_stats(self, tape: Tape, dy: Array) -> None:
        """Records the addition of a minibatch to the sums of squared output derivatives."""
        with tape.when(tape.value(partial(self._counts_derivatives, len(dy)))):
            total = tape.scratch(1, dy.shape[1])
            tape.column_sum_of_products(dy, dy, total)
            tape.add(self.oderiv_sumsq, total[0], self.oderiv_sumsq)

    def _counts_derivatives(self, rows: int) -> bool:
        if self.oderiv_count and not self.chance(0.75):
            return False
        self.oderiv_count += rows
        return True

    # ---- self-repair ----

    def threshold(self, which: str, default: float) -> float:
        """The lower or upper limit of a unit's average derivative for self-repair, times the count.

        Args:
            which: "lower" or "upper".
            default: The limit of the type.
        """
        value = getattr(self.component, f"self_repair_{which}_threshold")
        return float(default if value == UNSET_THRESHOLD else value) * self.count


def _as_sum(average: Array, count: float, dim: int) -> Array:
    return np.zeros(dim) if average.size == 0 else average.astype(np.float64) * count


def _as_average(total: Array, count: float) -> Array:
    return (total / count if count else total).astype(np.float32)


def sigmoid(tape: Tape, x: Array, y: Array) -> None:
    """Records y = 1 / (1 + e^-x); where e^-x overflows to infinity, y is 0 as it should be."""
    tape.negative(x, y)
    tape.exp(y, y)
    tape.add(y, 1.0, y)
    tape.divide(1.0, y, y)


def sigmoid_derivative(tape: Tape, y: Array, out: Array) -> None:
    """Records out = y (1 - y), the derivative of the sigmoid in terms of its value y."""
    tape.subtract(1.0, y, out)
    tape.multiply(out, y, out)


def tanh(tape: Tape, x: Array, y: Array) -> None:
    """Records y = tanh x."""
    tape.tanh(x, y)


def tanh_derivative(tape: Tape, y: Array, out: Array) -> None:
    """Records out = 1 - y^2, the derivative of tanh in terms of its value y."""
    tape.square(y, out)
    tape.subtract(1.0, out, out)


@kernel_for(components.SigmoidComponent, components.TanhComponent)
class SaturatingKernel(NonlinearKernel):
    """y = 1 / (1 + e^-x), dx = dy y (1 - y); or y = tanh x, dx = dy (1 - y^2).

    The derivative is nearly 0 where units are saturated, which self-repair counteracts.
    """

    def prepare(self) -> None:
        """Also chooses the function, and which units are repaired, and how."""
        super().prepare()
        if isinstance(self.component, components.SigmoidComponent):
            self.function, self.derivative = sigmoid, sigmoid_derivative
            self.default_threshold, self.offset, self.slope = 0.05, 1.0, 2.0
        else:
            self.function, self.derivative = tanh, tanh_derivative
            self.default_threshold, self.offset, self.slope = 0.2, 0.0, 1.0

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        self.function(p.tape, p.x, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        slope = b.tape.scratch(*b.y.shape)
        self.derivative(b.tape, b.y, slope)
        b.tape.multiply(slope, b.dy, out)
        if b.update:
            self._record_repair(b.tape, b.y, out)
            self.record_backprop_stats(b.tape, b.dy)

    def record_slope_sum(self, tape: Tape, y: Array, out: Array) -> None:
        """Records the sums over rows of the derivative."""
        derivative = tape.scratch(*y.shape)
        self.derivative(tape, y, derivative)
        tape.column_sum(derivative, out)

    def _record_repair(self, tape: Tape, y: Array, dx: Array) -> None:
        """Records that dx is moved for saturated units, so that their inputs move towards 0.

        A unit is saturated if its average derivative lies below the threshold; its column of dx
        then changes by self_repair_scale / probability * (offset - slope * y).
        """
        scale = self.component.self_repair_scale
        if scale == 0.0:
            tape.note(self._count_dims)
            return
        saturated = tape.scratch(1, y.shape[1], dtype=np.bool_)
        number = tape.scratch(1, 1, dtype=np.float64)
        limit = tape.value(partial(self.threshold, "lower", self.default_threshold))
        with tape.when(tape.value(self._repairs_saturation)):
            tape.greater(limit, self.deriv_sum, saturated[0])
            tape.row_sum(saturated, number)
            tape.add(self.num_dims_self_repaired, number, self.num_dims_self_repaired)
            with tape.when(number):
                term = tape.scratch(*y.shape)
                factor = scale / REPAIR_PROBABILITY
                tape.multiply(y, -self.slope * factor, term)
                if self.offset:
                    tape.add(term, self.offset * factor, term)
                tape.multiply(term, saturated, term)
                tape.add(dx, term, dx)

    def _count_dims(self) -> None:
        self.num_dims_processed += self.component.dim

    def _repairs_saturation(self) -> bool:
        self._count_dims()
        return bool(self.count) and self.chance(REPAIR_PROBABILITY)


@kernel_for(components.RectifiedLinearComponent)
class RectifiedLinearKernel(NonlinearKernel):
    """y = max(x, 0); dx = dy where y > 0, else 0.

    Self-repair moves the input derivatives of units that are too seldom, or too often, positive.
    """

    takes_signs = True

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        p.tape.maximum(p.x, 0.0, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        values = b.y if b.signs is None else b.signs
        if b.signs is not None and np.may_share_memory(b.signs, out):
            values = b.tape.scratch(*b.signs.shape, dtype=b.signs.dtype)
            b.tape.copy(b.signs, values)
        for dy, dx, y in b.tape.row_blocks(b.dy, out, values):
            positive = b.tape.scratch(*dy.shape)
            if b.signs is not None:
                b.tape.unpack_signs(y, positive)
            else:
                b.tape.is_positive(y, positive)
            b.tape.multiply(dy, positive, dx)
        if b.update:
            self._record_repair(b.tape, out)
            self.record_backprop_stats(b.tape, b.dy)

    def record_slope_sum(self, tape: Tape, y: Array, out: Array) -> None:
        """Records in how many rows y > 0, which is the sum of the derivative."""
        tape.count_positive(y, out)

    def _record_repair(self, tape: Tape, dx: Array) -> None:
        c = self.component
        if c.self_repair_scale == 0.0:
            return
        active, seldom = (tape.scratch(c.block_dim, dtype=np.float64) for _ in range(2))
        often = tape.scratch(c.block_dim, dtype=np.bool_)
        number = tape.scratch(1, 1, dtype=np.float64)
        lower, upper = (
            tape.value(partial(self.threshold, which, default))
            for which, default in (("lower", 0.05), ("upper", 0.95))
        )
        with tape.when(tape.value(self._repairs)):
            blocks = self.deriv_sum.reshape(-1, c.block_dim)
            tape.sum(blocks, 0, active)
            tape.multiply(active, 1.0 / len(blocks), active)
            # 1 where a unit is active too seldom, -1 where too often, else 0.
            tape.greater(active, lower, often)
            tape.subtract(1.0, often, seldom)
            tape.greater(active, upper, often)
            tape.subtract(seldom, often, seldom)
            tape.square(seldom, active)
            tape.row_sum(active.reshape(1, -1), number)
            tape.add(self.num_dims_self_repaired, number, self.num_dims_self_repaired)
            term = tape.scratch(c.block_dim)
            tape.multiply(seldom, c.self_repair_scale / REPAIR_PROBABILITY, seldom)
            tape.copy(seldom, term)
            with tape.when(number):
                rows = as_blocks(dx, c.block_dim)
                tape.add(rows, term, rows)

    def _repairs(self) -> bool:
        if not self.count or not self.chance(REPAIR_PROBABILITY):
            return False
        self.num_dims_processed += self.component.block_dim
        return True
