"""The heights of a convolution: as patches, with a product for each height, or in tiles.

A patch holds for an output height the input at all offsets, side by side. Minimal filtering
computes the heights of a tile together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
from nnet3_descriptors.components import TimeHeightConvolutionComponent

from nnet3_runtime_cuda.kernels.time_tiles import FEW_POINTS, MinimalFiltering, minimal_filtering
from nnet3_runtime_cuda.operations import Array, Operations


class PatchCopy(NamedTuple):
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
        self._whole = heights_within(component, min(heights), max(heights))

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
                piece = copy._replace(
                    column=copy.column + start, width=width, first=copy.first + start
                )
                windows = piece.windows(parts[copy.time])
                tape.add(windows, piece.target(patches), windows)


class HeightRun(NamedTuple):
    """Offsets of one time whose heights follow one another.

    Attributes:
        time: Number of the time offset.
        low: The first height offset.
        high: The last height offset.
        columns: The columns of the parameters, and of patches: num_filters_in for each offset.
    """

    time: int
    low: int
    high: int
    columns: slice


def height_runs(c: TimeHeightConvolutionComponent) -> list[HeightRun]:
    """The offsets of a convolution as runs."""
    runs, filters, times = [], c.num_filters_in, c.time_offsets
    for _, group in itertools.groupby(
        enumerate(c.offsets), key=lambda item: (item[1][0], item[1][1] - item[0])
    ):
        (number, (time, low)), *others = group
        count = 1 + len(others)
        columns = slice(number * filters, (number + count) * filters)
        runs.append(HeightRun(times.index(time), low, low + count - 1, columns))
    return runs


def _patch_copies(c: TimeHeightConvolutionComponent) -> list[PatchCopy]:
    """How patches are put together from the input, in few pieces.

    Offsets of a run lie side by side in the patch and in the input. So they are copied together, at
    the output heights at which all of them exist.
    """
    copies, filters = [], c.num_filters_in
    for run in height_runs(c):
        inner = heights_within(c, run.low, run.high)
        pieces = [(run, inner)]
        for number, height in enumerate(range(run.low, run.high + 1)):
            column = run.columns.start + number * filters
            single = HeightRun(run.time, height, height, slice(column, column + filters))
            whole = heights_within(c, height, height)
            pieces += [(single, part) for part in _outside(whole, inner)]
        copies += [_patch_copy(c, each, heights) for each, heights in pieces if len(heights)]
    return copies


def heights_within(c: TimeHeightConvolutionComponent, low: int, high: int) -> range:
    """The output heights for which the input has all heights from offset low to offset high."""
    first = max(0, -(low // c.height_subsample_out))
    last = min(c.height_out - 1, (c.height_in - 1 - high) // c.height_subsample_out)
    return range(first, max(first, last + 1))


def _outside(whole: range, inner: range) -> list[range]:
    """The parts of a range that lie before and behind another."""
    if not len(inner):
        return [whole]
    return [range(whole.start, inner.start), range(inner.stop, whole.stop)]


def _patch_copy(c: TimeHeightConvolutionComponent, run: HeightRun, heights: range) -> PatchCopy:
    filters = c.num_filters_in
    return PatchCopy(
        time=run.time,
        height=heights.start,
        height_end=heights.stop,
        column=run.columns.start,
        width=run.columns.stop - run.columns.start,
        first=(heights.start * c.height_subsample_out + run.low) * filters,
        step=c.height_subsample_out * filters,
    )


class UntiledHeights:
    """Output heights, each with one product: of a patch. See `HeightTiles`.

    Attributes:
        num_products: 1.
        taps: (1, 1), one: patches are multiplied by the parameters as they are.
        used: The columns of the input that the output depends on: all.
    """

    num_products = 1
    used = slice(None)

    def __init__(
        self, component: TimeHeightConvolutionComponent, dtype: np.dtype[np.floating]
    ) -> None:
        """Plans the patches of one time offset; those of the others are equal."""
        self.taps = np.ones((1, 1), dtype)
        self._input_dim = component.num_filters_in * component.height_in
        self._height_out = component.height_out
        self._patches = HeightPatches(component, num_times=1)

    def frames(self, tape: Operations, *shape: int, is_set: bool) -> Array:
        """Scratch memory for rows of the input: (*shape, input_dim)."""
        return tape.scratch(*shape, self._input_dim)

    def inside(self, frames: Array) -> Array:
        """All columns of the frames."""
        return frames

    def input_memory(self, tape: Operations, rows: int, parts: int, *, is_set: bool) -> Array:
        """Scratch memory for patches: (1, rows, height_out, columns of a patch).

        Args:
            tape: Records zeros where a patch reaches beyond the input.
            rows: Number of rows.
            parts: 1.
            is_set: Whether the caller will write the patches.
        """
        return self._patches.memory(tape, rows, is_zeroed=is_set)[None]

    def output_memory(self, tape: Operations, rows: int, filters: int) -> Array:
        """No memory: the products lie where the output does."""
        return tape.scratch(0, 0)

    def output_products(self, memory: Array, output: Array) -> Array:
        """The output itself: (1, rows, height_out, filters)."""
        return output.reshape(1, len(output), self._height_out, -1)

    def record_inputs(self, tape: Operations, frames: Array, products: Array) -> None:
        """Records copies of the patches; frames: (1, rows, input_dim)."""
        self._patches.record(tape, [*frames], products[0])

    def record_input_derivatives(
        self, tape: Operations, products: Array, memory: Array, frames: Array
    ) -> None:
        """Records frames = for each element, the sum of its copies in patches."""
        tape.fill(0.0, frames)
        self._patches.record_scatter(tape, products[0], [*frames])

    def record_outputs(self, tape: Operations, products: Array, output: Array) -> None:
        """Records nothing: the products are the output."""

    def record_output_derivatives(self, tape: Operations, output: Array, products: Array) -> None:
        """Records nothing: the products are the output."""


TAPS = 3
"""Number of height offsets of a convolution that can be tiled."""


class HeightTiles(NamedTuple):
    """The output heights of a convolution with the height offsets low, low + 1 and low + 2.

    A tile is two output heights, which four input heights determine. Some of these lie outside the
    input; so rows of the input are copied to longer rows ("frames") that have zeros there. The
    products have the shape (products, rows, tiles, filters).

    Attributes:
        filtering: The minimal filtering of a tile.
        num_tiles: Number of tiles.
        filters_in: Number of filters of the input.
        used: The columns of the input that the output depends on.
        start: The column of a frame at which the used columns begin.
    """

    filtering: MinimalFiltering
    num_tiles: int
    filters_in: int
    used: slice
    start: int

    @classmethod
    def of(
        cls, c: TimeHeightConvolutionComponent, heights: list[int], dtype: np.dtype[np.floating]
    ) -> Self | None:
        """The tiles of a convolution with these height offsets, or None if it cannot be tiled."""
        low, high = heights[0], heights[-1]
        are_neighbors = heights == list(range(low, high + 1))
        if c.height_subsample_out != 1 or not are_neighbors or len(heights) != TAPS:
            return None
        filtering = minimal_filtering(len(heights), dtype, FEW_POINTS)
        if c.height_out % filtering.num_outputs:
            return None
        first, end = max(0, low), min(c.height_in, c.height_out + high)
        return cls(
            filtering=filtering,
            num_tiles=c.height_out // filtering.num_outputs,
            filters_in=c.num_filters_in,
            used=slice(first * c.num_filters_in, end * c.num_filters_in),
            start=(first - low) * c.num_filters_in,
        )

    @property
    def num_products(self) -> int:
        """Number of products of a tile."""
        return self.filtering.num_products

    @property
    def taps(self) -> Array:
        """(products, height offsets): G, which turns parameters into factors of the products."""
        return self.filtering.taps

    # ---- memory ----

    def frames(self, tape: Operations, *shape: int, is_set: bool) -> Array:
        """Scratch memory for rows of the input: (*shape, columns of a frame).

        Args:
            tape: Records the zeros for heights outside the input.
            *shape: Numbers of rows.
            is_set: Whether the caller will write the rows, which then need the zeros around them.
        """
        heights = self.num_tiles * self.filtering.num_outputs + self.taps.shape[1] - 1
        frames = tape.scratch(*shape, heights * self.filters_in)
        if is_set:
            end = self.start + self.used.stop - self.used.start
            for outside in (frames[..., : self.start], frames[..., end:]):
                tape.fill(0.0, outside)
        return frames

    def inside(self, frames: Array) -> Array:
        """The part of the frames that holds the used columns of the input: a view."""
        return frames[..., self.start : self.start + self.used.stop - self.used.start]

    def input_memory(self, tape: Operations, rows: int, parts: int, *, is_set: bool) -> Array:
        """Scratch memory for B^T x: (products, rows, tiles, parts * filters_in)."""
        return tape.scratch(self.num_products, rows, self.num_tiles, parts * self.filters_in)

    def output_memory(self, tape: Operations, rows: int, filters: int) -> Array:
        """Scratch memory for the products: (products, rows, tiles, filters)."""
        return tape.scratch(self.num_products, rows, self.num_tiles, filters)

    def output_products(self, memory: Array, output: Array) -> Array:
        """The products of as many rows as the output has: a view of the memory."""
        return memory[:, : len(output)]

    # ---- transforms of inputs and outputs, forward and backward ----

    def record_inputs(self, tape: Operations, frames: Array, products: Array) -> None:
        """Records products = B^T x for each tile.

        frames: (parts, rows, columns of a frame); the products hold the parts side by side.
        """
        for frame, target in self._parts(frames, products):
            tape.small_products(
                self.filtering.inputs, self._tiles(frame, self.num_products), target
            )

    def record_input_derivatives(
        self, tape: Operations, products: Array, memory: Array, frames: Array
    ) -> None:
        """Records frames = B times the derivatives of B^T x.

        memory: Scratch, 1-d, with as many elements as the products.
        """
        matrix, size = self.filtering.inputs.T, self.filtering.num_outputs
        width = size * self.num_tiles * self.filters_in
        for frame, source in self._parts(frames, products):
            # The last heights of a tile are the first heights of the next tile.
            rest = memory[: len(frame) * width].reshape(len(frame), width)
            tape.small_products(matrix[:size], source, self._tiles(frame, size))
            tape.small_products(matrix[size:], source, self._tiles(rest, size))
            tape.fill(0.0, frame[:, width:])
            target = frame[:, -width:]
            tape.add(target, rest, target)

    def record_outputs(self, tape: Operations, products: Array, output: Array) -> None:
        """Records output = A^T times the products; output: (rows, columns)."""
        matrix = self.filtering.outputs
        tape.small_products(matrix, products.transpose(1, 2, 0, 3), self._output_tiles(output))

    def record_output_derivatives(self, tape: Operations, output: Array, products: Array) -> None:
        """Records products = A times the derivatives of the output."""
        matrix = self.filtering.outputs.T
        tape.small_products(matrix, self._output_tiles(output), products.transpose(1, 2, 0, 3))

    def _parts(self, frames: Array, products: Array) -> Iterator[tuple[Array, Array]]:
        """Each part of frames, and its products as (rows, tiles, products, filters)."""
        width = self.filters_in
        for number, frame in enumerate(frames):
            part = products[..., number * width : (number + 1) * width]
            yield frame, part.transpose(1, 2, 0, 3)

    def _tiles(self, frame: Array, heights: int) -> Array:
        """The first heights from each tile's start on: (rows, tiles, heights, filters), a view."""
        row, column = frame.strides
        return np.lib.stride_tricks.as_strided(
            frame,
            shape=(len(frame), self.num_tiles, heights, self.filters_in),
            strides=(
                row,
                self.filtering.num_outputs * self.filters_in * column,
                self.filters_in * column,
                column,
            ),
        )

    def _output_tiles(self, output: Array) -> Array:
        """(rows, columns) as (rows, tiles, heights of a tile, filters): a view."""
        return output.reshape(len(output), self.num_tiles, self.filtering.num_outputs, -1)
