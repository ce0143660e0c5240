"""Attention over a window of frames."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors import indexes, limits
from nnet3_descriptors.components.declaration import base, fields, info, properties
from nnet3_descriptors.components.declaration.registry import component
from nnet3_descriptors.components.index_rules.time_offsets import TimeGrid, TimeOffsetRules

_SHOWN_HEADS = 5
"""The number of heads whose average weights `info` shows."""


def _statistics_items(component: Any) -> str:
    """Returns the text of `info` about the weights, if they have been counted."""
    count = component.stats_count
    if count == 0.0:
        return ""
    text = f", entropy={_list(component.entropy_stats / count)}"
    for head, weights in enumerate(component.posterior_stats[:_SHOWN_HEADS] / count):
        text += f" posterior-stats[{head}]={_list(weights)}"
    return f"{text} stats-count={info.number(count)}"


def _list(values: NDArray[np.float64]) -> str:
    return "".join(f"{info.number(float(value))}," for value in values)


@component
class RestrictedAttentionComponent(TimeOffsetRules, base.Component):
    """Each row is a weighted mean of values at times around it (D. Povey et al., 2018).

    For each head the columns of the input are a key (key_dim), a value (value_dim), a query
    (key_dim) and a bias for each time offset (context_dim). The weights are the softmax of
    key_scale query . key + bias, with the keys of the time offsets. The columns of the output are
    the mean of the values and, with output_context, the weights.

    Attributes:
        num_heads: Number of heads.
        key_dim: Number of columns of a key, or query.
        value_dim: Number of columns of a value.
        num_left_inputs: Number of time offsets before 0.
        num_right_inputs: Number of time offsets behind 0.
        time_stride: Distance of the time offsets, in frames.
        num_left_inputs_required: The number of inputs before 0 that must exist.
        num_right_inputs_required: The number of inputs behind 0 that must exist.
        output_context: Whether the output has the weights.
        key_scale: Scale of the products of keys and queries.
        stats_count: Number of frames in the statistics.
        entropy_stats: Sum of the entropy of the weights, (num_heads,), or empty.
        posterior_stats: Sum of the weights, (num_heads, context_dim), or empty.
    """

    PROPERTIES = (
        properties.ComponentProperties.REORDERS_INDEXES
        | properties.ComponentProperties.PROPAGATE_ADDS
        | properties.ComponentProperties.BACKPROP_ADDS
        | properties.ComponentProperties.BACKPROP_NEEDS_INPUT
        | properties.ComponentProperties.STORES_STATS
        | properties.ComponentProperties.USES_MEMO
    )
    INFO = (
        "input_dim",
        "output_dim",
        "num_heads",
        "time_stride",
        "key_dim",
        "value_dim",
        "num_left_inputs",
        "num_right_inputs",
        "context_dim",
        "num_left_inputs_required",
        "num_right_inputs_required",
        "output_context",
        "key_scale",
        _statistics_items,
    )

    num_heads: int = fields.integer(default=1, minimum=1)
    key_dim: int = fields.integer(minimum=1)
    value_dim: int = fields.integer(minimum=1)
    num_left_inputs: int = fields.integer(minimum=0)
    num_right_inputs: int = fields.integer(minimum=0)
    time_stride: int = fields.integer(default=1, minimum=1)
    num_left_inputs_required: int = fields.integer(
        default=lambda self: self.num_left_inputs, unset_below=0, minimum=0
    )
    num_right_inputs_required: int = fields.integer(
        default=lambda self: self.num_right_inputs, unset_below=0, minimum=0
    )
    output_context: bool = fields.boolean(default=True)
    key_scale: float = fields.real(
        default=lambda self: 1.0 / math.sqrt(self.key_dim), unset_below=0.0, maximum=1.0
    )
    stats_count: float = fields.double(default=0.0, minimum=0.0, config=None)
    entropy_stats: NDArray[np.float64] = fields.double_vector(
        default=(), shape=("num_heads",), may_be_empty=True
    )
    posterior_stats: NDArray[np.float64] = fields.double_matrix(
        default=np.empty((0, 0)), shape=("num_heads", "context_dim"), may_be_empty=True
    )

    def check(self) -> None:
        """Raises NetworkError if a value makes no sense."""
        self.require(
            self.num_left_inputs + self.num_right_inputs > 0,
            "'num_left_inputs' and 'num_right_inputs' must not both be 0",
        )
        limits.check_limit("offsets", self.context_dim, f"{self.type}: the frames that it looks at")
        for name in ("num_left_inputs", "num_right_inputs"):
            bound, required = getattr(self, name), getattr(self, f"{name}_required")
            self.require(required <= bound, f"'{name}_required' must be <= {bound}, got {required}")
            furthest = bound * self.time_stride
            self.require(
                furthest <= indexes.INT32_MAX,
                f"'{name}' times 'time_stride' must fit in 32 bits, got {furthest}",
            )
        self.require(self.key_scale > 0.0, f"'key_scale' must be positive, got {self.key_scale:g}")

    @property
    def context_dim(self) -> int:
        """Number of time offsets."""
        return self.num_left_inputs + 1 + self.num_right_inputs

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        return self.num_heads * (2 * self.key_dim + self.value_dim + self.context_dim)

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        weights = self.context_dim if self.output_context else 0
        return self.num_heads * (self.value_dim + weights)

    @property
    def time_offsets(self) -> tuple[int, ...]:
        """The offsets, in frames; ascending."""
        return self._offsets(self.num_left_inputs, self.num_right_inputs)

    @property
    def required_time_offsets(self) -> tuple[int, ...]:
        """The offsets at which an input is required; at the other offsets it may be missing."""
        return self._offsets(self.num_left_inputs_required, self.num_right_inputs_required)

    def _offsets(self, left: int, right: int) -> tuple[int, ...]:
        stride = self.time_stride
        return tuple(range(-left * stride, right * stride + 1, stride))

    def output_grid(self, output_indexes: indexes.IndexArray) -> TimeGrid:
        """Returns the times of the output, padded so that they are as close as those of the input.

        The query of a row is in the row of the input at the same time, so both go in equal steps.
        """
        grid = TimeGrid.of(output_indexes)
        return grid.refined(math.gcd(grid.step, self.time_stride))
