"""Attention over time, limits of derivatives in recurrences, and sequences of components.

Attention: D. Povey et al., "A time-restricted self-attention layer for ASR", ICASSP 2018.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
from nnet3_descriptors import ComponentProperties, components
from numpy.typing import NDArray

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.convolution import rows_at
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula, formula_of

_LEAST_WEIGHT = 1.0e-20  # so that the logarithm is finite
_NO_STATISTICS_PROBABILITY = 1.0 / 3.0


@formula(components.RestrictedAttentionComponent)
class RestrictedAttention(Formula):
    """y(t) = sum over j of c_j(t) v(t + s j); c = softmax over j of a q(t) . k(t + s j) + b_j(t).

    For each head the columns of the input are key k, value v, query q and biases b; the columns of
    the output are y and, with output_context, the weights c. s j are the time offsets, a is
    key_scale. (j goes from -num_left_inputs to num_right_inputs; the code counts from 0.) A row
    that stands for a time without input is 0; its key and value still count.
    """

    def _columns(self, call: Call, rows: Array) -> list[Array]:
        """Returns keys, values, queries and biases; views, each (rows_in, num_heads, ...)."""
        c = call.component
        ends = np.cumsum([c.key_dim, c.value_dim, c.key_dim])
        return np.split(rows.reshape(call.rows_in, c.num_heads, -1), ends, axis=2)

    def memo(self, call: Call) -> Array:
        """Returns the weights c, (rows_out, num_heads, context_dim)."""
        c, here = call.component, _rows_here(call)
        x = call.x.astype(np.float64)  # products may overflow
        keys, _, queries, biases = self._columns(call, x)
        logits = biases[here]
        for j in range(c.context_dim):
            products = (queries[here] * keys[rows_at(call, j)]).sum(axis=2)
            logits[:, :, j] += c.key_scale * products
        weights: Array = np.exp(logits - logits.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        return weights

    def forward(self, call: Call) -> Array:
        """Returns y, and c with output_context."""
        c, weights = call.component, call.memo
        _, values, _, _ = self._columns(call, call.x)
        y = np.zeros((call.rows_out, c.num_heads, c.value_dim), call.dtype)
        for j in range(c.context_dim):
            y += weights[:, :, j, None] * values[rows_at(call, j)]
        if c.output_context:
            y = np.concatenate([y, weights.astype(call.dtype)], axis=2)
        return y.reshape(call.rows_out, -1)

    def backward(self, call: Call) -> Array:
        """By the chain rule; db = c (dc - c . dc), of the softmax."""
        c, weights, here = call.component, call.memo, _rows_here(call)
        keys, values, queries, _ = self._columns(call, call.x)
        dy = call.dy.reshape(call.rows_out, c.num_heads, -1)
        dy, dc_given = dy[:, :, : c.value_dim], dy[:, :, c.value_dim :]
        dc = dc_given.copy() if c.output_context else np.zeros_like(weights)
        dx = call.zeros_in()
        d_keys, d_values, d_queries, d_biases = self._columns(call, dx)
        for j in range(c.context_dim):
            rows = rows_at(call, j)
            dc[:, :, j] += (dy * values[rows]).sum(axis=2)
            d_values[rows] += weights[:, :, j, None] * dy
        db = weights * (dc - (weights * dc).sum(axis=2, keepdims=True))
        d_biases[here] = db
        for j in range(c.context_dim):
            rows, scale = rows_at(call, j), c.key_scale * db[:, :, j, None]
            d_queries[here] += scale * keys[rows]
            d_keys[rows] += scale * queries[here]
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


REPAIR_PROBABILITY = 0.5
NO_THRESHOLD = 1e10
"""The limit for a threshold of 0 in BackpropTruncationComponent."""


def norms(rows: Array) -> Array:
    """Returns the Euclidean norm of each row, (rows, 1)."""
    return np.sqrt((rows**2).sum(axis=1, keepdims=True))


def clipped(rows: Array, limit: float) -> tuple[Array, int]:
    """Scales long rows down to a limit; returns all rows, and the number of the scaled ones."""
    length = norms(rows)
    is_long = length >= limit
    factor = np.where(is_long, limit / np.where(is_long, length, 1), 1)
    return rows * factor, int(is_long.sum())


@formula(components.ClipGradientComponent)
class ClipGradient(Formula):
    """y = x.

    Backward each row of dy that is longer than the limit c = clipping_threshold is scaled down to
    it; or, without norm_based_clipping, each element is held between -c and c (R. Pascanu et al.,
    "On the difficulty of training recurrent neural networks", 2013). With c = 0, dx = 0.

    Self-repair is Kaldi's. q is the part of all rows so far that were clipped. If q is above
    self_repair_clipped_proportion_threshold, then on every second minibatch, chosen at random, 2
    scale q (a / b) e is subtracted from dx. Here e is x, moved towards 0 by at most
    self_repair_target; a and b are the mean norms of the rows of dx and e. Then dx is scaled back
    to the mean norm a.
    """

    def forward(self, call: Call) -> Array:
        """Returns x."""
        return call.x

    def _clipped(self, call: Call) -> tuple[Array, int]:
        """Returns dy after clipping, and the number of rows clipped."""
        c = call.component
        if c.norm_based_clipping and c.clipping_threshold > 0:
            return clipped(call.dy, c.clipping_threshold)
        return np.clip(call.dy, -c.clipping_threshold, c.clipping_threshold), 0

    def _counts(self, call: Call) -> tuple[int, int]:
        """Returns the numbers of rows so far, with these, and of those that were clipped.

        Rows count only if norms are clipped.
        """
        c = call.component
        counts = c.norm_based_clipping and c.clipping_threshold > 0
        count = c.count + (call.rows_out if counts else 0)
        return count, c.num_clipped + self._clipped(call)[1]

    def decide(self, call: Call) -> bool:
        """Returns whether to drive the input back towards 0."""
        c, (count, num_clipped) = call.component, self._counts(call)
        threshold = c.self_repair_clipped_proportion_threshold
        can_repair = c.clipping_threshold > 0 and c.self_repair_scale != 0 and threshold < 1
        is_due = can_repair and call.chance(REPAIR_PROBABILITY) and count > 0
        # In single precision, like the threshold.
        return is_due and bool(np.float32(num_clipped / count) > np.float32(threshold))

    def backward(self, call: Call) -> Array:
        """Returns dy, clipped, plus the repair."""
        c = call.component
        dx = self._clipped(call)[0]
        if not call.updates or not call.decision:
            return dx
        excess = np.sign(call.x) * np.maximum(np.abs(call.x) - c.self_repair_target, 0)
        before, length = norms(dx).mean(), norms(excess).mean()
        if length > 0:
            count, num_clipped = self._counts(call)
            scale = c.self_repair_scale / REPAIR_PROBABILITY * (num_clipped / count)
            dx = dx - scale * before / length * excess
        after = norms(dx).mean()
        return dx * (before / after) if after > 0 else dx

    def backward_statistics(self, call: Call) -> dict[str, Any]:
        """Returns the counts of rows, of backward passes, and of passes with a repair."""
        c, (count, num_clipped) = call.component, self._counts(call)
        return {
            "count": count,
            "num_clipped": num_clipped,
            "num_backpropped": c.num_backpropped + (c.clipping_threshold > 0),
            "num_self_repaired": c.num_self_repaired + call.decision,
        }


@formula(components.BackpropTruncationComponent)
class BackpropTruncation(Formula):
    """y = scale x.

    Backward dx = scale dy. A row of dx that is longer than clipping_threshold is then scaled down
    to it. A row at a boundary (`boundary_rows` of the indexes) is set to 0 if it was longer than
    zeroing_threshold before that. A threshold of 0 stands for no limit. Kaldi cuts recurrences in
    time in this way.
    """

    def forward(self, call: Call) -> Array:
        """Returns scale x."""
        return call.component.scale * call.x

    def _is_zeroed(self, call: Call) -> NDArray[np.bool_]:
        """Returns which rows are set to 0, (rows, 1) bool."""
        assert isinstance(call.indexes, components.BackpropTruncationPrecomputedIndexes)
        is_boundary = np.zeros((call.rows_out, 1), dtype=bool)
        is_boundary[call.indexes.boundary_rows] = True
        limit = call.component.zeroing_threshold or NO_THRESHOLD
        return is_boundary & (norms(call.component.scale * call.dy) > limit)

    def _clipped(self, call: Call) -> tuple[Array, int]:
        """Returns scale dy after clipping, and the number of rows clipped."""
        c = call.component
        return clipped(c.scale * call.dy, c.clipping_threshold or NO_THRESHOLD)

    def backward(self, call: Call) -> Array:
        """Returns scale dy, clipped and zeroed."""
        return self._clipped(call)[0] * ~self._is_zeroed(call)

    def backward_statistics(self, call: Call) -> dict[str, Any]:
        """Counts rows, clipped rows, boundaries and zeroed rows."""
        c = call.component
        assert isinstance(call.indexes, components.BackpropTruncationPrecomputedIndexes)
        return {
            "count": c.count + call.rows_out,
            "num_clipped": c.num_clipped + self._clipped(call)[1],
            "num_zeroed": c.num_zeroed + int(self._is_zeroed(call).sum()),
            "count_zeroing_boundaries": c.count_zeroing_boundaries
            + len(call.indexes.boundary_rows),
        }


_Run = tuple[Array, dict[str, Array], dict[str, Any]]
"""The results of the backward pass of some rows: the derivative at the input; the gradients of all
parts; and the fields of all parts that change, with their new values."""


@formula(components.CompositeComponent)
class Composite(Formula):
    """y = f_n(... f_2(f_1(x))), of max_rows_process rows at a time.

    The backward pass computes the values between the parts again, stores the statistics of parts
    that have some, and runs each part backward, from the last part to the first. A field of part i
    has the name "i.field".
    """

    def forward(self, call: Call) -> Array:
        """Returns the value after the last part."""
        return np.concatenate([_forward(piece)[-1].y for piece in _pieces(call)])

    def decide(self, call: Call) -> list[_Run]:
        """Returns the backward pass of each piece; the parts make their decisions in it."""
        return _backward(call)

    def backward(self, call: Call) -> Array:
        """Returns the derivative before the first part."""
        runs = call.decision if call.updates else _backward(call)
        return np.concatenate([dx for dx, _, _ in runs])

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns the sums over the pieces of the gradients of the parts."""
        first, *others = (gradient for _, gradient, _ in call.decision)
        return {name: sum((each[name] for each in others), first[name]) for name in first}

    def backward_statistics(self, call: Call) -> dict[str, Any]:
        """Returns the statistics that the parts store, in StoreStats and backward."""
        changed: dict[str, Any] = {}
        for _, _, statistics in call.decision:
            changed |= statistics
        return changed


