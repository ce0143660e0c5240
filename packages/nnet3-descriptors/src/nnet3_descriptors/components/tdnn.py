"""The time-delay layer: an affine map of the input at several time offsets."""

import math
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components import natural_gradient
from nnet3_descriptors.components.base import (
    PrecomputedIndexes,
    UpdatableComponent,
    component,
)
from nnet3_descriptors.components.config_line import ConfigLine
from nnet3_descriptors.components.fields import Array, integers, matrix, vector
from nnet3_descriptors.components.info import item, items, mean_stddev, root_mean_square_and_norms
from nnet3_descriptors.components.initial import dims, normal
from nnet3_descriptors.components.properties import ComponentProperties as Property
from nnet3_descriptors.components.time_grid import TimeGrid, grid_indexes, sequences
from nnet3_descriptors.indexes import IndexArray, T


@attrs.frozen(kw_only=True)
class TdnnPrecomputedIndexes(PrecomputedIndexes):
    """Where the input rows of each time offset lie.

    Attributes:
        row_stride: Distance of the input rows that belong to neighbouring output rows.
        row_offsets: For each time offset, the input row that belongs to output row 0.
    """

    row_stride: int
    row_offsets: tuple[int, ...]


def _bias_items(component: Any) -> str:
    if component.bias_params.size == 0:
        return item("has-bias", False)
    return mean_stddev("bias", component.bias_params)


def _natural_gradient_items(component: Any) -> str:
    if not component.use_natural_gradient:
        return item("use-natural-gradient", False)
    shown = ("rank_in", "rank_out", "num_samples_history", "update_period", "alpha_in", "alpha_out")
    return items(component, shown)


@component
class TdnnComponent(UpdatableComponent):
    """y(t) = sum over i of W_i x(t + time_offsets[i]), plus bias_params.

    Attributes:
        time_offsets: The offsets, in frames; distinct.
        linear_params: (output_dim, input_dim * len(time_offsets)), the W_i side by side.
        bias_params: (output_dim,), or empty for none.
    """

    INFO = (
        *UpdatableComponent.COMMON_INFO,
        "orthonormal_constraint",
        "time_offsets",
        "linear_params",
        _bias_items,
        _natural_gradient_items,
    )

    time_offsets: tuple[int, ...] = integers()
    linear_params: Array = matrix(parameter=True, show=root_mean_square_and_norms)
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
        properties = (
            Property.UPDATABLE
            | Property.REORDERS_INDEXES
            | Property.BACKPROP_ADDS
            | Property.BACKPROP_NEEDS_INPUT
        )
        return properties if self.bias_params.size else properties | Property.PROPAGATE_ADDS

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        return int(self.linear_params.shape[1]) // len(self.time_offsets)

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return int(self.linear_params.shape[0])

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

    def input_dependencies(
        self, output_indexes: IndexArray
    ) -> tuple[NDArray[np.int64], IndexArray]:
        """Returns the index at each time offset, for each output index in turn."""
        count = len(self.time_offsets)
        needed = np.repeat(output_indexes, count, axis=0)
        needed[:, T] += np.tile(np.array(self.time_offsets, dtype=np.int32), len(output_indexes))
        return np.arange(len(output_indexes) + 1, dtype=np.int64) * count, needed

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        """Returns both on regular grids of times, input rows so interleaved that strides fit."""
        grid_in, grid_out, interleave = _grids(input_indexes, output_indexes)
        which = sequences(input_indexes)
        return (
            grid_indexes(input_indexes, which, grid_in, interleave),
            grid_indexes(output_indexes, which, grid_out),
        )

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> TdnnPrecomputedIndexes:
        """Returns where the input rows of each time offset lie."""
        grid_in, grid_out, interleave = _grids(input_indexes, output_indexes)
        num_sequences = len(sequences(input_indexes))
        offsets = []
        for time_offset in self.time_offsets:
            # Number of the input time that the first output time needs.
            time = (grid_out.start + time_offset - grid_in.start) // grid_in.step
            block, rest = divmod(time, interleave)
            offsets.append(block * interleave * num_sequences + rest)
        return TdnnPrecomputedIndexes(row_stride=interleave, row_offsets=tuple(offsets))


def _grids(input_indexes: IndexArray, output_indexes: IndexArray) -> tuple[TimeGrid, TimeGrid, int]:
    """Returns the grids of input and output, and how many input times lie in an output step."""
    grid_in, grid_out = TimeGrid.of(input_indexes), TimeGrid.of(output_indexes)
    step_in = grid_in.step or (1 if grid_out.step == 0 else grid_out.step)
    step_out = grid_out.step or step_in
    interleave = step_out // step_in
    count_in = -(-grid_in.count // interleave) * interleave
    return (
        TimeGrid(grid_in.start, step_in, count_in),
        TimeGrid(grid_out.start, step_out, grid_out.count),
        interleave,
    )
