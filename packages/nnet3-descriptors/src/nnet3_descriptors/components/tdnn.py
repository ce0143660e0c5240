"""The time-delay layer: an affine map of the input at several time offsets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnet3_descriptors.components.declaration import base, info, natural_gradient
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.fields import Array, integers, matrix, vector
from nnet3_descriptors.components.declaration.initial import dims, normal
from nnet3_descriptors.components.declaration.properties import TRAINED
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component
from nnet3_descriptors.components.index_rules.time_offsets import TimeOffsetRules


def _bias_items(component: Any) -> str:
    if component.bias_params.size == 0:
        return info.item("has-bias", False)
    return info.mean_stddev("bias", component.bias_params)


def _natural_gradient_items(component: Any) -> str:
    if not component.use_natural_gradient:
        return info.item("use-natural-gradient", False)
    shown = ("rank_in", "rank_out", "num_samples_history", "update_period", "alpha_in", "alpha_out")
    return info.items(component, shown)


@component
class TdnnComponent(TimeOffsetRules, base.UpdatableComponent):
    """y(t) = sum over i of W_i x(t + time_offsets[i]), plus bias_params.

    Attributes:
        time_offsets: The offsets, in frames; distinct.
        linear_params: (output_dim, input_dim * len(time_offsets)), the W_i side by side.
        bias_params: (output_dim,), or empty for none.
    """

    PROPERTIES = TRAINED | Property.REORDERS_INDEXES
    INFO = (
        *base.UpdatableComponent.COMMON_INFO,
        "orthonormal_constraint",
        "time_offsets",
        "linear_params",
        _bias_items,
        _natural_gradient_items,
    )

    time_offsets: tuple[int, ...] = integers()
    linear_params: Array = matrix(parameter=True, show=info.root_mean_square_and_norms)
    bias_params: Array = vector(parameter=True, shape=("output_dim",), may_be_empty=True)
    orthonormal_constraint: float = natural_gradient.orthonormal_constraint(
        written="always", shown="unless default"
    )
    use_natural_gradient: bool = natural_gradient.use_natural_gradient()
    num_samples_history: float = natural_gradient.num_samples_history()
    alpha_in: float = natural_gradient.alpha(token="<AlphaInOut>", old_tokens=("<Alpha>",))
    alpha_out: float = natural_gradient.alpha(token="", absent=lambda read: read["alpha_in"])
    rank_in: int = natural_gradient.rank_in(token="<RankInOut>")
    rank_out: int = natural_gradient.rank_out(token="")

    def check(self) -> None:
        """Raises NetworkError if offsets and parameters do not fit each other."""
        count = len(self.time_offsets)
        self.require(
            count > 0 and len(set(self.time_offsets)) == count,
            f"'time_offsets' must be distinct and at least one, got {self.time_offsets}",
        )
        rows, cols = self.linear_params.shape
        self.require(
            rows > 0 and cols > 0 and cols % count == 0,
            f"'linear_params' must have {count} blocks of columns, got the shape {(rows, cols)}",
        )

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        return self.PROPERTIES if self.bias_params.size else _WITHOUT_BIAS

    input_dim = base.input_columns(
        lambda self: self.linear_params.shape[1] // len(self.time_offsets)
    )
    output_dim = base.output_columns(lambda self: len(self.linear_params))

    @property
    def update_period(self) -> int:
        """Number of minibatches between updates of the natural-gradient estimate; fixed."""
        return 4

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns offsets and initial parameters."""
        time_offsets = config.integers("time-offsets")
        output_dim, input_dim = dims(config)
        spliced_dim = input_dim * max(1, len(time_offsets))
        stddev = config.real("param-stddev", -1.0)
        bias_mean = config.real("bias-mean", 0.0)
        bias_stddev = config.real("bias-stddev", 1.0, minimum=0.0)
        linear = normal(
            rng, (output_dim, spliced_dim), stddev if stddev >= 0 else 1 / math.sqrt(spliced_dim)
        )
        use_bias = config.boolean("use-bias", True)
        return {
            "time_offsets": time_offsets,
            "linear_params": linear,
            "bias_params": normal(rng, output_dim if use_bias else 0, bias_stddev, bias_mean),
        }


_WITHOUT_BIAS = TdnnComponent.PROPERTIES | Property.PROPAGATE_ADDS
