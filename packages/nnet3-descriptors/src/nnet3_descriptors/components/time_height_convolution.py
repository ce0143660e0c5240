"""Convolution over time and over height, a second dimension within the columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnet3_descriptors.components.declaration import base, initial, natural_gradient
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.fields import (
    Array,
    integer,
    integer_pairs,
    integers,
    matrix,
    real,
    vector,
)
from nnet3_descriptors.components.declaration.info import items, mean_stddev, root_mean_square
from nnet3_descriptors.components.declaration.properties import CONTIGUOUS, TRAINED
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component
from nnet3_descriptors.components.index_rules.time_offsets import TimeOffsetRules
from nnet3_descriptors.text import parse_integer

Offsets = tuple[tuple[int, int], ...]

_LARGEST_RANK = 80


def _image_items(component: Any) -> str:
    """Returns the text of `info` about the images; it starts with a blank, not a comma."""
    sizes = ("num_filters_in", "num_filters_out", "height_in", "height_out", "height_subsample_out")
    offsets = " ".join(f"{time},{height}" for time, height in component.offsets)
    required = ",".join(map(str, component.required_time_offsets))
    return (
        items(component, sizes).removeprefix(",")
        + f", {{time,height}}-offsets=[{offsets}], required-time-offsets=[{required}]"
        + items(component, ("input_dim", "output_dim"))
    )


def _natural_gradient_items(component: Any) -> str:
    used = component.use_natural_gradient
    text = f", use-natural-gradient={used:d}"
    if used:
        text += items(component, ("num_minibatches_history", "rank_in", "rank_out", "alpha_in"))
    return text


def _default_rank_in(component: Any) -> int:
    # The bias counts as a column.
    return int(min(_LARGEST_RANK, (component.linear_params.shape[1] + 2) // 2))


@component
class TimeHeightConvolutionComponent(TimeOffsetRules, base.UpdatableComponent):
    """y(t, h) = bias_params + sum over i of W_i x(t + time offset i, s h + height offset i).

    x(t, h) and y(t, h) are the columns of time t that belong to height h, one for each filter:
    column h * num_filters + f. s is height_subsample_out. Heights that x does not have count as 0,
    and so do times at which there is no input, unless they are required.

    Attributes:
        num_filters_in: Number of filters of x.
        num_filters_out: Number of filters of y.
        height_in: Number of heights of x.
        height_out: Number of heights of y.
        height_subsample_out: Distance in x of heights that are neighbours in y.
        offsets: The pairs (time offset, height offset), ascending and distinct.
        required_time_offsets: The time offsets at which there has to be an input; ascending.
        linear_params: (num_filters_out, num_filters_in * len(offsets)), the W_i side by side.
        bias_params: (num_filters_out,).
        max_memory_mb: Bound on temporary memory, in megabytes.
        num_minibatches_history: The number of minibatches after which the natural gradient forgets.
    """

    PROPERTIES = TRAINED | CONTIGUOUS | Property.REORDERS_INDEXES
    INFO = (
        *base.UpdatableComponent.COMMON_INFO,
        _image_items,
        "linear_params",
        "bias_params",
        "num_params",
        "max_memory_mb",
        _natural_gradient_items,
    )

    num_filters_in: int = integer(minimum=1, token="<Model> <ConvolutionModel> <NumFiltersIn>")
    num_filters_out: int = integer(minimum=1)
    height_in: int = integer(minimum=1)
    height_out: int = integer(minimum=1)
    height_subsample_out: int = integer(default=1, minimum=1)
    offsets: Offsets = integer_pairs()
    required_time_offsets: tuple[int, ...] = integers(default=lambda self: self.time_offsets)
    linear_params: Array = matrix(
        parameter=True,
        token="</ConvolutionModel> <LinearParams>",
        shape=("num_filters_out", "num_weights"),
        info="filter-params",
        show=root_mean_square,
    )
    bias_params: Array = vector(parameter=True, shape=("num_filters_out",), show=mean_stddev)
    max_memory_mb: float = real(default=200.0, above=0.0)
    use_natural_gradient: bool = natural_gradient.use_natural_gradient()
    num_minibatches_history: float = natural_gradient.num_minibatches_history()
    alpha_in: float = natural_gradient.alpha(token="<AlphaInOut>", info="alpha")
    alpha_out: float = natural_gradient.alpha(token="")
    rank_in: int = natural_gradient.rank_in(token="<RankInOut>", default=_default_rank_in)
    rank_out: int = natural_gradient.rank_out(token="")

    def check(self) -> None:
        """Raises NetworkError if offsets and heights do not fit each other."""
        self.require(
            len(self.offsets) > 0 and self.offsets == tuple(sorted(set(self.offsets))),
            f"'offsets' must be ascending, distinct and at least one, got {self.offsets}",
        )
        required = self.required_time_offsets
        self.require(
            len(required) > 0
            and set(required) <= set(self.time_offsets)
            and required == tuple(sorted(set(required))),
            f"'required_time_offsets' must be some of {self.time_offsets}, ascending and distinct, "
            f"got {required}",
        )
        self._check_heights()

    def _check_heights(self) -> None:
        """Raises NetworkError if an offset, or an output height, always lies outside the input."""
        with_input = []
        for time, height in self.offsets:
            first = max(0, -(height // self.height_subsample_out))
            last = (self.height_in - 1 - height) // self.height_subsample_out
            self.require(
                first <= min(last, self.height_out - 1),
                f"the (time, height) offset {(time, height)} is outside the input at all heights",
            )
            if time in self.required_time_offsets:
                with_input.append((first, last))
        reached = 0
        for first, last in sorted(with_input):
            if first <= reached:
                reached = max(reached, last + 1)
        self.require(
            reached >= self.height_out,
            f"output height {reached} has no input at the required time offsets",
        )

    @property
    def time_offsets(self) -> tuple[int, ...]:
        """The distinct time offsets, ascending."""
        return tuple(sorted({time for time, _ in self.offsets}))

    @property
    def num_weights(self) -> int:
        """Number of weights of an output filter."""
        return self.num_filters_in * len(self.offsets)

    num_params = base.derived("Number of trainable values.", lambda self: self.num_parameters)
    input_dim = base.input_columns(lambda self: self.num_filters_in * self.height_in)
    output_dim = base.output_columns(lambda self: self.num_filters_out * self.height_out)

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns offsets and initial parameters."""
        offsets = _offsets(config)
        filters_out = config.integer("num-filters-out", minimum=1)
        filters_in = config.integer("num-filters-in", minimum=1)
        num_weights = filters_in * len(offsets)
        stddev = config.real("param-stddev", -1.0)
        bias_stddev = config.real("bias-stddev", 0.0, minimum=0.0)
        if config.boolean("init-unit", False):
            linear = _unit_params(config, offsets, filters_in, filters_out)
        else:
            stddev = stddev if stddev >= 0 else 1 / math.sqrt(num_weights)
            linear = initial.normal(rng, (filters_out, num_weights), stddev)
        return {
            "offsets": offsets,
            "linear_params": linear,
            "bias_params": initial.normal(rng, filters_out, bias_stddev),
        }


