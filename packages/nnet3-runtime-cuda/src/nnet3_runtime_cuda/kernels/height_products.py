"""A convolution as products that take their factors from the input, for all heights at once.

Such a product is a stack, with a matrix for each height of the output: the rows of the input, and
of them the columns that this height depends on.
"""

from __future__ import annotations

import itertools
from typing import Self

import attrs
import numpy as np
from nnet3_descriptors.components import PrecomputedIndexes, TimeHeightConvolutionComponent

from nnet3_runtime_cuda.kernels.heights import heights_within
from nnet3_runtime_cuda.kernels.parameters import rows_at_offsets
from nnet3_runtime_cuda.operations import Array, Operations


@attrs.frozen
class HeightRun:
    """Offsets of one time whose heights follow one another.

    Attributes:
        time: Number of the time offset.
        height: The first height offset.
        columns: The columns of the parameters, with num_filters_in for each offset.
    """

    time: int
    height: int
    columns: slice

    @classmethod
    def all_of(cls, c: TimeHeightConvolutionComponent) -> list[Self]:
        """The offsets of a convolution as runs."""
        runs = []
        for _, group in itertools.groupby(
            enumerate(c.offsets), key=lambda item: (item[1][0], item[1][1] - item[0])
        ):
            (number, (time, height)), *others = group
            begin, end = number, number + 1 + len(others)
            columns = slice(begin * c.num_filters_in, end * c.num_filters_in)
            runs.append(cls(c.time_offsets.index(time), height, columns))
        return runs


class HeightProducts:
    """Forward and backward passes of a convolution by stacked products.

    Forward, and for the gradient, the input is copied once, with zeros for the heights that it does
    not have: then offsets of one time and neighbouring heights share a product.
    """

    def __init__(self, component: TimeHeightConvolutionComponent) -> None:
        """Plans the products."""
        c = self._component = component
        heights = [height for _, height in c.offsets]
        last = (c.height_out - 1) * c.height_subsample_out + max(heights)
        self._before, self._behind = max(0, -min(heights)), max(0, last + 1 - c.height_in)
        self._runs = HeightRun.all_of(c)

    def record_forward(
        self,
        tape: Operations,
        x: Array,
        indexes: PrecomputedIndexes | None,
        weights: Array,
        bias: Array,
        y: Array,
    ) -> None:
        """Records y. The weights are (columns of the parameters, num_filters_out)."""
        parts = rows_at_offsets(self._padded(tape, x), indexes, len(y))
        out = self._by_height(y, self._component.height_out).transpose(1, 0, 2)
        for number, run in enumerate(self._runs):
            tape.matmul(self._windows(parts, run), weights[run.columns], out, add=number > 0)
        tape.add(out, bias, out)

    def record_gradient(
        self,
        tape: Operations,
        x: Array,
        indexes: PrecomputedIndexes | None,
        dy: Array,
        gradient: Array,
    ) -> None:
        """Records that the gradient of the parameters is added to `gradient`.

        Each height has a gradient of its own at first.
        """
        parts = rows_at_offsets(self._padded(tape, x), indexes, len(dy))
        transposed = self._by_height(dy, self._component.height_out).transpose(1, 2, 0)
        of_heights = tape.scratch(len(transposed), *gradient.shape)
        for run in self._runs:
            tape.matmul(transposed, self._windows(parts, run), of_heights[:, :, run.columns])
        total = tape.scratch(1, gradient.size)
        tape.column_sum(of_heights.reshape(len(of_heights), -1), total)
        tape.add(gradient, total.reshape(gradient.shape), gradient)

    def record_input_derivative(
        self, tape: Operations, dy: Array, parameters: Array, parts: list[Array]
    ) -> None:
        """Records that the derivative of the input is added to its rows at each time offset.

        Neighbouring heights of the input would meet in one product, so each offset has its own.
        """
        c = self._component
        filters, step = c.num_filters_in, c.height_subsample_out
        by_height = self._by_height(dy, c.height_out)
        for number, (time, height) in enumerate(c.offsets):
            heights = heights_within(c, height, height)
            dx = self._by_height(parts[c.time_offsets.index(time)], c.height_in)
            dx = dx[:, heights.start * step + height :: step][:, : len(heights)]
            columns = slice(number * filters, (number + 1) * filters)
            given = by_height[:, heights.start : heights.stop]
            tape.matmul(given, parameters[:, columns], dx, add=True)

    def _by_height(self, a: Array, heights: int) -> Array:
        """Rows as (rows, heights, filters): a view."""
        return np.lib.stride_tricks.as_strided(
            a,
            shape=(len(a), heights, a.shape[1] // heights),
            strides=(a.strides[0], a.shape[1] // heights * a.strides[1], a.strides[1]),
        )

    def _padded(self, tape: Operations, x: Array) -> Array:
        """The input as (rows, heights, filters), with zeros before and behind its heights."""
        x = self._by_height(x, self._component.height_in)
        if not (self._before or self._behind):
            return x
        rows, heights, filters = x.shape
        end = self._before + heights
        padded = tape.scratch(rows, end + self._behind, filters)
        for gap in (padded[:, : self._before], padded[:, end:]):
            if gap.size:
                tape.fill(0.0, gap)
        tape.copy(x, padded[:, self._before : end])
        return padded

    def _windows(self, parts: list[Array], run: HeightRun) -> Array:
        """What the heights of the output see of the padded input: (height_out, rows, columns)."""
        part, c = parts[run.time], self._component
        rows, height, column = part.strides
        return np.lib.stride_tricks.as_strided(
            part[:, self._before + run.height :],
            shape=(c.height_out, len(part), run.columns.stop - run.columns.start),
            strides=(c.height_subsample_out * height, rows, column),
            writeable=False,
        )
