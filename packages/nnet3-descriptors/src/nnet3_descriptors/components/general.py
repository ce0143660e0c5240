"""Components that look at indexes: distribution over x, truncated recurrence, constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnet3_descriptors.components.declaration import base, fields, info, initial, natural_gradient
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component
from nnet3_descriptors.components.index_rules import windows
from nnet3_descriptors.indexes import IndexArray, N, Splits, X


@windows.precomputed
class DistributePrecomputedIndexes(base.PrecomputedIndexes):
    """For each row of the output, the block of columns of the input that it copies.

    Attributes:
        source_blocks: (rows out,), the block, counted along the rows of the input: block b of
            row r is r * blocks in a row + b.
    """

    source_blocks: windows.RowArray = windows.row_array()

    def misfit(self, component: Any, rows_in: int, rows_out: int, *, backward: bool) -> str | None:
        """Returns a message if the number of output rows, or a block of the input, does not fit."""
        return windows.wrong_count(
            "output rows", len(self.source_blocks), rows_out
        ) or windows.no_such_row("block", self.source_blocks, rows_in * component.num_blocks)


@component
class DistributeComponent(base.Component):
    """y at (n, t, x) = block x mod k of the columns of the input at (n, t, floor(x / k)).

    Attributes:
        input_dim: Number of columns of the input: k blocks of those of the output.
        output_dim: Number of columns of the output.
    """

    INDEXES = DistributePrecomputedIndexes

    input_dim: int = fields.integer(minimum=1)
    output_dim: int = fields.integer(minimum=1)

    def check(self) -> None:
        """Raises NetworkError if the columns cannot be divided into blocks."""
        self.require_divides("output_dim", "input_dim")

    @property
    def num_blocks(self) -> int:
        """Number of blocks of columns of the input."""
        return self.input_dim // self.output_dim

    def input_dependencies(self, output_indexes: IndexArray) -> tuple[Splits, IndexArray]:
        """Returns the index that the block of each row belongs to."""
        needed = output_indexes.copy()
        needed[:, X] //= self.num_blocks
        return np.arange(len(output_indexes) + 1, dtype=np.int64), needed

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> DistributePrecomputedIndexes:
        """Returns the block that each row of the output copies."""
        _, needed = self.input_dependencies(output_indexes)
        rows = windows.find_rows(input_indexes, needed)
        blocks = output_indexes[:, X] % self.num_blocks
        return DistributePrecomputedIndexes(source_blocks=rows * self.num_blocks + blocks)


@windows.precomputed
class BackpropTruncationPrecomputedIndexes(base.PrecomputedIndexes):
    """The rows whose derivatives may be set to zero.

    Attributes:
        boundary_rows: (boundaries,), rows whose recurrence crosses a multiple of zeroing_interval.
    """

    boundary_rows: windows.RowArray = windows.row_array()

    def misfit(self, component: Any, rows_in: int, rows_out: int, *, backward: bool) -> str | None:
        """Returns a message if the number of rows, or a row, does not fit."""
        return windows.wrong_count("input rows", rows_out, rows_in) or windows.no_such_row(
            "row", self.boundary_rows, rows_out
        )


def _truncation_items(component: Any) -> str:
    c = component
    clipped = c.num_clipped / c.count if c.count > 0 else 0.0
    boundaries = c.count_zeroing_boundaries
    zeroed = c.num_zeroed / boundaries if boundaries > 0 else 0.0
    whole = int(boundaries) if np.isfinite(boundaries) else boundaries
    return (
        f", count={info.number(c.count, 3)}"
        + info.items(c, ("recurrence_interval", "clipping_threshold"))
        + info.item("clipped-proportion", clipped)
        + info.items(c, ("zeroing_threshold", "zeroing_interval"))
        + info.item("zeroed-proportion", zeroed)
        + info.item("count-zeroing-boundaries", whole)
    )


@component
class BackpropTruncationComponent(base.Component):
    """y = scale x; derivatives that have grown too large are cut on their way back in time.

    A row of the derivative whose norm exceeds clipping_threshold is scaled down to it. A row whose
    recurrence crosses a boundary, and whose norm exceeds zeroing_threshold, is set to zero. There
    is a boundary every zeroing_interval frames, at different places for each sequence.

    Attributes:
        dim: Number of columns.
        scale: Multiplies values and derivatives.
        clipping_threshold: Largest norm of a row of the derivative; 0 for no bound.
        zeroing_threshold: Norm above which the derivative is set to zero at a boundary; 0 for none.
        zeroing_interval: Distance of the boundaries, in frames.
        recurrence_interval: The distance that the recurrent connection goes back, in frames.
        num_clipped: Number of rows that were scaled down.
        num_zeroed: Number of rows that were set to zero.
        count: Number of rows processed.
        count_zeroing_boundaries: Number of rows at boundaries.
    """

    PROPERTIES = Property.PROPAGATE_IN_PLACE | Property.BACKPROP_IN_PLACE
    INDEXES = BackpropTruncationPrecomputedIndexes
    INFO = ("dim", "scale", _truncation_items)

    dim: int = fields.integer(minimum=1)
    scale: float = fields.real(default=1.0, absent=1.0)
    clipping_threshold: float = fields.real(default=30.0, minimum=0.0)
    zeroing_threshold: float = fields.real(default=15.0, minimum=0.0)
    zeroing_interval: int = fields.integer(default=20, minimum=1)
    recurrence_interval: int = fields.integer(default=1, minimum=1)
    num_clipped: float = fields.double(default=0.0, token="<NumElementsClipped>", config=None)
    num_zeroed: float = fields.double(default=0.0, token="<NumElementsZeroed>", config=None)
    count: float = fields.double(default=0.0, token="<NumElementsProcessed>", config=None)
    count_zeroing_boundaries: float = fields.double(
        default=0.0, token="<NumZeroingBoundaries>", config=None
    )

    def check(self) -> None:
        """Raises NetworkError if the scale is not valid."""
        self.require(
            0.0 < self.scale < math.inf, f"'scale' must be positive and finite, got {self.scale:g}"
        )

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> BackpropTruncationPrecomputedIndexes:
        """Returns the rows at boundaries; only the backward computation looks at them."""
        if not need_backprop:
            return BackpropTruncationPrecomputedIndexes(boundary_rows=windows.NO_ROWS)
        # The number of the sequence shifts its boundaries, so that not all lie at its beginning.
        time = windows.times(output_indexes) - output_indexes[:, N]
        interval = self.zeroing_interval
        crosses = time // interval != (time - self.recurrence_interval) // interval
        return BackpropTruncationPrecomputedIndexes(
            boundary_rows=crosses.nonzero()[0].astype(np.int32)
        )


def _constant_items(component: Any) -> str:
    return f", {component.type}" + info.items(component, ("output_dim",))


@component
class ConstantComponent(windows.NoInputRules, base.UpdatableComponent):
    """y = output, in each row; there is no input.

    Attributes:
        output: The constant, (output_dim,).
        is_updatable: Whether training changes it.
    """

    INFO = (
        *base.UpdatableComponent.COMMON_INFO,
        _constant_items,
        "is_updatable",
        "use_natural_gradient",
        "output",
    )

    output: fields.Array = fields.vector(parameter=True, show=info.mean_stddev)
    is_updatable: bool = fields.boolean(default=True)
    use_natural_gradient: bool = natural_gradient.use_natural_gradient()

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        return Property.UPDATABLE if self.is_updatable else Property(0)

    @property
    def input_dim(self) -> int:
        """Number of columns that the descriptor of the unused input has to have."""
        return self.output_dim

    output_dim = base.output_columns(lambda self: len(self.output))

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial constant."""
        return {"output": initial.normal_vector(config, rng, "output-dim", "output")}
