"""Components that see several frames or rows: attention, statistics, truncation, distribution."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Memo, Propagation, contiguous
from nnet3_runtime_cuda.kernels.normalize import SMALLEST_PROBABILITY, softmax, softmax_backward
from nnet3_runtime_cuda.kernels.parameters import (
    add_count_above,
    add_total,
    record_moments,
    record_row_range_sums,
    rows_at_offsets,
)
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Tape


class _Head(NamedTuple):
    """Views of the columns of one head in an input, or in its derivative.

    Attributes:
        keys: For each time offset (rows out, key_dim).
        values: For each time offset (rows out, value_dim).
        queries: (rows out, key_dim).
        biases: (rows out, context_dim).
    """

    keys: list[Array]
    values: list[Array]
    queries: Array
    biases: Array

    @classmethod
    def of(cls, c: Any, x: Array, head: int, indexes: Any, rows: int) -> _Head:
        """The parts of head number `head`."""
        width = 2 * c.key_dim + c.value_dim + c.context_dim
        part = x[:, head * width : (head + 1) * width]
        frames = rows_at_offsets(part, indexes, rows)
        queries = frames[c.num_left_inputs][:, c.key_dim + c.value_dim :]
        return cls(
            keys=[frame[:, : c.key_dim] for frame in frames],
            values=[frame[:, c.key_dim : c.key_dim + c.value_dim] for frame in frames],
            queries=queries[:, : c.key_dim],
            biases=queries[:, c.key_dim :],
        )


@kernel_for(components.RestrictedAttentionComponent)
class RestrictedAttentionKernel(Kernel):
    """Each output frame is a weighted mean of the values of context_dim input frames around it.

    For each head, with j running over the context and r_j the input row of that frame:

        c = softmax_j(key_scale query . key_(r_j) + bias_j)        y = sum_j c_j value_(r_j)

    and the weights c are appended to y if output_context is set. A row of the input holds for each
    head key, value, query and the context_dim biases. (D. Povey et al., "A time-restricted
    self-attention layer for ASR", 2018.)
    """

    def prepare(self) -> None:
        """Starts from the statistics in the component."""
        c = self.component
        self.count = float(c.stats_count)
        shape = (c.num_heads, c.context_dim)
        entropy = c.entropy_stats if c.entropy_stats.size else np.zeros(c.num_heads)
        self.entropy = self.store.state(entropy[:, None])
        self.posterior = self.store.state(
            c.posterior_stats if c.posterior_stats.size else np.zeros(shape)
        )

    def with_statistics(self) -> components.Component:
        """The component with its present statistics."""
        if self.count == 0.0:
            return self.replaced()
        return self.replaced(
            stats_count=self.count,
            entropy_stats=self.entropy[:, 0].copy(),
            posterior_stats=self.posterior.copy(),
        )

    def _weights(self, c: Array, head: int) -> Array:
        dim = self.component.context_dim
        return c[:, head * dim : (head + 1) * dim]

    def _output(self, y: Array, head: int) -> tuple[Array, Array | None]:
        """Columns of one head: weighted values, and weights if they are appended."""
        c = self.component
        width = c.value_dim + (c.context_dim if c.output_context else 0)
        part = y[:, head * width : (head + 1) * width]
        return part[:, : c.value_dim], part[:, c.value_dim :] if c.output_context else None

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass; keeps the weights for later commands."""
        tape, c, rows = p.tape, self.component, len(p.y)
        shape = (rows, c.num_heads * c.context_dim)
        weights = p.remembered("c", *shape)
        heads = [_Head.of(c, p.x, h, p.indexes, rows) for h in range(c.num_heads)]
        tape.within_range(partial(self._record_weights, tape, heads, weights), weights)
        term = tape.scratch(rows, c.value_dim)
        for h, head in enumerate(heads):
            weight = self._weights(weights, h)
            y, y_context = self._output(p.y, h)
            add = p.add
            for j, values in enumerate(head.values):
                _record_scaled(tape, values, weight[:, j : j + 1], y, term, add=add)
                add = True
            if y_context is not None and p.add:
                tape.add(y_context, weight, y_context)
            elif y_context is not None:
                tape.copy(weight, y_context)

    def _record_weights(
        self, tape: Tape, heads: Sequence[_Head], weights: Array, dtype: np.dtype[Any]
    ) -> None:
        """Records the weights of all heads, from logits of a type."""
        c, column = self.component, tape.scratch(len(weights), dtype=dtype)
        for h, head in enumerate(heads):
            weight = self._weights(weights, h)
            # With other precision than the weights' they need their own memory.
            is_same = weight.dtype == dtype
            logits = weight if is_same else tape.scratch(*weight.shape, dtype=dtype)
            for j, keys in enumerate(head.keys):
                tape.row_dot(head.queries, keys, column)
                tape.multiply(column, c.key_scale, logits[:, j])
            tape.add(logits, head.biases, logits)
            softmax(tape, logits, weight)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        assert b.memo is not None
        tape, c, rows = b.tape, self.component, len(b.dy)
        if not b.add:
            tape.fill(0.0, out)
        column = tape.scratch(rows)
        dc = tape.scratch(rows, c.context_dim)
        key_term, value_term = tape.scratch(rows, c.key_dim), tape.scratch(rows, c.value_dim)
        for h in range(c.num_heads):
            x, dx = (_Head.of(c, a, h, b.indexes, rows) for a in (b.x, out))
            weight = self._weights(b.memo["c"], h)
            dy, dy_context = self._output(b.dy, h)
            for j in range(c.context_dim):
                tape.row_dot(dy, x.values[j], column)
                tape.copy(column, dc[:, j])
                factor = weight[:, j : j + 1]
                _record_scaled(tape, dy, factor, dx.values[j], value_term, add=True)
            if dy_context is not None:
                tape.add(dc, dy_context, dc)
            softmax_backward(tape, weight, dc, dc)
            tape.add(dx.biases, dc, dx.biases)
            tape.multiply(dc, c.key_scale, dc)
            for j in range(c.context_dim):
                factor = dc[:, j : j + 1]
                _record_scaled(tape, x.keys[j], factor, dx.queries, key_term, add=True)
                _record_scaled(tape, x.queries, factor, dx.keys[j], key_term, add=True)

    def store_stats(self, tape: Tape, y: Array, memo: Memo | None) -> None:
        """On two of three minibatches, records the weights and their entropy."""
        assert memo is not None
        weights = memo["c"]
        with tape.when(tape.value(partial(self._counts, len(weights)))):
            logs, sums = tape.scratch(*weights.shape), tape.scratch(1, weights.shape[1])
            tape.column_sum(weights, sums)
            by_head = sums.reshape(self.posterior.shape)
            tape.add(self.posterior, by_head, self.posterior)
            tape.maximum(weights, SMALLEST_PROBABILITY, logs)
            tape.log(logs, logs)
            tape.column_sum_of_products(weights, logs, sums)
            entropy = tape.scratch(*self.entropy.shape, dtype=np.float64)
            tape.row_sum(by_head, entropy)
            tape.subtract(self.entropy, entropy, self.entropy)

    def _counts(self, rows: int) -> bool:
        if self.chance(1.0 / 3.0):
            return False
        self.count += rows
        return True


def _record_scaled(
    tape: Tape, source: Array, factor: Array, out: Array, term: Array, *, add: bool
) -> None:
    """Records out (+)= factor source, with factor (rows, 1)."""
    tape.multiply(source, factor, term if add else out)
    if add:
        tape.add(out, term, out)


@kernel_for(components.StatisticsExtractionComponent)
class StatisticsExtractionKernel(Kernel):
    """y = (number of frames, sum of x, sum of x^2) over the frames of each period.

    Backward: dx = d_sum + 2 x d_sumsq, taken from the row that the frame went into.
    """

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        tape, indexes, dim = p.tape, p.indexes, self.component.input_dim
        ranges = indexes.forward_indexes
        y = tape.scratch(*p.y.shape) if p.add else p.y
        tape.copy(self.store.constant(indexes.counts), y[:, 0])
        if self.component.include_variance:
            record_moments(tape, p.x, ranges, y[:, 1 : dim + 1], y[:, dim + 1 :])
        else:
            record_row_range_sums(tape, p.x, ranges, y[:, 1:], add=False)
        if p.add:
            tape.add(p.y, y, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        indexes, tape, dim = b.indexes, b.tape, self.component.input_dim
        rows = np.asarray(indexes.backward_indexes, dtype=np.int64)
        d_sum, d_sumsq = (tape.scratch(len(b.dy), dim) for _ in range(2))
        tape.copy(b.dy[:, 1 : dim + 1], d_sum)
        if self.component.include_variance:
            tape.multiply(b.dy[:, dim + 1 :], 2.0, d_sumsq)
        for dx, x, part in tape.row_blocks(out, b.x, rows):
            if not self.component.include_variance:
                tape.take_rows(d_sum, part, dx)
                continue
            sums, term = tape.scratch(*dx.shape), tape.scratch(*dx.shape)
            tape.take_rows(d_sum, part, sums)
            tape.take_rows(d_sumsq, part, term)
            tape.multiply(term, x, term)
            tape.add(sums, term, dx)


@kernel_for(components.StatisticsPoolingComponent)
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

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        tape, indexes = b.tape, b.indexes
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
            tape.fill(0.0, out[:, 0])
        record_row_range_sums(tape, dy[:, logs:], indexes.backward_indexes, out[:, 1:], add=b.add)


NO_THRESHOLD = 1.0e10
"""The limit for a threshold that is switched off."""


@kernel_for(components.BackpropTruncationComponent)
class BackpropTruncationKernel(Kernel):
    """y = scale x; dx = scale dy, each row clipped to a norm, or zeroed where it grew too large.

    Rows whose norm exceeds clipping_threshold are scaled down to it. At regular times
    (boundary_rows) rows whose norm exceeds zeroing_threshold are set to 0.
    """

    def prepare(self) -> None:
        """Starts from the counts in the component."""
        c = self.component
        self.num_clipped = self.store.state([[c.num_clipped]])
        self.num_zeroed = self.store.state([[c.num_zeroed]])
        self.counts = self.store.state([c.count, c.count_zeroing_boundaries])

    def with_statistics(self) -> components.Component:
        """The component with its present counts."""
        return self.replaced(
            num_clipped=float(self.num_clipped[0, 0]),
            num_zeroed=float(self.num_zeroed[0, 0]),
            count=float(self.counts[0]),
            count_zeroing_boundaries=float(self.counts[1]),
        )

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        if self.component.scale == 1.0:
            p.tape.copy(p.x, p.y)
        else:
            p.tape.multiply(p.x, self.component.scale, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        tape, c = b.tape, self.component
        tape.multiply(b.dy, c.scale, out)
        squares, factor = tape.scratch(len(out)), tape.scratch(len(out))
        tape.row_dot(out, out, squares)
        clipping = c.clipping_threshold if c.clipping_threshold > 0.0 else NO_THRESHOLD
        zeroing = c.zeroing_threshold if c.zeroing_threshold > 0.0 else NO_THRESHOLD
        boundaries = b.indexes.boundary_rows
        is_boundary = np.zeros(len(out), dtype=np.float32)
        is_boundary[boundaries] = 1.0
        too_large = tape.scratch(len(out), dtype=np.bool_)
        tape.greater(squares, zeroing**2, too_large)
        keep = tape.scratch(len(out))
        tape.multiply(self.store.constant(is_boundary), too_large, keep)
        if b.update:
            add_count_above(tape, squares, clipping**2, self.num_clipped)
            add_total(tape, keep, self.num_zeroed)
            rows = np.array([len(out), len(boundaries)], dtype=np.float32)
            tape.add(self.counts, self.store.constant(rows), self.counts)
        tape.subtract(1.0, keep, keep)
        tape.multiply(squares, clipping**-2, factor)
        tape.maximum(factor, 1.0, factor)
        tape.sqrt(factor, factor)
        tape.divide(keep, factor, factor)
        tape.multiply(out, factor[:, None], out)


@kernel_for(components.DistributeComponent)
class DistributeKernel(Kernel):
    """Each row of y is a block of columns of x: number source_blocks[i] of all blocks."""

    def _blocks(self, indexes: components.DistributePrecomputedIndexes) -> Array:
        """The number of the block of x that each row of y is, counted along the rows of x."""
        return np.asarray(indexes.source_blocks, dtype=np.int64)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        tape, source = p.tape, contiguous(p.tape, p.x)
        target = p.y if p.y.flags.c_contiguous else tape.scratch(*p.y.shape)
        tape.take_rows(source.reshape(-1, p.y.shape[1]), self._blocks(p.indexes), target)
        if target is not p.y:
            tape.copy(target, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input; blocks that no row of y copied get 0."""
        tape, width, blocks = b.tape, b.dy.shape[1], self._blocks(b.indexes)
        target = out if out.flags.c_contiguous else tape.scratch(*out.shape)
        if len(blocks) != target.size // width:
            tape.fill(0.0, target)
        tape.put_rows(b.dy, blocks, target.reshape(-1, width))
        if target is not out:
            tape.copy(target, out)
