"""Element-wise nonlinearities, and the softmax, with the statistics that Kaldi keeps of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from nnet3_descriptors.components import (
    Component,
    LogSoftmaxComponent,
    RectifiedLinearComponent,
    SigmoidComponent,
    SoftmaxComponent,
    TanhComponent,
)

from ..tape import Array, Tape
from .base import Backpropagation, Kernel, Propagation, StatsStorage, as_blocks, kernel_for

UNSET_THRESHOLD = -1000.0
"""The value of a self-repair threshold that means the default of the type."""

REPAIR_PROBABILITY = 0.5
"""Self-repair acts on this fraction of the minibatches, and is made stronger by its inverse."""

SMALLEST_PROBABILITY = 1.0e-20
"""Floor of the output of the softmax."""


class NonlinearKernel(Kernel):
    """Statistics of a nonlinearity, and its self-repair.

    Kept as sums in double precision: of the outputs, of the function's derivative (where the type
    has one, element by element) and of the squares of the output derivatives, with the numbers of
    rows; and how often self-repair considered and repaired a unit.
    """

    def prepare(self) -> None:
        """Turns the averages in the component into sums."""
        c = self.component
        self.count = float(c.count)
        self.oderiv_count = float(c.oderiv_count)
        self.value_sum = _as_sum(c.value_avg, self.count, c.dim)
        self.deriv_sum = _as_sum(c.deriv_avg, self.count, c.dim)
        self.oderiv_sumsq = _as_sum(np.square(c.oderiv_rms, dtype=float), self.oderiv_count, c.dim)
        self.has_deriv = c.deriv_avg.size > 0
        self.num_dims_self_repaired = float(c.num_dims_self_repaired)
        self.num_dims_processed = float(c.num_dims_processed)

    def with_statistics(self) -> Component:
        """The component with averages made of the sums."""
        rms = np.sqrt(_as_average(self.oderiv_sumsq, self.oderiv_count))
        changed: dict[str, Any] = {
            "count": self.count,
            "oderiv_count": self.oderiv_count,
            "num_dims_self_repaired": self.num_dims_self_repaired,
            "num_dims_processed": self.num_dims_processed,
        }
        if self.count:
            changed["value_avg"] = _as_average(self.value_sum, self.count)
            if self.has_deriv:
                changed["deriv_avg"] = _as_average(self.deriv_sum, self.count)
        if self.oderiv_count:
            changed["oderiv_rms"] = rms
        component: Component = self.component.replace(**changed)
        return component

    # ---- statistics of activations ----

    def record_stats(self, tape: Tape, y: Array, derivative: Array | None) -> None:
        """Records the addition of a minibatch to the sums of outputs and derivatives."""
        values = tape.scratch(1, y.shape[1])
        tape.column_sum(y, values)
        slopes = None
        if derivative is not None:
            slopes = tape.scratch(1, y.shape[1])
            tape.column_sum(derivative, slopes)
        tape.call(self._add_stats, len(y), values, slopes)

    def _add_stats(self, rows: int, values: Array, slopes: Array | None) -> None:
        if slopes is not None and not self.has_deriv:
            self.has_deriv = True
            self.count = 0.0
            self.value_sum[:] = 0.0
        self.count += rows
        self.value_sum += values[0]
        if slopes is not None:
            self.deriv_sum += slopes[0]

    def is_stats_minibatch(self) -> bool:
        """Statistics of activations are kept of about every other minibatch, and of the first."""
        return self.count == 0.0 or self.chance(0.5)

    def record_backprop_stats(self, tape: Tape, dy: Array) -> None:
        """Records the addition of a minibatch to the sums of squared output derivatives."""
        with tape.when(lambda: self.oderiv_count == 0.0 or self.chance(0.75)):
            total = tape.scratch(1, dy.shape[1])
            tape.column_sum_of_products(dy, dy, total)
            tape.call(self._add_backprop_stats, len(dy), total)

    def _add_backprop_stats(self, rows: int, total: Array) -> None:
        self.oderiv_sumsq += total[0]
        self.oderiv_count += rows

    # ---- self-repair ----

    def lower_threshold(self, default: float) -> float:
        """The average derivative below which a unit counts as saturated, times the count."""
        threshold = self.component.self_repair_lower_threshold
        return float(default if threshold == UNSET_THRESHOLD else threshold) * self.count

    def record_saturation_repair(
        self,
        tape: Tape,
        y: Array,
        dx: Array,
        *,
        default_threshold: float,
        offset: float,
        slope: float,
    ) -> None:
        """Records that dx is moved for saturated units, so that their inputs move towards 0.

        A unit is saturated if its average derivative lies below the threshold; its column of dx
        then changes by self_repair_scale / probability * (offset - slope * y).
        """
        scale = self.component.self_repair_scale
        if scale == 0.0:
            tape.call(self._count_dims)
            return
        repair = tape.scratch(1, y.shape[1])
        with tape.when(lambda: self._choose_saturated(default_threshold, repair)):
            term = tape.scratch(*y.shape)
            factor = scale / REPAIR_PROBABILITY
            tape.multiply(y, -slope * factor, term)
            if offset:
                tape.add(term, offset * factor, term)
            tape.multiply(term, repair, term)
            tape.add(dx, term, dx)

    def _count_dims(self) -> None:
        self.num_dims_processed += self.component.dim

    def _choose_saturated(self, default_threshold: float, repair: Array) -> bool:
        """Sets repair[0, i] to 1 for saturated units; False if there is nothing to do."""
        self._count_dims()
        if self.count == 0.0 or not self.has_deriv or not self.chance(REPAIR_PROBABILITY):
            return False
        saturated = self.deriv_sum < self.lower_threshold(default_threshold)
        repair[0] = saturated
        number = int(saturated.sum())
        self.num_dims_self_repaired += number
        return number > 0


def _as_sum(average: Array, count: float, dim: int) -> Array:
    return np.zeros(dim) if average.size == 0 else average.astype(np.float64) * count


def _as_average(total: Array, count: float) -> Array:
    return (total / count if count else total).astype(np.float32)


@kernel_for(SigmoidComponent)
class SigmoidKernel(NonlinearKernel):
    """y = 1 / (1 + e^-x); dx = dy y (1 - y)."""

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        sigmoid(p.tape, p.x, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        slope = b.tape.scratch(*b.y.shape)
        self._derivative(b.tape, b.y, slope)
        b.tape.multiply(slope, b.dy, b.dx)
        if b.update:
            self.record_saturation_repair(
                b.tape, b.y, b.dx, default_threshold=0.05, offset=1.0, slope=2.0
            )
            self.record_backprop_stats(b.tape, b.dy)

    def _derivative(self, tape: Tape, y: Array, out: Array) -> None:
        tape.subtract(1.0, y, out)
        tape.multiply(out, y, out)

    def store_stats(self, s: StatsStorage) -> None:
        """Records the statistics."""
        with s.tape.when(self.is_stats_minibatch):
            slope = s.tape.scratch(*s.y.shape)
            self._derivative(s.tape, s.y, slope)
            self.record_stats(s.tape, s.y, slope)


def sigmoid(tape: Tape, x: Array, y: Array) -> None:
    """Records y = 1 / (1 + e^-x); where e^-x overflows to infinity, y is 0 as it should be."""
    tape.negative(x, y)
    tape.exp(y, y)
    tape.add(y, 1.0, y)
    tape.divide(1.0, y, y)


@kernel_for(TanhComponent)
class TanhKernel(NonlinearKernel):
    """y = tanh x; dx = dy (1 - y^2)."""

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        p.tape.tanh(p.x, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        slope = b.tape.scratch(*b.y.shape)
        tanh_derivative(b.tape, b.y, slope)
        b.tape.multiply(slope, b.dy, b.dx)
        if b.update:
            self.record_saturation_repair(
                b.tape, b.y, b.dx, default_threshold=0.2, offset=0.0, slope=1.0
            )
            self.record_backprop_stats(b.tape, b.dy)

    def store_stats(self, s: StatsStorage) -> None:
        """Records the statistics."""
        with s.tape.when(self.is_stats_minibatch):
            slope = s.tape.scratch(*s.y.shape)
            tanh_derivative(s.tape, s.y, slope)
            self.record_stats(s.tape, s.y, slope)


def tanh_derivative(tape: Tape, y: Array, out: Array) -> None:
    """Records out = 1 - y^2, the derivative of tanh in terms of its value y."""
    tape.square(y, out)
    tape.subtract(1.0, out, out)


@kernel_for(RectifiedLinearComponent)
class RectifiedLinearKernel(NonlinearKernel):
    """y = max(x, 0); dx = dy where y > 0, else 0.

    Self-repair moves the input derivatives of units that are too seldom, or too often, positive.
    """

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        p.tape.maximum(p.x, 0.0, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        positive = None
        for y, dy, dx in b.tape.row_blocks(b.y, b.dy, b.dx):
            positive = b.tape.scratch(*y.shape) if positive is None else positive[: len(y)]
            b.tape.is_positive(y, positive)
            b.tape.multiply(dy, positive, dx)
        if b.update:
            self._record_repair(b.tape, b.dx)
            self.record_backprop_stats(b.tape, b.dy)

    def store_stats(self, s: StatsStorage) -> None:
        """Records the statistics."""
        with s.tape.when(self.is_stats_minibatch):
            slope = s.tape.scratch(*s.y.shape)
            s.tape.is_positive(s.y, slope)
            self.record_stats(s.tape, s.y, slope)

    def _record_repair(self, tape: Tape, dx: Array) -> None:
        if self.component.self_repair_scale == 0.0:
            return
        term = tape.scratch(self.component.block_dim)
        with tape.when(lambda: self._choose_repair(term)):
            blocks = as_blocks(dx, self.component.block_dim)
            tape.add(blocks, term, blocks)

    def _choose_repair(self, term: Array) -> bool:
        """Sets the term to be added to the rows of dx; False if there is nothing to do."""
        if self.count == 0.0 or not self.has_deriv or not self.chance(REPAIR_PROBABILITY):
            return False
        c = self.component
        self.num_dims_processed += c.block_dim
        upper = c.self_repair_upper_threshold
        upper = (0.95 if upper == UNSET_THRESHOLD else upper) * self.count
        active = self.deriv_sum.reshape(-1, c.block_dim).mean(axis=0)
        sign = (active <= self.lower_threshold(0.05)).astype(float) - (active > upper)
        self.num_dims_self_repaired += float(np.abs(sign).sum())
        term[:] = sign * (c.self_repair_scale / REPAIR_PROBABILITY)
        return True


@kernel_for(SoftmaxComponent)
class SoftmaxKernel(NonlinearKernel):
    """y_i = e^x_i / sum_j e^x_j in each row; dx = y (dy - sum_j y_j dy_j)."""

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        softmax(p.tape, p.x, p.y)
        p.tape.maximum(p.y, SMALLEST_PROBABILITY, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.update:
            self.record_backprop_stats(b.tape, b.dy)
        if b.dx is not None:
            softmax_backward(b.tape, b.y, b.dy, b.dx)

    def store_stats(self, s: StatsStorage) -> None:
        """Records the statistics of the outputs, of every minibatch."""
        self.record_stats(s.tape, s.y, None)


def softmax(tape: Tape, x: Array, y: Array) -> None:
    """Records y_i = e^x_i / sum_j e^x_j for each row, relative to the largest x_j."""
    column = tape.scratch(len(x), 1)
    tape.row_maximum(x, column)
    tape.subtract(x, column, y)
    tape.exp(y, y)
    tape.row_sum(y, column)
    tape.divide(y, column, y)


def softmax_backward(tape: Tape, y: Array, dy: Array, dx: Array) -> None:
    """Records dx = y (dy - sum_j y_j dy_j) for each row."""
    dot = tape.scratch(len(y))
    tape.row_dot(y, dy, dot)
    tape.subtract(dy, dot[:, None], dx)
    tape.multiply(dx, y, dx)


@kernel_for(LogSoftmaxComponent)
class LogSoftmaxKernel(NonlinearKernel):
    """y_i = x_i - ln sum_j e^x_j in each row; dx = dy - e^y sum_j dy_j."""

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass, relative to the largest x_j."""
        tape, column = p.tape, p.tape.scratch(len(p.x), 1)
        tape.row_maximum(p.x, column)
        tape.subtract(p.x, column, p.y)
        exponentials = tape.scratch(*p.y.shape)
        tape.exp(p.y, exponentials)
        tape.row_sum(exponentials, column)
        tape.log(column, column)
        tape.subtract(p.y, column, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.update:
            self.record_backprop_stats(b.tape, b.dy)
        if b.dx is None:
            return
        total = b.tape.scratch(len(b.dy), 1)
        b.tape.row_sum(b.dy, total)
        probabilities = b.tape.scratch(*b.y.shape)
        b.tape.exp(b.y, probabilities)
        b.tape.multiply(probabilities, total, probabilities)
        b.tape.subtract(b.dy, probabilities, b.dx)

    def store_stats(self, s: StatsStorage) -> None:
        """Keeps none: only the derivatives of a log-softmax are recorded."""
