"""Identities that cut derivatives which have grown too large on their way back."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from nnet3_descriptors.components import (
    BackpropTruncationComponent,
    BackpropTruncationPrecomputedIndexes,
    ClipGradientComponent,
)
from numpy.typing import NDArray

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula

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


@attrs.frozen(kw_only=True, eq=False)
class Repair:
    """The counts and the decision of one backward pass of ClipGradientComponent.

    Attributes:
        count: Number of rows seen so far, with these; rows count only if norms are clipped.
        num_clipped: Number of rows that were clipped.
        repairs: Whether to drive the input back towards 0.
    """

    count: int
    num_clipped: int
    repairs: bool


@formula(ClipGradientComponent)
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

    def decide(self, call: Call) -> Repair:
        """Counts clipped rows, and says whether to repair."""
        c = call.component
        counts = c.norm_based_clipping and c.clipping_threshold > 0
        count = c.count + (call.rows_out if counts else 0)
        num_clipped = c.num_clipped + self._clipped(call)[1]
        threshold = c.self_repair_clipped_proportion_threshold
        can_repair = c.clipping_threshold > 0 and c.self_repair_scale != 0 and threshold < 1
        is_due = can_repair and call.chance(REPAIR_PROBABILITY) and count > 0
        # In single precision, like the threshold.
        repairs = is_due and bool(np.float32(num_clipped / count) > np.float32(threshold))
        return Repair(count=count, num_clipped=num_clipped, repairs=repairs)

    def backward(self, call: Call) -> Array:
        """Returns dy, clipped, plus the repair."""
        c = call.component
        dx = self._clipped(call)[0]
        if not call.updates or not call.decision.repairs:
            return dx
        excess = np.sign(call.x) * np.maximum(np.abs(call.x) - c.self_repair_target, 0)
        before, length = norms(dx).mean(), norms(excess).mean()
        if length > 0:
            part = call.decision.num_clipped / call.decision.count
            scale = c.self_repair_scale / REPAIR_PROBABILITY * part
            dx = dx - scale * before / length * excess
        after = norms(dx).mean()
        return dx * (before / after) if after > 0 else dx

    def backward_statistics(self, call: Call) -> dict[str, Any]:
        """Returns the counts of rows, of backward passes, and of passes with a repair."""
        c, decision = call.component, call.decision
        return {
            "count": decision.count,
            "num_clipped": decision.num_clipped,
            "num_backpropped": c.num_backpropped + (c.clipping_threshold > 0),
            "num_self_repaired": c.num_self_repaired + decision.repairs,
        }


@formula(BackpropTruncationComponent)
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
        assert isinstance(call.indexes, BackpropTruncationPrecomputedIndexes)
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
        assert isinstance(call.indexes, BackpropTruncationPrecomputedIndexes)
        return {
            "count": c.count + call.rows_out,
            "num_clipped": c.num_clipped + self._clipped(call)[1],
            "num_zeroed": c.num_zeroed + int(self._is_zeroed(call).sum()),
            "count_zeroing_boundaries": c.count_zeroing_boundaries
            + len(call.indexes.boundary_rows),
        }