def _offsets(config: ConfigLine) -> Offsets:
    """Returns the pairs that 'offsets' lists, or all of a time offset and a height offset."""
    if not config.has("offsets"):
        times, heights = (_ascending(config, f"{axis}-offsets") for axis in ("time", "height"))
        return tuple((time, height) for time in times for height in heights)
    return config.parsed("offsets", _pairs, "a list 'time,height;time,height;...'")


def _pairs(text: str) -> Offsets:
    pairs = [tuple(map(parse_integer, pair.split(","))) for pair in text.split(";")]
    return tuple(sorted((time, height) for time, height in pairs))


def _ascending(config: ConfigLine, key: str) -> tuple[int, ...]:
    values = config.integers(key)
    if not values or values != tuple(sorted(set(values))):
        message = f"'{key}' must be ascending, distinct and at least one, got '{config.text(key)}'"
        raise config.error(message, key)
    return values


def _unit_params(
    config: ConfigLine, offsets: Offsets, num_filters_in: int, num_filters_out: int
) -> Array:
    """Returns parameters with which the output equals the input."""
    if num_filters_in != num_filters_out or (0, 0) not in offsets:
        raise config.error(
            "'init-unit' needs as many filters in as out, and the offset (0, 0)", "init-unit"
        )
    params = initial.filled((num_filters_out, len(offsets), num_filters_in), 0.0)
    np.fill_diagonal(params[:, offsets.index((0, 0))], 1.0)
    return params.reshape(num_filters_out, -1)
