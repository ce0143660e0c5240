"""Statistics over time: extraction of counts, sums and sums of squares, and pooling of them."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.components import (
    StatisticsExtractionComponent,
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingComponent,
    StatisticsPoolingPrecomputedIndexes,
)

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Propagation
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.kernels.row_range_sums import record_row_range_sums
from nnet3_runtime_cuda.operations import Array


@kernel_for(StatisticsExtractionComponent)
class StatisticsExtractionKernel(Kernel):
    """y = (number of frames, sum of x, sum of x^2) over the frames of each period.

    Backward: dx = d_sum + 2 x d_sumsq, taken from the row that the frame went into.
    """

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        indexes, dim = p.indexes, self.component.input_dim
        assert isinstance(indexes, StatisticsExtractionPrecomputedIndexes)
        tape = p.tape
        counts, ranges = self.store.constant(indexes.counts), indexes.forward_indexes
        if p.add:
            tape.add(p.y[:, 0], counts, p.y[:, 0])
        else:
            tape.copy(counts, p.y[:, 0])
        record_row_range_sums(tape, p.x, ranges, p.y[:, 1 : dim + 1], add=p.add)
        if self.component.include_variance:
            squares = tape.scratch(*p.x.shape)
            tape.square(p.x, squares)
            record_row_range_sums(tape, squares, ranges, p.y[:, dim + 1 :], add=p.add)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        indexes, tape, dim = b.indexes, b.tape, self.component.input_dim
        assert isinstance(indexes, StatisticsExtractionPrecomputedIndexes)
        rows = np.asarray(indexes.backward_indexes, dtype=np.int64)
        whole = tape.scratch(*b.dy.shape)
        tape.copy(b.dy, whole)
        gathered = tape.scratch(len(rows), b.dy.shape[1])
        tape.take_rows(whole, rows, gathered)
        d_sum = gathered[:, 1 : dim + 1]
        if not self.component.include_variance:
            tape.copy(d_sum, b.dx)
            return
        d_sumsq = gathered[:, dim + 1 :]
        tape.multiply(d_sumsq, b.x, d_sumsq)
        tape.multiply(d_sumsq, 2.0, d_sumsq)
        tape.add(d_sum, d_sumsq, b.dx)


@kernel_for(StatisticsPoolingComponent)
class StatisticsPoolingKernel(Kernel):
    """y = (ln N repeated, mean, and mean square or standard deviation) over a window of statistics.

    x holds in each row a count, sums and sums of squares; N is the sum of the counts in the window,
    and the sums are divided by it. The standard deviation is the root of
    max(E[x^2] - mean^2, variance_floor).

    Backward treats counts as constant and ignores the floor, as Kaldi does: d_var = d_std / (2
    std), d_mean -= 2 mean d_var. The derivative of a row of x is a sum over the windows that hold
    it: of the derivative of the means divided by N.
    """

    def _mean_and_second(self, y: Array) -> tuple[Array, Array]:
        """Columns of the means, and of the second moments or standard deviations: views."""
        first = self.component.num_log_count_features
        dim = (self.component.input_dim - 1) // 2
        return y[:, first : first + dim], y[:, first + dim : first + 2 * dim]

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        tape, indexes = p.tape, p.indexes
        assert isinstance(indexes, StatisticsPoolingPrecomputedIndexes)
        logs = self.component.num_log_count_features
        counts = tape.scratch(len(p.y), 1)
        record_row_range_sums(tape, p.x[:, :1], indexes.forward_indexes, counts, add=False)
        moments = p.y[:, logs:]
        record_row_range_sums(tape, p.x[:, 1:], indexes.forward_indexes, moments, add=False)
        tape.divide(moments, counts, moments)
        if logs:
            tape.log(counts, counts)
            tape.copy(counts, p.y[:, :logs])
        if self.component.output_stddevs:
            mean, second = self._mean_and_second(p.y)
            square = tape.scratch(*mean.shape)
            tape.square(mean, square)
            tape.subtract(second, square, second)
            tape.maximum(second, self.component.variance_floor, second)
            tape.sqrt(second, second)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        tape, indexes = b.tape, b.indexes
        assert isinstance(indexes, StatisticsPoolingPrecomputedIndexes)
        logs = self.component.num_log_count_features
        dy = tape.scratch(*b.dy.shape)
        tape.copy(b.dy, dy)
        if self.component.output_stddevs:
            (mean, stddev), (d_mean, d_second) = map(self._mean_and_second, (b.y, dy))
            term = tape.scratch(*mean.shape)
            tape.divide(d_second, stddev, d_second)
            tape.multiply(d_second, 0.5, d_second)
            tape.multiply(mean, d_second, term)
            tape.multiply(term, -2.0, term)
            tape.add(d_mean, term, d_mean)
        counts = tape.scratch(len(dy), 1)
        if logs:
            tape.exp(b.y[:, :1], counts)
        else:
            record_row_range_sums(tape, b.x[:, :1], indexes.forward_indexes, counts, add=False)
        tape.divide(dy, counts, dy)
        if not b.add:
            tape.fill(0.0, b.dx[:, 0])
        record_row_range_sums(tape, dy[:, logs:], indexes.backward_indexes, b.dx[:, 1:], add=b.add)
