"""Normalization: batch-norm, rows of equal size, softmax."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_cuda.kernels.base import (
    Backpropagation,
    Kernel,
    Memo,
    Propagation,
    as_blocks,
    flat_blocks,
    same_array,
)
from nnet3_runtime_cuda.kernels.nonlinear import NonlinearKernel
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Tape

SQUARED_NORM_FLOOR = 2.0**-66
"""The floor of the relative mean square of a row, so that a row of zeros stays finite."""

SCALE_AT_FLOOR = 2.0**33
"""The factor of a row at the floor, exact in any precision."""


@kernel_for(components.NormalizeComponent)
class NormalizeKernel(Kernel):
    """y = f x for each row, or block of a row, with f such that its RMS is target_rms.

    f = max(floor, p)^(-1/2) with p = x.x / (D target_rms^2). With add_log_stddev, ln of the
    standard deviation, ln target_rms - ln f, is appended as one more column of each block.

    dx = f (dy - k x) with k = f^2 / (D target_rms^2) (dy.x) where p lies above the floor, else 0;
    the appended column adds dy_last x / (x.x).
    """

    def _blocks(self, x: Array, y: Array) -> tuple[Array, Array, Array | None]:
        """x, the normalised columns of y and the appended column of y, by blocks: views."""
        c = self.component
        x = as_blocks(x, c.block_dim)
        if not c.add_log_stddev:
            return x, as_blocks(y, c.block_dim), None
        y = as_blocks(y, c.block_dim + 1)
        return x, y[..., :-1], y[..., -1]

    def _roots(self, tape: Tape, x: Array, out: Array) -> None:
        """Records out = 1 / f for each block of x: (...,)."""
        factor = 1.0 / (self.component.block_dim * self.component.target_rms**2)

        def record(dtype: np.dtype[Any], x: Array, out: Array) -> None:
            squares = out if out.dtype == dtype else tape.scratch(*out.shape, dtype=dtype)
            tape.row_dot(x, x, squares)
            tape.multiply(squares, factor, squares)
            tape.maximum(squares, SQUARED_NORM_FLOOR, squares)
            tape.sqrt(squares, out)

        for rows in tape.shared(len(x), x.size):
            tape.within_range(partial(record, x=x[rows], out=out[rows]), out[rows])

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        x, y, log_stddev = self._blocks(p.x, p.y)
        root, scale = p.tape.scratch(*x.shape[:-1]), p.tape.scratch(*x.shape[:-1])
        self._roots(p.tape, x, root)
        p.tape.divide(1.0, root, scale)
        p.tape.multiply(x, scale[..., None], y)
        if log_stddev is not None:
            p.tape.log(root, root)
            p.tape.add(root, math.log(self.component.target_rms), log_stddev)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        tape, in_place = b.tape, same_array(b.dy, out)
        x, dy, d_log = self._blocks(b.x, b.dy)
        dx = as_blocks(out, self.component.block_dim)
        scale, factor = tape.scratch(*x.shape[:-1]), tape.scratch(*x.shape[:-1])
        self._roots(tape, x, scale)
        tape.divide(1.0, scale, scale)
        self._factors(tape, x, dy, scale, factor)
        if d_log is not None:
            self._subtract_log(tape, x, d_log, scale, factor)
        term = tape.scratch(*x.shape)
        tape.multiply(x, factor[..., None], term)
        if b.add and not in_place:
            tape.subtract(dy, term, term)
            tape.multiply(term, scale[..., None], term)
            tape.add(dx, term, dx)
        else:
            tape.subtract(dy, term, dx)
            tape.multiply(dx, scale[..., None], dx)

    def _factors(self, tape: Tape, x: Array, dy: Array, scale: Array, out: Array) -> None:
        """Records out = k for each block."""
        c, nonzero = self.component, tape.scratch(*scale.shape)
        above = tape.scratch(*scale.shape, dtype=np.bool_)
        tape.greater(SCALE_AT_FLOOR, scale, above)
        # At the floor a product with f may overflow, and 0 times infinity is nan.
        tape.multiply(scale, above, nonzero)

        def record(dtype: np.dtype[Any]) -> None:
            dots = out if out.dtype == dtype else tape.scratch(*out.shape, dtype=dtype)
            tape.row_dot(dy, x, dots)
            tape.multiply(dots, nonzero, out)

        tape.within_range(record, out)
        tape.multiply(out, scale, out)
        tape.multiply(out, 1.0 / (c.block_dim * c.target_rms**2), out)

    def _subtract_log(self, tape: Tape, x: Array, d_log: Array, scale: Array, out: Array) -> None:
        """Records out -= d_log / (f x.x) for each block."""
        norm = tape.scratch(*out.shape)

        def record(dtype: np.dtype[Any]) -> None:
            squares = norm if norm.dtype == dtype else tape.scratch(*norm.shape, dtype=dtype)
            tape.row_dot(x, x, squares)
            tape.maximum(squares, self.component.block_dim * SQUARED_NORM_FLOOR, squares)
            tape.multiply(squares, scale, norm)

        tape.within_range(record, norm)
        tape.divide(d_log, norm, norm)
        tape.subtract(out, norm, out)


@kernel_for(components.BatchNormComponent)
class BatchNormKernel(Kernel):
    """Batch normalisation, without trainable scale and offset.

    Training: y = s (x - mean) for each column, with s = target_rms (var + epsilon)^(-1/2) and mean
    and variance over the rows of the minibatch. Test: the same with the mean and variance of the
    statistics. Backward, in training, with N rows:

        dx = s (dy - sum(dy)/N) - y s / (N target_rms^2) sum(dy y)

    and dx = s dy in test mode. (S. Ioffe and C. Szegedy, "Batch normalization", 2015.)
    """

    def prepare(self) -> None:
        """Turns averages into sums; in test mode, derives scale and offset."""
        c = self.component
        self.count = float(c.count)
        mean, variance = c.stats_mean.astype(np.float64), c.stats_var.astype(np.float64)
        self.sum = self.store.state(mean * self.count)
        self.sumsq = self.store.state((variance + mean**2) * self.count)
        if c.test_mode:
            self.scale, self.offset = self.store.constant(c.scale), self.store.constant(c.offset)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass; keeps mean, mean square and scale for later commands."""
        tape, dim = p.tape, self.component.block_dim
        x, y = as_blocks(p.x, dim), as_blocks(p.y, dim)
        if self.component.test_mode:
            for source, out in tape.row_blocks(x, y):
                tape.multiply(source, self.scale, out)
                tape.add(out, self.offset, out)
            return
        x, c = flat_blocks(tape, p.x, dim), self.component
        moments = p.remembered("moments", 2, dim, dtype=np.float64)
        scale = p.remembered("scale", dim)
        tape.within_range(partial(self._record_moments, tape, x, moments), moments)
        mean, deviation = tape.scratch(dim), tape.scratch(dim, dtype=np.float64)
        tape.copy(moments[0], mean)
        tape.add(moments[1], c.epsilon, deviation)
        tape.sqrt(deviation, deviation)
        tape.divide(c.target_rms, deviation, scale)
        result = y if y.shape == x.shape else tape.scratch(*x.shape)
        for source, out in tape.row_blocks(x, result):
            tape.subtract(source, mean, out)
            tape.multiply(out, scale, out)
        if result is not y:
            tape.copy(result.reshape(y.shape), y)

    def _record_moments(self, tape: Tape, x: Array, moments: Array, dtype: np.dtype[Any]) -> None:
        """Records mean and variance of the columns of x, (2, dim), in one pass over it.

        E[x^2] - mean^2 would lose digits where the mean is large. So the mean of the first rows is
        subtracted first. These rows are part of the variance, so the rest of the mean is small
        beside it. Sums are of the given type.
        """
        rows, dim = x.shape
        size = tape.rows_per_sum(x)
        first, count = x[:size], -(-rows // size)
        sums, shift = tape.scratch(2 * count, dim, dtype=dtype), tape.scratch(1, dim, dtype=dtype)
        mean, variance = (tape.scratch(1, dim, dtype=dtype) for _ in range(2))
        tape.column_sum(first, shift)
        tape.multiply(shift, 1.0 / len(first), shift)
        for number, (block,) in enumerate(tape.row_blocks(x, rows=size)):
            centred = tape.scratch(*block.shape)
            square_number = count + number
            tape.subtract(block, shift, centred)
            tape.column_sum(centred, sums[number : number + 1])
            squares = sums[square_number : square_number + 1]
            if centred.dtype == dtype:  # the sum of products adds row by row, and rounds more
                tape.square(centred, centred)
                tape.column_sum(centred, squares)
            else:
                tape.column_sum_of_products(centred, centred, squares)
        tape.column_sum(sums[:count], mean)
        tape.multiply(mean, 1.0 / rows, mean)
        tape.column_sum(sums[count:], variance)
        tape.multiply(variance, 1.0 / rows, variance)
        squared = sums[:1]
        tape.square(mean, squared)
        tape.subtract(variance, squared, variance)
        tape.maximum(variance, 0.0, moments[1:])
        tape.add(mean, shift, moments[:1])

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        tape, dim = b.tape, self.component.block_dim
        dy, dx = as_blocks(b.dy, dim), as_blocks(out, dim)
        if self.component.test_mode:
            tape.multiply(dy, self.scale, dx)
            return
        assert b.memo is not None
        scale = b.memo["scale"]
        y, dy = flat_blocks(tape, b.y, dim), flat_blocks(tape, b.dy, dim)
        rows = len(y)
        sums = self._record_sums(tape, y, dy)
        tape.multiply(sums[0], -1.0 / (rows * self.component.target_rms**2), sums[0])
        tape.multiply(sums[1], 1.0 / rows, sums[1])
        result = dx if dx.shape == y.shape else tape.scratch(*y.shape)
        for value, derivative, target in tape.row_blocks(y, dy, result):
            product = tape.scratch(*value.shape)
            tape.multiply(value, sums[0], product)
            tape.subtract(derivative, sums[1], target)
            tape.add(target, product, target)
            tape.multiply(target, scale, target)
        if result is not dx:
            tape.copy(result.reshape(dx.shape), dx)

    @staticmethod
    def _record_sums(tape: Tape, y: Array, dy: Array) -> Array:
        """Records the sums over rows of y dy and of dy: (2, dim), in one pass over them."""
        size, dim = tape.rows_per_sum(y), y.shape[1]
        count = -(-len(y) // size)
        parts, sums = tape.scratch(2, count, dim), tape.scratch(2, dim)
        for number, (value, derivative) in enumerate(tape.row_blocks(y, dy, rows=size)):
            products, derivatives = parts[:, number : number + 1]
            tape.column_sum_of_products(value, derivative, products)
            tape.column_sum(derivative, derivatives)
        for part, total in zip(parts, sums, strict=True):
            tape.column_sum(part, total[None])
        return sums

    def store_stats(self, tape: Tape, y: Array, memo: Memo | None) -> None:
        """Records the addition of a minibatch's mean and variance to the statistics."""
        assert memo is not None
        rows = y.size // self.component.block_dim
        mean_of_rows, variance = memo["moments"]
        mean, square = (tape.scratch(len(self.sum), dtype=np.float64) for _ in range(2))
        tape.copy(mean_of_rows, mean)
        tape.square(mean, square)
        tape.add(square, variance, square)
        tape.multiply(mean, float(rows), mean)
        tape.multiply(square, float(rows), square)
        tape.add(self.sum, mean, self.sum)
        tape.add(self.sumsq, square, self.sumsq)
        tape.note(partial(self._count_rows, rows))

    def _count_rows(self, rows: int) -> None:
        self.count += rows

    def record_forgetting(self, tape: Tape, factor: float) -> None:
        """Records that sums and the number of rows are multiplied; averages do not change."""
        tape.multiply(self.sum, factor, self.sum)
        tape.multiply(self.sumsq, factor, self.sumsq)
        tape.note(partial(self._forget_rows, factor))

    def _forget_rows(self, factor: float) -> None:
        self.count *= factor

    def with_statistics(self) -> components.Component:
        """The component with averages made of the sums."""
        if self.count == 0.0:
            return self.replaced()
        mean = self.sum / self.count
        return self.replaced(
            count=self.count,
            stats_mean=mean.astype(np.float32),
            stats_var=(self.sumsq / self.count - mean**2).astype(np.float32),
        )


SMALLEST_PROBABILITY = 1.0e-20
"""Floor of the output of the softmax."""


@kernel_for(components.SoftmaxComponent)
class SoftmaxKernel(NonlinearKernel):
    """y_i = e^x_i / sum_j e^x_j in each row; dx = y (dy - sum_j y_j dy_j)."""

    has_slope = False

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

    def store_stats(self, tape: Tape, y: Array, memo: Memo | None) -> None:
        """Records the statistics of the outputs, for every minibatch."""
        tape.note(partial(self._count_rows, len(y)))
        self.record_stats(tape, y)

    def _count_rows(self, rows: int) -> None:
        self.count += rows


def softmax(tape: Tape, x: Array, y: Array) -> None:
    """Records y_i = e^x_i / sum_j e^x_j for each row, relative to the largest x_j.

    x may be more precise than y.
    """
    column = tape.scratch(len(x), 1, dtype=x.dtype)
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


@kernel_for(components.LogSoftmaxComponent)
class LogSoftmaxKernel(NonlinearKernel):
    """y_i = x_i - ln sum_j e^x_j in each row; dx = dy - e^y sum_j dy_j."""

    has_slope = False

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

    def store_stats(self, tape: Tape, y: Array, memo: Memo | None) -> None:
        """Records nothing: a log-softmax only has statistics of derivatives."""
