"""Convolution and max-pooling over rows that are tensors with axes x (time), y and z (filters).

The newer `TimeHeightConvolutionComponent` looks along t instead.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nnet3_descriptors.components.declaration import kinds
from nnet3_descriptors.components.declaration.base import Component, UpdatableComponent
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.fields import Array, declare, integer, matrix, vector
from nnet3_descriptors.components.declaration.info import item, mean_stddev, root_mean_square
from nnet3_descriptors.components.declaration.initial import matrix_from_file, normal
from nnet3_descriptors.components.declaration.properties import TRAINED
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component

if TYPE_CHECKING:
    from nnet3_descriptors.files.reader import Reader
    from nnet3_descriptors.files.writer import Writer

AXIS_ORDERS = ("yzx", "zyx")
"""The orders of the axes of a row, fastest axis first, by their number in files."""


class _AxisOrder(kinds.Kind):
    """The order of the axes, a number in files."""

    expected = f"one of {', '.join(AXIS_ORDERS)}"

    def accepts(self, value: Any) -> bool:
        """Tells whether the value is an order."""
        return value in AXIS_ORDERS

    def read(self, reader: Reader) -> str:
        """Reads a number."""
        start = reader.position
        number = reader.integer()
        if not 0 <= number < len(AXIS_ORDERS):
            reader.fail("unknown order of axes", at=start, expected="0 or 1", found=str(number))
        return AXIS_ORDERS[number]

    def write(self, writer: Writer, value: str) -> None:
        """Writes a number."""
        writer.integer(AXIS_ORDERS.index(value))

    def from_config(self, config: ConfigLine, key: str) -> str:
        """Returns the order."""
        order = config.text(key)
        if order not in AXIS_ORDERS:
            raise config.error(f"'{key}' must be {self.expected}, got '{order}'", key)
        return order


def _axis_order_item(label: str, value: str) -> str:
    return item(label, AXIS_ORDERS.index(value))


def _num_steps(size: int, window: int, step: int) -> int:
    """Returns how many places a window takes that moves in steps over an axis of that size."""
    return 1 + (size - window) // step


@component
class ConvolutionComponent(UpdatableComponent):
    """A convolution along x and y of each row.

    Input columns run through (x, y, z), output columns through (x, y, filter), filter fastest.

    Attributes:
        input_x_dim: Size of the input along x.
        input_y_dim: Size of the input along y.
        input_z_dim: Size of the input along z, and of the filters.
        filt_x_dim: Size of the filters along x.
        filt_y_dim: Size of the filters along y.
        filt_x_step: Step of the filters along x.
        filt_y_step: Step of the filters along y.
        input_vectorization: Order of the axes in an input row, fastest first: "zyx" or "yzx".
        filter_params: (num_filters, filt_x_dim * filt_y_dim * input_z_dim), z fastest.
        bias_params: (num_filters,).
    """

    PROPERTIES = Property.SIMPLE | TRAINED | Property.PROPAGATE_ADDS
    INFO = (
        *UpdatableComponent.COMMON_INFO,
        "input_x_dim",
        "input_y_dim",
        "input_z_dim",
        "filt_x_dim",
        "filt_y_dim",
        "filt_x_step",
        "filt_y_step",
        "input_vectorization",
        "num_filters",
        "filter_params",
        "bias_params",
    )
    REPEATED = (("is_gradient", "bias_params"),)

    input_x_dim: int = integer(token="<InputXDim>", minimum=1)
    input_y_dim: int = integer(token="<InputYDim>", minimum=1)
    input_z_dim: int = integer(token="<InputZDim>", minimum=1)
    filt_x_dim: int = integer(token="<FiltXDim>", minimum=1)
    filt_y_dim: int = integer(token="<FiltYDim>", minimum=1)
    filt_x_step: int = integer(token="<FiltXStep>", minimum=1)
    filt_y_step: int = integer(token="<FiltYStep>", minimum=1)
    input_vectorization: str = declare(
        _AxisOrder(), default="zyx", config="input-vectorization-order", show=_axis_order_item
    )
    filter_params: Array = matrix(
        parameter=True, shape=("num_filters", "filter_dim"), show=root_mean_square
    )
    bias_params: Array = vector(parameter=True, shape=("num_filters",), show=mean_stddev)

    def check(self) -> None:
        """Raises NetworkError if the filters are larger than the input."""
        for axis in "xy":
            size, window = getattr(self, f"input_{axis}_dim"), getattr(self, f"filt_{axis}_dim")
            self.require(window <= size, f"'filt_{axis}_dim' must be <= {size}, got {window}")

    @property
    def num_filters(self) -> int:
        """Number of filters."""
        return len(self.filter_params)

    @property
    def filter_dim(self) -> int:
        """Number of weights of a filter."""
        return self.filt_x_dim * self.filt_y_dim * self.input_z_dim

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        return self.input_x_dim * self.input_y_dim * self.input_z_dim

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return (
            _num_steps(self.input_x_dim, self.filt_x_dim, self.filt_x_step)
            * _num_steps(self.input_y_dim, self.filt_y_dim, self.filt_y_step)
            * self.num_filters
        )

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial filters, from a file with the bias as last column or random."""
        if config.has("matrix"):
            params = matrix_from_file(config, "matrix")
            return {"filter_params": params[:, :-1], "bias_params": params[:, -1]}
        for axis in "xy":
            size = config.integer(f"input-{axis}-dim", minimum=1)
            window = config.integer(f"filt-{axis}-dim", minimum=1)
            step = config.integer(f"filt-{axis}-step", minimum=1)
            if (size - window) % step != 0:
                message = f"'filt-{axis}-step' must divide {size - window}, got {step}"
                raise config.error(message, f"filt-{axis}-step")
        filter_dim = math.prod(
            config.integer(key) for key in ("filt-x-dim", "filt-y-dim", "input-z-dim")
        )
        num_filters = config.integer("num-filters", minimum=1)
        stddev = config.real("param-stddev", 1 / math.sqrt(max(1, filter_dim)), minimum=0.0)
        bias_stddev = config.real("bias-stddev", 1.0, minimum=0.0)
        return {
            "filter_params": normal(rng, (num_filters, filter_dim), stddev),
            "bias_params": normal(rng, num_filters, bias_stddev),
        }


