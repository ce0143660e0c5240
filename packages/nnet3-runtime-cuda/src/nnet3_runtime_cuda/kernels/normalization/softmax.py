"""The softmax of rows, and its logarithm."""

from __future__ import annotations

from functools import partial

from nnet3_descriptors.components import LogSoftmaxComponent, SoftmaxComponent

from nnet3_runtime_cuda.kernels.base import Backpropagation, Propagation, StatsStorage
from nnet3_runtime_cuda.kernels.elementwise.nonlinear import NonlinearKernel
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Operations

SMALLEST_PROBABILITY = 1.0e-20
"""Floor of the output of the softmax."""


@kernel_for(SoftmaxComponent)
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

    def store_stats(self, s: StatsStorage) -> None:
        """Records the statistics of the outputs, for every minibatch."""
        s.tape.note(partial(self._count_rows, len(s.y)))
        self.record_stats(s.tape, s.y, None)

    def _count_rows(self, rows: int) -> None:
        self.count += rows


def softmax(tape: Operations, x: Array, y: Array) -> None:
    """Records y_i = e^x_i / sum_j e^x_j for each row, relative to the largest x_j.

    x may be more precise than y.
    """
    column = tape.scratch(len(x), 1, dtype=x.dtype)
    tape.row_maximum(x, column)
    tape.subtract(x, column, y)
    tape.exp(y, y)
    tape.row_sum(y, column)
    tape.divide(y, column, y)


def softmax_backward(tape: Operations, y: Array, dy: Array, dx: Array) -> None:
    """Records dx = y (dy - sum_j y_j dy_j) for each row."""
    dot = tape.scratch(len(y))
    tape.row_dot(y, dy, dot)
    tape.subtract(dy, dot[:, None], dx)
    tape.multiply(dx, y, dx)


@kernel_for(LogSoftmaxComponent)
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

    def store_stats(self, s: StatsStorage) -> None:
        """Records nothing: a log-softmax only has statistics of derivatives."""
