"""Means and standard deviations over time: extraction of sums, and pooling of these."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.declaration import base, fields
from nnet3_descriptors.components.declaration.properties import AnyWithin, ClosedForm
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component
from nnet3_descriptors.components.index_rules import windows
from nnet3_descriptors.indexes import IndexArray, Mask, Splits, T, rows_around
from nnet3_descriptors.limits import check_limit


@windows.precomputed
class StatisticsExtractionPrecomputedIndexes(base.PrecomputedIndexes):
    """Which rows of the input are summed.

    Attributes:
        forward_indexes: (rows out, 2), the first input row of each sum and the one behind the last.
        backward_indexes: (rows in,), the output row to which each input row contributes; empty if
            there is no backward computation.
    """

    forward_indexes: windows.RowArray = windows.row_array(2)
    backward_indexes: windows.RowArray = windows.row_array()

    @property
    def counts(self) -> windows.RowArray:
        """Number of rows in each sum, (rows out,)."""
        counts: windows.RowArray = self.forward_indexes[:, 1] - self.forward_indexes[:, 0]
        return counts

    def misfit(self, component: Any, rows_in: int, rows_out: int, *, backward: bool) -> str | None:
        """Returns a message if the number of rows of a side, or a row, does not fit."""
        misfit = _misfit_of_sums(self.forward_indexes, rows_in, rows_out)
        if misfit is None and backward:
            misfit = windows.wrong_count(
                "input rows", len(self.backward_indexes), rows_in
            ) or windows.no_such_row("output row", self.backward_indexes, rows_out)
        return misfit


@windows.precomputed
class StatisticsPoolingPrecomputedIndexes(base.PrecomputedIndexes):
    """Which rows of the input are summed.

    Attributes:
        forward_indexes: (rows out, 2), the first input row of each sum and the one behind the last.
        backward_indexes: (rows in, 2), the first output row to which each input row contributes and
            the one after the last; empty if there is no backward computation.
    """

    forward_indexes: windows.RowArray = windows.row_array(2)
    backward_indexes: windows.RowArray = windows.row_array(2)

    def misfit(self, component: Any, rows_in: int, rows_out: int, *, backward: bool) -> str | None:
        """Returns a message if the number of rows of a side, or a range of rows, does not fit."""
        misfit = _misfit_of_sums(self.forward_indexes, rows_in, rows_out)
        if misfit is None and backward:
            misfit = windows.wrong_count(
                "input rows", len(self.backward_indexes), rows_in
            ) or windows.no_such_range("output rows", self.backward_indexes, rows_out)
        return misfit


def _misfit_of_sums(ranges: windows.RowArray, rows_in: int, rows_out: int) -> str | None:
    return windows.wrong_count("output rows", len(ranges), rows_out) or windows.no_such_range(
        "input rows", ranges, rows_in
    )


@base.component_family
class StatisticsFamily(base.Component):
    """Sums over the existing times of one sequence."""

    INFO = ("input_dim", "output_dim")

    def is_computable(
        self, output_indexes: IndexArray, splits: Splits, input_indexes: IndexArray, available: Mask
    ) -> tuple[Mask, Mask]:
        """Returns which rows have any input, and as used all existing inputs."""
        available_before = np.concatenate([[0], np.cumsum(available)])
        computable = available_before[splits[1:]] > available_before[splits[:-1]]
        return computable, available.copy()

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        """Returns both in the order of n, then x, then t, so that each sum is over a range."""
        return (
            input_indexes[windows.sequence_order(input_indexes)],
            output_indexes[windows.sequence_order(output_indexes)],
        )

    def reorder_repeated_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray, int, int]:
        """Returns the same for a minibatch of equal sequences, which follow one another."""
        inputs, outputs = self.reorder_indexes(input_indexes, output_indexes)
        return inputs, outputs, len(inputs), len(outputs)

    def precompute_repeated_indexes(
        self,
        input_indexes: IndexArray,
        output_indexes: IndexArray,
        need_backprop: bool,
        num_sequences: int,
    ) -> base.PrecomputedIndexes:
        """Returns the same for a minibatch of equal sequences, from the rows of the first."""
        first: Any = self.precompute_indexes(input_indexes, output_indexes, need_backprop)
        repeated: base.PrecomputedIndexes = attrs.evolve(
            first,
            forward_indexes=_repeated(first.forward_indexes, num_sequences, len(input_indexes)),
            backward_indexes=_repeated(first.backward_indexes, num_sequences, len(output_indexes)),
        )
        return repeated


def _repeated(rows: windows.RowArray, num_sequences: int, distance: int) -> windows.RowArray:
    """Returns row numbers of the first sequence, then those of each other, `distance` further."""
    shift = np.arange(num_sequences, dtype=np.int32) * np.int32(distance)
    repeated: windows.RowArray = rows + shift.reshape(-1, *([1] * rows.ndim))
    return repeated.reshape(-1, *rows.shape[1:])


@component
class StatisticsExtractionComponent(StatisticsFamily):
    """Count, sum and sum of squares of the frames in each period of time.

    The output at time t is that of the period that t lies in; periods begin at multiples of
    output_period. Its columns are the count, the sums, and with include_variance the sums of
    squares.

    Attributes:
        input_dim: Number of columns of the input.
        input_period: Distance of the times of the input.
        output_period: Length of a period, and distance of the times of the output.
        include_variance: Whether the output has sums of squares.
    """

    INDEXES = StatisticsExtractionPrecomputedIndexes

    input_dim: int = fields.integer(minimum=1)
    input_period: int = fields.integer(default=1, minimum=1)
    output_period: int = fields.integer(default=1, minimum=1)
    include_variance: bool = fields.boolean(default=True, token="<IncludeVarinance>")

    def check(self) -> None:
        """Raises NetworkError if the periods do not fit each other."""
        self.require(
            self.output_period % self.input_period == 0,
            f"'output_period' must be a multiple of {self.input_period}, got {self.output_period}",
        )
        frames = self.output_period // self.input_period
        check_limit("offsets", frames, f"{self.type}: the frames of a period")

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        properties = Property.PROPAGATE_ADDS | Property.REORDERS_INDEXES
        return properties | Property.BACKPROP_NEEDS_INPUT if self.include_variance else properties

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return 1 + self.input_dim * (2 if self.include_variance else 1)

    @property
    def modulus(self) -> int:
        """Shifting t by multiples of this at the output shifts the needed input likewise."""
        return self.output_period

    def _period_starts(self, output_indexes: IndexArray) -> NDArray[np.int64]:
        return windows.times(output_indexes) // self.output_period * self.output_period

    def input_dependencies(self, output_indexes: IndexArray) -> tuple[Splits, IndexArray]:
        """Returns all times of each output's period.

        Raises:
            LimitError: there are more input rows than `Limits.reads`.
            NetworkError: a period has a t beyond 32 bits.
        """
        offsets = np.arange(0, self.output_period, self.input_period)
        reader = f"{self.type} with periods of {self.output_period} frames"
        return rows_around(output_indexes, self._period_starts(output_indexes), offsets, reader)

    def closed_form(self) -> ClosedForm:
        """Returns, for each place of a row in its period, the offsets of the whole period."""
        length, step = self.output_period, self.input_period
        return tuple(AnyWithin(range(-place, length - place, step)) for place in range(length))

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> StatisticsExtractionPrecomputedIndexes:
        """Returns the ranges of input rows that are summed.

        Raises:
            NetworkError: two rows of the output lie in the same period.
        """
        begin = self._period_starts(output_indexes)
        ranges = windows.time_ranges(
            input_indexes, output_indexes, begin, begin + self.output_period
        )
        self.require(
            (ranges[1:, 0] >= ranges[:-1, 1]).all(),
            "the times of the output must lie in different periods; "
            f"round them to multiples of {self.output_period}",
        )
        rows = np.arange(len(ranges), dtype=np.int32)
        return StatisticsExtractionPrecomputedIndexes(
            forward_indexes=ranges,
            backward_indexes=np.repeat(rows, np.diff(ranges)[:, 0])
            if need_backprop
            else windows.NO_ROWS,
        )


@component
class StatisticsPoolingComponent(StatisticsFamily):
    """Means, and standard deviations, over a window of sums of StatisticsExtractionComponent.

    The columns of the input are a count, sums and perhaps sums of squares. The columns of the
    output are the logarithm of the count, repeated, and the other sums divided by the count; with
    output_stddevs the mean squares become standard deviations.

    Attributes:
        input_dim: Number of columns of the input.
        input_period: Distance of the times of the input, and of the output.
        left_context: The frames of the window before the time of the output.
        right_context: The frames of the window after it.
        num_log_count_features: Number of columns with the logarithm of the count.
        output_stddevs: Whether the output has standard deviations.
        variance_floor: Least variance.
    """

    INDEXES = StatisticsPoolingPrecomputedIndexes
    BACKPROP_NEEDS_EXACT_VALUES = True  # a variance of 0 is raised to the floor

    input_dim: int = fields.integer(minimum=1)
    input_period: int = fields.integer(default=1, minimum=1)
    left_context: int = fields.integer(minimum=0)
    right_context: int = fields.integer(minimum=0)
    num_log_count_features: int = fields.integer(default=0, minimum=0)
    output_stddevs: bool = fields.boolean(default=False)
    variance_floor: float = fields.real(default=1.0e-10)

    def check(self) -> None:
        """Raises NetworkError if a value makes no sense."""
        for name in ("left_context", "right_context"):
            context = getattr(self, name)
            self.require(
                context % self.input_period == 0,
                f"'{name}' must be a multiple of {self.input_period}, got {context}",
            )
        self.require(
            self.left_context + self.right_context > 0,
            "'left_context' and 'right_context' must not both be 0",
        )
        window = (self.left_context + self.right_context) // self.input_period + 1
        check_limit("offsets", window, f"{self.type}: the frames of the window")
        self.require(
            0.0 < self.variance_floor < 1.0,
            f"'variance_floor' must be above 0 and below 1, got {self.variance_floor:g}",
        )
        self.require(
            not self.output_stddevs or self.input_dim % 2 == 1,
            f"'input_dim' must be odd if 'output_stddevs' is true, got {self.input_dim}",
        )

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        properties = Property.REORDERS_INDEXES | Property.BACKPROP_ADDS
        if self.output_stddevs or self.num_log_count_features > 0:
            properties |= Property.BACKPROP_NEEDS_OUTPUT
        if self.num_log_count_features == 0:
            properties |= Property.BACKPROP_NEEDS_INPUT
        return properties

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return self.input_dim - 1 + self.num_log_count_features

    @property
    def modulus(self) -> int:
        """Shifting t by multiples of this at the output shifts the needed input likewise."""
        return self.input_period

    def input_dependencies(self, output_indexes: IndexArray) -> tuple[Splits, IndexArray]:
        """Returns all times of each output's window.

        Outputs at other times than multiples of input_period have no input and cannot be computed.

        Raises:
            LimitError: there are more input rows than `Limits.reads`.
            NetworkError: a window has a t beyond 32 bits.
        """
        offsets = np.arange(-self.left_context, self.right_context + 1, self.input_period)
        on_grid = output_indexes[:, T] % self.input_period == 0
        reader = f"{self.type} with a window from {-self.left_context} to {self.right_context}"
        rows = output_indexes[on_grid]
        splits, needed = rows_around(rows, windows.times(rows), offsets, reader)
        return splits[np.concatenate([[0], np.cumsum(on_grid)])], needed

    def closed_form(self) -> ClosedForm:
        """Returns the window, of rows at multiples of input_period."""
        window = range(-self.left_context, self.right_context + 1, self.input_period)
        return (AnyWithin(window), *[None] * (self.input_period - 1))

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> StatisticsPoolingPrecomputedIndexes:
        """Returns the ranges of input rows that are summed, and of output rows that they reach."""
        time_out, time_in = windows.times(output_indexes), windows.times(input_indexes)
        left, right = self.left_context, self.right_context
        return StatisticsPoolingPrecomputedIndexes(
            forward_indexes=windows.time_ranges(
                input_indexes, output_indexes, time_out - left, time_out + right + 1
            ),
            backward_indexes=windows.time_ranges(
                output_indexes, input_indexes, time_in - right, time_in + left + 1
            )
            if need_backprop
            else windows.NO_RANGES,
        )
