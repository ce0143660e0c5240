"""Elementwise nonlinearities and softmax, which keep statistics of their activations."""

from typing import Any

from nnet3_descriptors.components.declaration.base import Component, component_family
from nnet3_descriptors.components.declaration.fields import Array, double, integer, real, vector
from nnet3_descriptors.components.declaration.info import item, number, summarize_vector
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
