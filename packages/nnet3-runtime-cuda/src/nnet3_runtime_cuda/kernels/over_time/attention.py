"""Attention over a window of frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
from nnet3_descriptors.components import (
    Component,
    RestrictedAttentionComponent,
)

from nnet3_runtime_cuda.kernels.base import (
    Backpropagation,
    Kernel,
    Propagation,
    StatsStorage,
)
from nnet3_runtime_cuda.kernels.normalization.softmax import (
    SMALLEST_PROBABILITY,
    softmax,
    softmax_backward,
)
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.kernels.time_offsets import rows_at_offsets
from nnet3_runtime_cuda.operations import Array, Operations


@attrs.frozen(kw_only=True)
class _Head:
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


@kernel_for(RestrictedAttentionComponent)
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

    def with_statistics(self) -> Component:
        """The component with its present statistics."""
        component: Component = self.component
        if self.count == 0.0:
            return component
        changed: dict[str, Any] = {
            "stats_count": self.count,
            "entropy_stats": self.entropy[:, 0].copy(),
            "posterior_stats": self.posterior.copy(),
        }
        return component.replace(**changed)

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
        weights = tape.scratch(*shape) if p.memo is None else tape.persistent(*shape)
        if p.memo is not None:
            p.memo["c"] = weights
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
        self, tape: Operations, heads: Sequence[_Head], weights: Array, dtype: np.dtype[Any]
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

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        assert b.memo is not None
        tape, c, rows = b.tape, self.component, len(b.dy)
        if not b.add:
            tape.fill(0.0, b.dx)
        column = tape.scratch(rows)
        dc = tape.scratch(rows, c.context_dim)
        key_term, value_term = tape.scratch(rows, c.key_dim), tape.scratch(rows, c.value_dim)
        for h in range(c.num_heads):
            x, dx = (_Head.of(c, a, h, b.indexes, rows) for a in (b.x, b.dx))
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

    def store_stats(self, s: StatsStorage) -> None:
        """On two of three minibatches, records the weights and their entropy."""
        assert s.memo is not None
        tape, weights = s.tape, s.memo["c"]
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
    tape: Operations, source: Array, factor: Array, out: Array, term: Array, *, add: bool
) -> None:
    """Records out (+)= factor source, with factor (rows, 1)."""
    tape.multiply(source, factor, term if add else out)
    if add:
        tape.add(out, term, out)