@component
class MaxpoolingComponent(Component):
    """The greatest value of each block of a row that is a tensor, z fastest.

    Attributes:
        input_x_dim: Size of the input along x.
        input_y_dim: Size of the input along y.
        input_z_dim: Size of the input along z.
        pool_x_size: Size of the blocks along x.
        pool_y_size: Size of the blocks along y.
        pool_z_size: Size of the blocks along z.
        pool_x_step: Step of the blocks along x.
        pool_y_step: Step of the blocks along y.
        pool_z_step: Step of the blocks along z.
    """

    PROPERTIES = (
        Property.SIMPLE
        | Property.BACKPROP_NEEDS_INPUT
        | Property.BACKPROP_NEEDS_OUTPUT
        | Property.BACKPROP_ADDS
    )
    BACKPROP_NEEDS_EXACT_VALUES = True  # to find the greatest elements

    input_x_dim: int = integer(token="<InputXDim>", minimum=1)
    input_y_dim: int = integer(token="<InputYDim>", minimum=1)
    input_z_dim: int = integer(token="<InputZDim>", minimum=1)
    pool_x_size: int = integer(token="<PoolXSize>", minimum=1)
    pool_y_size: int = integer(token="<PoolYSize>", minimum=1)
    pool_z_size: int = integer(token="<PoolZSize>", minimum=1)
    pool_x_step: int = integer(token="<PoolXStep>", minimum=1)
    pool_y_step: int = integer(token="<PoolYStep>", minimum=1)
    pool_z_step: int = integer(token="<PoolZStep>", minimum=1)

    def _axes(self) -> tuple[tuple[str, int, int, int], ...]:
        """Returns name, size of the input, size of a block, and step for each axis."""
        return (
            ("x", self.input_x_dim, self.pool_x_size, self.pool_x_step),
            ("y", self.input_y_dim, self.pool_y_size, self.pool_y_step),
            ("z", self.input_z_dim, self.pool_z_size, self.pool_z_step),
        )

    def check(self) -> None:
        """Raises NetworkError unless the blocks cover the input."""
        for axis, size, pool, step in self._axes():
            self.require(pool <= size, f"'pool_{axis}_size' must be <= {size}, got {pool}")
            self.require(step <= pool, f"'pool_{axis}_step' must be <= {pool}, got {step}")
            self.require(
                (size - pool) % step == 0,
                f"'pool_{axis}_step' must divide {size - pool}, got {step}",
            )

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        return math.prod(size for _, size, _, _ in self._axes())

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return math.prod(_num_steps(size, pool, step) for _, size, pool, step in self._axes())
