"""Rules of components that read at offsets in time, for every frame or on a grid.

Rows of a grid are ordered by t and, for each t, by sequence: the distinct (n, x) in ascending
order. Rows of the grid that are missing in the given indexes become padding, with t = NO_TIME.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors import errors, limits
from nnet3_descriptors.components.declaration import base, properties
from nnet3_descriptors.components.index_rules.windows import (
    no_such_row,
    precomputed,
    times,
    wrong_count,
)
from nnet3_descriptors.indexes import (
    INT32_MAX,
    NO_TIME,
    IndexArray,
    Mask,
    N,
    Splits,
    T,
    X,
    distinct,
    rows_around,
)


@attrs.frozen
class TimeGrid:
    """Times in equal steps.

    Attributes:
        start: The first time.
        step: Difference of neighbouring times; 0 if there is only one time.
        count: Number of times.
    """

    start: int
    step: int
    count: int

    @property
    def last(self) -> int:
        """The last time."""
        return self.start + (self.count - 1) * self.step

    @classmethod
    def of(cls, indexes: IndexArray) -> TimeGrid:
        """Returns the smallest grid that holds the times of indexes (N, 3), padding left out."""
        times = indexes[:, T].astype(np.int64)
        steps = times[1:] - times[:-1]
        first = int(times[0])
        step = int(steps[0]) if len(steps) else 0
        # The rows of one sequence mostly are a grid. (To count is faster than to ask for all.)
        if step > 0 and first != NO_TIME and np.count_nonzero(steps == step) == len(steps):
            return cls(first, step, len(times))
        first = int(times.min())
        if first == NO_TIME:
            times = times[times != NO_TIME]
            first = int(times.min())
            steps = times[1:] - times[:-1]
        last = int(times.max())
        # A number that divides the differences of neighbours, in any order, divides all
        # differences.
        step = int(np.gcd.reduce(steps)) if len(steps) else 0
        return cls(first, step, (last - first) // step + 1 if step else 1)

    def refined(self, step: int) -> TimeGrid:
        """Returns the grid from the same first to the same last time, in smaller steps."""
        return TimeGrid(self.start, step, (self.last - self.start) // step + 1)


def sequences(indexes: IndexArray) -> NDArray[np.int64]:
    """Returns the distinct (n, x) of indexes (N, 3), ascending, each packed into one number."""
    n, x = indexes[:, N], indexes[:, X]
    size = len(indexes)
    if np.count_nonzero(n == n[0]) == np.count_nonzero(x == x[0]) == size:
        return np.array([(int(n[0]) << 32) + int(x[0])])
    found: NDArray[np.int64] = distinct(_pack(indexes))
    return found


def _pack(indexes: IndexArray) -> NDArray[np.int64]:
    return (indexes[:, N].astype(np.int64) << 32) + indexes[:, X]


def grid_indexes(
    indexes: IndexArray, sequences: NDArray[np.int64], grid: TimeGrid, interleave: int = 1
) -> IndexArray:
    """Returns the indexes of all rows of a grid; rows that are not in `indexes` are padding.

    Args:
        indexes: (N, 3) int32; their times are on the grid, their (n, x) among `sequences`.
        sequences: (S,) from `sequences`.
        grid: The times; `interleave` divides their number.
        interleave: Number of neighbouring times of a sequence that follow each other directly, so
            that rows of every interleave-th time have a constant distance.

    Returns:
        (grid.count * S, 3) int32.
    """
    limits.check_limit("rows", grid.count * len(sequences), "the rows of a regular grid of times")
    step = grid.step or 1
    blocks = grid.count // interleave
    present = np.zeros((grid.count, len(sequences)), dtype=bool)
    rows = indexes[indexes[:, T] != NO_TIME]
    time = (rows[:, T].astype(np.int64) - grid.start) // step
    present[time, np.searchsorted(sequences, _pack(rows))] = True
    times = grid.start + step * np.arange(grid.count).reshape(blocks, 1, interleave)
    layout = present.reshape(blocks, interleave, len(sequences)).swapaxes(1, 2)
    result = np.empty((blocks, len(sequences), interleave, 3), dtype=np.int32)
    x = sequences.astype(np.int32)  # the lower half, with its sign
    result[..., N] = ((sequences - x) >> 32)[None, :, None]
    result[..., T] = np.where(layout, times, NO_TIME)
    result[..., X] = x[None, :, None]
    return result.reshape(-1, 3)


@precomputed
class TimeOffsetPrecomputedIndexes(base.PrecomputedIndexes):
    """The places of the input rows for each time offset.

    Row i of the output is computed from the input rows i * row_stride + row_offsets[k], where k
    counts the time offsets.

    Attributes:
        row_stride: Distance of the input rows that belong to neighbouring output rows.
        row_offsets: For each time offset, the input row that belongs to output row 0.
    """

    row_stride: int
    row_offsets: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        """Checks that these are numbers of rows."""
        for name, least, values in (
            ("row_stride", 1, (self.row_stride,)),
            ("row_offsets", 0, self.row_offsets),
        ):
            if not all(least <= value <= INT32_MAX for value in values):
                found = ", ".join(map(str, values))
                raise errors.Nnet3Error(f"'{name}' must be {least} to {INT32_MAX}, got {found}")

    def misfit(self, component: Any, rows_in: int, rows_out: int, *, backward: bool) -> str | None:
        """Returns a message if the number of time offsets, or an input row, does not fit."""
        misfit = wrong_count("time offsets", len(self.row_offsets), len(component.time_offsets))
        if misfit is not None:
            return misfit
        first, last = min(self.row_offsets), max(self.row_offsets)
        ends = np.array([first, last + self.row_stride * (rows_out - 1)], dtype=np.int64)
        return no_such_row("input row", ends, rows_in)


class TimeOffsetRules:
    """The index rules, to be put before Component among the bases of a class."""

    __slots__ = ()

    INDEXES: ClassVar[base.IndexesType] = TimeOffsetPrecomputedIndexes

    @property
    def time_offsets(self) -> tuple[int, ...]:
        """The offsets, in frames; distinct."""
        raise NotImplementedError

    @property
    def required_time_offsets(self) -> tuple[int, ...]:
        """The offsets at which an input is required; at the other offsets it may be missing."""
        return self.time_offsets

    def output_grid(self, output_indexes: IndexArray) -> TimeGrid:
        """Returns the times at which there are rows of the output, some of them for padding."""
        return TimeGrid.of(output_indexes)

    def _grids(self, output_indexes: IndexArray) -> tuple[TimeGrid, TimeGrid, int]:
        """Returns the grids of times of output and input.

        Returns:
            The times of the output; these plus each time offset, and the times between them; and
            the number of input times in a step of the output, which divides their number.
        """
        outputs, offsets = self.output_grid(output_indexes), self.time_offsets
        first, last = min(offsets), max(offsets)
        between_offsets = math.gcd(*(offset - first for offset in offsets))
        step = math.gcd(outputs.step, between_offsets) or 1
        interleave = outputs.step // step or 1
        count = (outputs.last + last - outputs.start - first) // step + 1
        count = -(-count // interleave) * interleave
        return outputs, TimeGrid(outputs.start + first, step, count), interleave

    def input_dependencies(self, output_indexes: IndexArray) -> tuple[Splits, IndexArray]:
        """Returns the index at each time offset, for each output index in turn.

        Raises:
            LimitError: there are more input rows than `Limits.reads`.
            NetworkError: an input would be at a t beyond 32 bits.
        """
        offsets = np.array(self.time_offsets, dtype=np.int64)
        reader = f"{type(self).__name__} with time offsets {offsets.min()} to {offsets.max()}"
        return rows_around(output_indexes, times(output_indexes), offsets, reader)

    def is_computable(
        self, output_indexes: IndexArray, splits: Splits, input_indexes: IndexArray, available: Mask
    ) -> tuple[Mask, Mask]:
        """Returns which rows have all required inputs, and as used all existing inputs of these."""
        at_offsets = available.reshape(len(output_indexes), len(self.time_offsets))
        is_required = np.isin(self.time_offsets, self.required_time_offsets)
        computable: NDArray[np.bool_] = np.logical_and.reduce(at_offsets[:, is_required], axis=1)
        return computable, (at_offsets & computable[:, None]).ravel()

    def closed_form(self) -> properties.ClosedForm:
        """Returns the offsets; all but the required ones are optional."""
        required = set(self.required_time_offsets)
        optional = tuple(offset for offset in self.time_offsets if offset not in required)
        return (properties.AtOffsets(self.time_offsets, optional=optional),)

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        """Returns both on regular grids of times; input rows are interleaved to equal strides."""
        outputs, inputs, interleave = self._grids(output_indexes)
        which = sequences(input_indexes)
        return (
            grid_indexes(input_indexes, which, inputs, interleave),
            grid_indexes(output_indexes, which, outputs),
        )

    def reorder_repeated_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray, int, int]:
        """Returns the same for a minibatch of equal sequences, from the rows of the first."""
        outputs, inputs, interleave = self._grids(output_indexes)
        width = len(sequences(input_indexes))
        is_whole = (
            interleave == 1
            and len(input_indexes) == inputs.count * width
            and len(output_indexes) == outputs.count * width
        )
        if not is_whole:
            input_indexes, output_indexes = self.reorder_indexes(input_indexes, output_indexes)
        return input_indexes, output_indexes, width * interleave, width

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> TimeOffsetPrecomputedIndexes:
        """Returns where the input rows of each time offset lie."""
        return self.precompute_repeated_indexes(input_indexes, output_indexes, need_backprop, 1)

    def precompute_repeated_indexes(
        self,
        input_indexes: IndexArray,
        output_indexes: IndexArray,
        need_backprop: bool,
        num_sequences: int,
    ) -> TimeOffsetPrecomputedIndexes:
        """Returns the same for a minibatch of equal sequences, from the rows of the first."""
        outputs, inputs, interleave = self._grids(output_indexes)
        num_rows = num_sequences * len(sequences(input_indexes))
        row_offsets = []
        for time_offset in self.time_offsets:
            time = (outputs.start + time_offset - inputs.start) // inputs.step
            block, rest = divmod(time, interleave)
            row_offsets.append(block * interleave * num_rows + rest)
        return TimeOffsetPrecomputedIndexes(row_stride=interleave, row_offsets=tuple(row_offsets))