def _pieces(call: Call) -> Iterator[Call]:
    """Yields the call for max_rows_process rows at a time; the last piece may have fewer."""
    step = call.component.max_rows_process
    step = step if step > 0 else call.rows_in
    for begin in range(0, call.rows_in, step):
        rows = slice(begin, begin + step)
        x, y, dy = call.x[rows], call.y[rows], call.dy[rows]
        yield attrs.evolve(call, x=x, y=y, dy=dy, rows_in=len(x), rows_out=len(x))


def _forward(call: Call) -> list[Call]:
    """Returns the calls of the parts, each with its input, its memo and its output."""
    calls: list[Call] = []
    x = call.x
    for number, part in enumerate(call.component.components):
        f, name = formula_of(part), f"{call.name}.{number}"
        statistics = _of_part(call.statistics, number)
        this = attrs.evolve(
            call, component=part, statistics=statistics, name=name, x=x, memo=None, decision=None
        )
        this = attrs.evolve(this, memo=f.memo(this))
        this = attrs.evolve(this, y=f.forward(this))
        calls.append(this)
        x = this.y
    return calls


def _of_part(fields: Mapping[str, Any], number: int) -> dict[str, Any]:
    prefix = f"{number}."
    return {
        name.removeprefix(prefix): value
        for name, value in fields.items()
        if name.startswith(prefix)
    }


def _backward(call: Call) -> list[_Run]:
    """Runs all pieces backward; each piece sees the statistics of the piece before."""
    runs = []
    changed: dict[str, Any] = {}
    for piece in _pieces(call):
        run = _backward_of_piece(piece.with_statistics(changed))
        runs.append(run)
        changed |= run[2]
    return runs


def _backward_of_piece(call: Call) -> _Run:
    dx = call.dy
    gradient: dict[str, Array] = {}
    statistics: dict[str, Any] = {}
    for number, this in reversed(list(enumerate(_forward(call)))):
        f, this = formula_of(this.component), attrs.evolve(this, dy=dx)
        changed: dict[str, Any] = {}
        if call.updates and this.has(ComponentProperties.STORES_STATS):
            changed |= f.statistics(this)
            this = this.with_statistics(changed)
        if call.updates:
            this = attrs.evolve(this, decision=f.decide(this))
        dx = f.backward(this)
        if call.updates:
            changed |= f.backward_statistics(this)
        statistics |= {f"{number}.{name}": value for name, value in changed.items()}
        of_part = f.gradient(this) if this.has(ComponentProperties.UPDATABLE) else {}
        gradient |= {f"{number}.{name}": array for name, array in of_part.items()}
    return dx, gradient, statistics
