"""Attention over a window of times.

D. Povey et al., "A time-restricted self-attention layer for ASR", ICASSP 2018.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from nnet3_descriptors.components import RestrictedAttentionComponent

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.convolution.splicing import rows_at
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula

_LEAST_WEIGHT = 1.0e-20  # so that the logarithm is finite
_NO_STATISTICS_PROBABILITY = 1.0 / 3.0


class _Columns(NamedTuple):
    """The columns of the input: for each row and head keys, values, queries, biases."""

    keys: Array
    values: Array
    queries: Array
    biases: Array


@formula(RestrictedAttentionComponent)
class RestrictedAttention(Formula):
    """y(t) = sum over j of c_j(t) v(t + s j); c = softmax over j of a q(t) . k(t + s j) + b_j(t).

    For each head the columns of the input are key k, value v, query q and biases b; the columns of
    the output are y and, with output_context, the weights c. s j are the time offsets, a is
    key_scale. (j goes from -num_left_inputs to num_right_inputs; the code counts from 0.) A row
    that stands for a time without input is 0; its key and value still count.
    """

    def _columns(self, call: Call, rows: Array) -> _Columns:
        """Returns views of the columns, each (rows_in, num_heads, ...)."""
        c = call.component
        ends = np.cumsum([c.key_dim, c.value_dim, c.key_dim])
        return _Columns(*np.split(rows.reshape(call.rows_in, c.num_heads, -1), ends, axis=2))

    def memo(self, call: Call) -> Array:
        """Returns the weights c, (rows_out, num_heads, context_dim)."""
        c, here = call.component, _rows_here(call)
        x = self._columns(call, call.x.astype(np.float64))  # products may overflow
        logits = x.biases[here]
        for j in range(c.context_dim):
            products = (x.queries[here] * x.keys[rows_at(call, j)]).sum(axis=2)
            logits[:, :, j] += c.key_scale * products
        weights: Array = np.exp(logits - logits.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        return weights

    def forward(self, call: Call) -> Array:
        """Returns y, and c with output_context."""
        c, values, weights = call.component, self._columns(call, call.x).values, call.memo
        y = np.zeros((call.rows_out, c.num_heads, c.value_dim), call.dtype)
        for j in range(c.context_dim):
            y += weights[:, :, j, None] * values[rows_at(call, j)]
        if c.output_context:
            y = np.concatenate([y, weights], axis=2)
        return y.reshape(call.rows_out, -1)

    def backward(self, call: Call) -> Array:
        """By the chain rule; db = c (dc - c . dc), of the softmax."""
        c, weights, here = call.component, call.memo, _rows_here(call)
        x = self._columns(call, call.x)
        dy = call.dy.reshape(call.rows_out, c.num_heads, -1)
        dy, dc_given = dy[:, :, : c.value_dim], dy[:, :, c.value_dim :]
        dc = dc_given.copy() if c.output_context else np.zeros_like(weights)
        dx = call.zeros_in()
        to = self._columns(call, dx)
        for j in range(c.context_dim):
            rows = rows_at(call, j)
            dc[:, :, j] += (dy * x.values[rows]).sum(axis=2)
            to.values[rows] += weights[:, :, j, None] * dy
        db = weights * (dc - (weights * dc).sum(axis=2, keepdims=True))
        to.biases[here] = db
        for j in range(c.context_dim):
            rows, scale = rows_at(call, j), c.key_scale * db[:, :, j, None]
            to.queries[here] += scale * x.keys[rows]
            to.keys[rows] += scale * x.queries[here]
        return dx

    def statistics(self, call: Call) -> dict[str, Any]:
        """Adds the sums over the rows of the weights, and of their entropies - sum of c log c.

        Two in three minibatches count, chosen at random. Rows for padding count as well.
        """
        if call.chance(_NO_STATISTICS_PROBABILITY):
            return {}
        c, weights = call.component, call.memo
        entropies = -(weights * np.log(np.maximum(weights, _LEAST_WEIGHT))).sum(axis=2)
        posteriors = weights.sum(axis=0)
        return {
            "entropy_stats": entropies.sum(axis=0)
            + (c.entropy_stats if c.entropy_stats.size else 0),
            "posterior_stats": posteriors + (c.posterior_stats if c.posterior_stats.size else 0),
            "stats_count": c.stats_count + call.rows_out,
        }


def _rows_here(call: Call) -> Any:
    """Returns the input row at the time of each output row, at time offset 0."""
    return rows_at(call, call.component.num_left_inputs)
