"""Nonlinearities, which keep statistics of activations, and normalisation, by batch or by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.declaration import base, fields, info, initial, kinds
from nnet3_descriptors.components.declaration.base import Component, component_family
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.fields import Array, double, integer, real, vector
from nnet3_descriptors.components.declaration.info import item, number, summarize_vector
from nnet3_descriptors.components.declaration.properties import CONTIGUOUS, IN_PLACE
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component

_UNSET_THRESHOLD = -1000.0
"""A self-repair threshold that stands for the default of the type."""


def _activation_items(component: Any) -> str:
    """Returns the text of `info` about the activations, if they have been counted."""
    if not (component.count > 0.0 and component.value_avg.size == component.dim):
        return ""
    processed = component.num_dims_processed
    proportion = component.num_dims_self_repaired / processed if processed > 0 else 0.0
    text = f", count={number(component.count, 3)}" + item("self-repaired-proportion", proportion)
    text += f", value-avg={summarize_vector(component.value_avg)}"
    if component.deriv_avg.size == component.dim:
        text += f", deriv-avg={summarize_vector(component.deriv_avg)}"
    return text


def _output_derivative_items(component: Any) -> str:
    """Returns the text of `info` about the derivatives at the output."""
    if not (component.oderiv_count > 0.0 and component.oderiv_rms.size == component.dim):
        return ""
    summary = summarize_vector(component.oderiv_rms)
    return f", oderiv-rms={summary}" + item("oderiv-count", component.oderiv_count)


@component_family
class NonlinearComponent(Component):
    """A nonlinearity whose input and output have the same number of columns.

    Attributes:
        dim: Number of columns.
        block_dim: Columns are repeated blocks of this many, for statistics and self-repair.
        value_avg: Average of the output, (dim,), or of a RectifiedLinearComponent (block_dim,), or
            empty.
        deriv_avg: Average derivative of the nonlinearity, likewise.
        count: Number of frames in those averages.
        oderiv_rms: Root mean square of the derivative of the objective at the output, (dim,) or
            empty.
        oderiv_count: Number of frames in it.
        num_dims_self_repaired: Number of columns that were repaired, summed over minibatches.
        num_dims_processed: Number of columns that could have been.
        self_repair_lower_threshold: Bound of the statistic below which a column is repaired;
            -1000 for the default of the type.
        self_repair_upper_threshold: Bound above which it is repaired.
        self_repair_scale: Size of the repair; 0 for none.
    """

    INFO = (
        "dim",
        "block_dim",
        "self_repair_lower_threshold",
        "self_repair_upper_threshold",
        "self_repair_scale",
        _activation_items,
        _output_derivative_items,
    )

    dim: int = integer(minimum=1)
    block_dim: int = integer(default=lambda self: self.dim, minimum=1, written="unless default")
    value_avg: Array = vector(default=())
    deriv_avg: Array = vector(default=())
    count: float = double(default=0.0, config=None)
    oderiv_rms: Array = vector(default=(), absent=())
    oderiv_count: float = double(default=0.0, absent=0.0, config=None)
    num_dims_self_repaired: float = double(default=0.0, absent=0.0, config=None)
    num_dims_processed: float = double(default=0.0, absent=0.0, config=None)
    self_repair_lower_threshold: float = real(default=_UNSET_THRESHOLD, written="unless default")
    self_repair_upper_threshold: float = real(default=_UNSET_THRESHOLD, written="unless default")
    self_repair_scale: float = real(default=0.0, written="unless default")

    @property
    def _statistics_sizes(self) -> tuple[int, ...]:
        return 0, self.dim

    def check(self) -> None:
        """Raises NetworkError if blocks or statistics do not fit the number of columns."""
        self.require_divides("block_dim", "dim")
        for name in ("value_avg", "deriv_avg", "oderiv_rms"):
            size = getattr(self, name).size
            self.require(
                size in self._statistics_sizes,
                f"'{name}' must have {self.dim} elements or none, got {size}",
            )


_ELEMENTWISE = (
    Property.SIMPLE
    | Property.BACKPROP_NEEDS_OUTPUT
    | Property.PROPAGATE_IN_PLACE
    | Property.STORES_STATS
)


@component
class SigmoidComponent(NonlinearComponent):
    """y = 1 / (1 + exp(-x))."""

    PROPERTIES = _ELEMENTWISE


@component
class TanhComponent(NonlinearComponent):
    """y = tanh(x)."""

    PROPERTIES = _ELEMENTWISE


@component
class RectifiedLinearComponent(NonlinearComponent):
    """y = max(0, x)."""

    PROPERTIES = _ELEMENTWISE
    BACKPROP_NEEDS_EXACT_VALUES = True  # whether the output is 0

    @property
    def _statistics_sizes(self) -> tuple[int, ...]:
        return 0, self.dim, self.block_dim

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        blocks = self.block_dim != self.dim
        return self.PROPERTIES | Property.INPUT_CONTIGUOUS if blocks else self.PROPERTIES


@component
class SoftmaxComponent(NonlinearComponent):
    """y = exp(x) / sum(exp(x)), over the columns of each row."""

    PROPERTIES = _ELEMENTWISE | Property.BACKPROP_IN_PLACE


@component
class LogSoftmaxComponent(NonlinearComponent):
    """y = x - log(sum(exp(x))), over the columns of each row."""

    PROPERTIES = Property.SIMPLE | Property.BACKPROP_NEEDS_OUTPUT | Property.STORES_STATS


def _statistics_items(component: Any) -> str:
    """Returns the text of `info` about the statistics, if there are any."""
    if not component.count > 0:
        return ""
    stddev = np.sqrt(np.maximum(component.stats_var, 0.0))
    return (
        f", data-mean={info.summarize_vector(component.stats_mean)}"
        f", data-stddev={info.summarize_vector(stddev)}"
    )


@component
class BatchNormComponent(base.Component):
    """Gives each column of the output the mean 0 and the root mean square `target_rms`.

    Attributes:
        dim: Number of columns.
        block_dim: Columns are repeated blocks of this many, which share their statistics.
        epsilon: Added to the variance.
        target_rms: Root mean square of the output.
        test_mode: Whether the component uses the stored statistics, not those of the minibatch.
        count: Number of rows in the statistics; 0 if there are none.
        stats_mean: Mean of the input, (block_dim,).
        stats_var: Variance of the input, (block_dim,).
    """

    PROPERTIES = IN_PLACE | Property.BACKPROP_NEEDS_OUTPUT
    INFO = ("dim", "block_dim", "epsilon", "target_rms", "count", "test_mode", _statistics_items)

    dim: int = fields.integer(minimum=1)
    block_dim: int = fields.integer(default=lambda self: self.dim, unset_below=0, minimum=1)
    epsilon: float = fields.real(default=1.0e-03)
    target_rms: float = fields.real(default=1.0)
    test_mode: bool = fields.boolean(default=False)
    count: float = fields.double(default=0.0, config=None)
    stats_mean: fields.Array = fields.vector(
        default=lambda self: initial.filled(self.block_dim, 0.0), shape=("block_dim",)
    )
    stats_var: fields.Array = fields.vector(
        default=lambda self: initial.filled(self.block_dim, 0.0), shape=("block_dim",)
    )

    def check(self) -> None:
        """Raises NetworkError if a value makes no sense."""
        self.require_divides("block_dim", "dim")
        self.require(self.epsilon > 0.0, f"'epsilon' must be positive, got {self.epsilon:g}")
        self.require(
            self.target_rms > 0.0, f"'target_rms' must be positive, got {self.target_rms:g}"
        )

    @property
    def scale(self) -> NDArray[np.float64]:
        """(block_dim,), the factor of each column in test mode: y = scale x + offset.

        It is target_rms / sqrt(stats_var + epsilon), with negative variances as 0.
        """
        variance = np.maximum(self.stats_var, 0.0).astype(np.float64)
        scale: NDArray[np.float64] = self.target_rms / np.sqrt(variance + self.epsilon)
        return scale

    @property
    def offset(self) -> NDArray[np.float64]:
        """(block_dim,), the term of each column in test mode: -scale stats_mean."""
        with np.errstate(invalid="ignore"):  # an infinite scale of a mean of 0 is NaN
            return -self.scale * self.stats_mean

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        properties = self.PROPERTIES if self.test_mode else _WITH_STATISTICS
        return properties | CONTIGUOUS if self.block_dim < self.dim else properties


_WITH_STATISTICS = BatchNormComponent.PROPERTIES | Property.USES_MEMO | Property.STORES_STATS


@component
class NormalizeComponent(base.Component):
    """Gives each row, or each block of a row, the same root mean square.

    Attributes:
        input_dim: Number of columns of the input.
        block_dim: Columns are blocks of this many.
        target_rms: Root mean square of the output.
        add_log_stddev: The output has one more column for each block: the logarithm of the root
            mean square of the input.
    """

    BACKPROP_NEEDS_EXACT_VALUES = True  # a row of zeros has the floor as its norm
    INFO = ("input_dim", "output_dim", "target_rms", "add_log_stddev", "block_dim")
    # It once was a nonlinearity, with the statistics of one.
    OBSOLETE = (
        ("<ValueAvg>", kinds.VECTOR),
        ("<DerivAvg>", kinds.VECTOR),
        ("<Count>", kinds.Real()),
    )

    input_dim: int = fields.integer(old_tokens=("<Dim>",), minimum=1)
    block_dim: int = fields.integer(
        default=lambda self: self.input_dim, minimum=1, written="unless default"
    )
    target_rms: float = fields.real(default=1.0, absent=1.0)
    add_log_stddev: bool = fields.boolean(default=False, absent=False)

    def check(self) -> None:
        """Raises NetworkError if a value makes no sense."""
        self.require_divides("block_dim", "input_dim")
        self.require(
            self.target_rms > 0.0, f"'target_rms' must be positive, got {self.target_rms:g}"
        )

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        properties = Property.SIMPLE | Property.BACKPROP_NEEDS_INPUT | Property.BACKPROP_ADDS
        if not self.add_log_stddev:
            properties |= Property.PROPAGATE_IN_PLACE | Property.BACKPROP_IN_PLACE
        if self.block_dim != self.input_dim:
            properties |= CONTIGUOUS
        return properties

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return self.input_dim + (self.input_dim // self.block_dim if self.add_log_stddev else 0)

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the number of columns, which may be called 'dim' too."""
        key = "dim" if config.has("dim") else "input-dim"
        return {"input_dim": config.integer(key, minimum=1)}
