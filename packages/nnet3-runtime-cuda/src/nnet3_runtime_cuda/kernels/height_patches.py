"""Patches: for each output height the input at all offsets, side by side."""

from __future__ import annotations

import itertools

import attrs
import numpy as np
from nnet3_descriptors.components import TimeHeightConvolutionComponent

from nnet3_runtime_cuda.operations import Array, Operations


@attrs.frozen
class PatchCopy:
    """Columns of patches that are columns of the input, for a range of output heights.

    For each such height h the columns column <= c < column + width of its patch are the columns of
    the input from first + (h - height) * step on, at one time offset.

    Attributes:
        time: Number of the time offset.
        height: The first output height.
        height_end: Behind the last output height.
        column: The first column in the patch.
        width: Number of columns.
        first: The first column of the input, for the first height.
        step: Distance in the input of the columns of neighbouring output heights.
    """

    time: int
    height: int
    height_end: int
    column: int
    width: int
    first: int
    step: int

    def windows(self, x: Array) -> Array:
        """The columns of x that are taken, as (rows, heights, width); windows may overlap."""
        rows, columns = x.strides
        return np.lib.stride_tricks.as_strided(
            x[:, self.first :],
            shape=(len(x), self.height_end - self.height, self.width),
            strides=(rows, self.step * columns, columns),
        )

    def target(self, patches: Array) -> Array:
        """The same columns of patches: (rows, heights, width), a view."""
        columns = slice(self.column, self.column + self.width)
        return patches[:, self.height : self.height_end, columns]


class HeightPatches:
    """Patches of some rows at some time offsets, (rows, height_out, columns).

    Heights that the input does not have are zero in every patch.

    Attributes:
        columns: Number of columns of a patch.
    """

    def __init__(self, component: TimeHeightConvolutionComponent, *, num_times: int) -> None:
        """Plans the copies for the first `num_times` time offsets."""
        self._height_out = component.height_out
        self._filters_in = component.num_filters_in
        times = component.time_offsets[:num_times]
        self.columns = component.num_filters_in * sum(t in times for t, _ in component.offsets)
        self._copies = [copy for copy in _patch_copies(component) if copy.time < num_times]
        # The output heights for which the input has all heights.
        heights = {height for time, height in component.offsets if time in times}
        self._whole = _heights_within(component, min(heights), max(heights))

    def memory(self, tape: Operations, rows: int, *, is_zeroed: bool) -> Array:
        """Scratch memory for the patches of `rows` rows.

        Args:
            tape: Records that it is set to zero.
            rows: Number of rows.
            is_zeroed: Whether patches will be copied there: then missing heights are zero.
        """
        patches = tape.scratch(rows, self._height_out, self.columns)
        if is_zeroed:
            for gap in (patches[:, : self._whole.start], patches[:, self._whole.stop :]):
                if gap.size:
                    tape.fill(0.0, gap)
        return patches

    def record(self, tape: Operations, parts: list[Array], patches: Array) -> None:
        """Records that patches are copied together.

        Args:
            tape: Records the copies.
            parts: For each time offset the rows of the input, (rows, columns).
            patches: See `memory`.
        """
        for copy in self._copies:
            tape.copy(copy.windows(parts[copy.time]), copy.target(patches))

    def record_scatter(self, tape: Operations, patches: Array, parts: list[Array]) -> None:
        """Records that patches are added to the input where they would come from.

        Windows that overlap are added one offset in height after another.
        """
        for copy in self._copies:
            width = copy.width if copy.width <= copy.step else self._filters_in
            for start in range(0, copy.width, width):
                piece = attrs.evolve(
                    copy, column=copy.column + start, width=width, first=copy.first + start
                )
                windows = piece.windows(parts[copy.time])
                tape.add(windows, piece.target(patches), windows)


def _patch_copies(c: TimeHeightConvolutionComponent) -> list[PatchCopy]:
    """How patches are put together from the input, in few pieces.

    Offsets of one time whose heights follow one another lie side by side in the patch and in the
    input. So they are copied together, at the output heights at which all of them exist.
    """
    times = c.time_offsets
    copies = []
    for (time, _), group in itertools.groupby(
        enumerate(c.offsets), key=lambda item: (item[1][0], item[1][1] - item[0])
    ):
        numbered = list(group)
        start, low = numbered[0][0], numbered[0][1][1]
        high = numbered[-1][1][1]
        inner = _heights_within(c, low, high)
        pieces = [(start, low, high, inner)]
        for number, (_, height) in numbered:
            whole = _heights_within(c, height, height)
            pieces += [(number, height, height, part) for part in _outside(whole, inner)]
        copies += [
            _patch_copy(c, times.index(time), number, first, last, heights)
            for number, first, last, heights in pieces
            if len(heights)
        ]
    return copies


def _heights_within(c: TimeHeightConvolutionComponent, low: int, high: int) -> range:
    """The output heights for which the input has all heights from offset low to offset high."""
    first = max(0, -(low // c.height_subsample_out))
    last = min(c.height_out - 1, (c.height_in - 1 - high) // c.height_subsample_out)
    return range(first, max(first, last + 1))


def _outside(whole: range, inner: range) -> list[range]:
    """The parts of a range that lie before and behind another."""
    if not len(inner):
        return [whole]
    return [range(whole.start, inner.start), range(inner.stop, whole.stop)]


def _patch_copy(
    c: TimeHeightConvolutionComponent, time: int, number: int, low: int, high: int, heights: range
) -> PatchCopy:
    filters = c.num_filters_in
    return PatchCopy(
        time=time,
        height=heights.start,
        height_end=heights.stop,
        column=number * filters,
        width=(high - low + 1) * filters,
        first=(heights.start * c.height_subsample_out + low) * filters,
        step=c.height_subsample_out * filters,
    )
