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
from nnet3_runtime_cuda.operations import Array, Tape


class HeightRun(NamedTuple):
    """Offsets of one time whose heights follow one another, for a range of output heights.

    Attributes:
        time: Number of the time offset.
        low: The first height offset.
        columns: The columns of the parameters, and of patches: num_filters_in for each offset.
        heights: The output heights, for which the input has all these heights.
    """

    time: int
    low: int
    columns: slice
    heights: range


def height_runs(c: TimeHeightConvolutionComponent) -> list[HeightRun]:
    """The offsets of a convolution as runs."""
    runs, filters, times = [], c.num_filters_in, c.time_offsets
    for _, group in itertools.groupby(
        enumerate(c.offsets), key=lambda item: (item[1][0], item[1][1] - item[0])
    ):
        (number, (time, low)), *others = group
        count = 1 + len(others)
        columns = slice(number * filters, (number + count) * filters)
        heights = heights_within(c, low, low + count - 1)
        runs.append(HeightRun(times.index(time), low, columns, heights))
    return runs


class HeightPatches:
    """Patches of some rows at some time offsets, (rows, height_out, columns).

    Heights that the input does not have are zero in every patch.

    Attributes:
        columns: Number of columns of a patch.
    """

    def __init__(self, component: TimeHeightConvolutionComponent, *, num_times: int) -> None:
        """Plans the copies for the first `num_times` time offsets."""
        self._component, times = component, component.time_offsets[:num_times]
        self.columns = component.num_filters_in * sum(t in times for t, _ in component.offsets)
        runs = [run for run in height_runs(component) if run.time < num_times]
        self._copies = [copy for run in runs for copy in self._copies_of(run)]
        # The output heights for which the input has all heights.
        heights = {height for time, height in component.offsets if time in times}
        self._whole = heights_within(component, min(heights), max(heights))

    def _copies_of(self, run: HeightRun) -> list[HeightRun]:
        """The pieces of a run that are copied together.

        Its offsets lie side by side in the patch and in the input. So they are one piece, at the
        output heights at which all of them exist. At the other heights each is one of its own.
        """
        pieces, inner = [run], run.heights
        for single in self._offsets_of(run):
            whole = heights_within(self._component, single.low, single.low)
            pieces += [single._replace(heights=part) for part in _outside(whole, inner)]
        return [piece for piece in pieces if len(piece.heights)]

    def _offsets_of(self, run: HeightRun) -> Iterator[HeightRun]:
        """The run's offsets one by one."""
        filters = self._component.num_filters_in
        for number, start in enumerate(range(run.columns.start, run.columns.stop, filters)):
            yield run._replace(low=run.low + number, columns=slice(start, start + filters))

    def _windows(self, x: Array, run: HeightRun) -> Array:
        """The columns of x that are copied, as (rows, heights, columns); windows may overlap."""
        c, (rows, columns) = self._component, x.strides
        step = c.height_subsample_out * c.num_filters_in
        first = run.heights.start * step + run.low * c.num_filters_in
        return np.lib.stride_tricks.as_strided(
            x[:, first:],
            shape=(len(x), len(run.heights), run.columns.stop - run.columns.start),
            strides=(rows, step * columns, columns),
        )

    @staticmethod
    def _target(patches: Array, run: HeightRun) -> Array:
        """The same columns of patches: (rows, heights, columns), a view."""
        return patches[:, run.heights.start : run.heights.stop, run.columns]

    def memory(self, tape: Tape, rows: int, *, is_zeroed: bool) -> Array:
        """Scratch memory for the patches of `rows` rows.

        Args:
            tape: Records that it is set to zero.
            rows: Number of rows.
            is_zeroed: Whether patches will be copied there: then missing heights are zero.
        """
        patches = tape.scratch(rows, self._component.height_out, self.columns)
        if is_zeroed:
            for gap in (patches[:, : self._whole.start], patches[:, self._whole.stop :]):
                if gap.size:
                    tape.fill(0.0, gap)
        return patches

    def record(self, tape: Tape, parts: list[Array], patches: Array) -> None:
        """Records that patches are copied together.

        Args:
            tape: Records the copies.
            parts: For each time offset the rows of the input, (rows, columns).
            patches: See `memory`.
        """
        for copy in self._copies:
            tape.copy(self._windows(parts[copy.time], copy), self._target(patches, copy))

    def record_scatter(self, tape: Tape, patches: Array, parts: list[Array]) -> None:
        """Records that patches are added to the input where they would come from.

        Windows that overlap are added one offset in height after another.
        """
        step = self._component.height_subsample_out * self._component.num_filters_in
        for copy in self._copies:
            are_apart = copy.columns.stop - copy.columns.start <= step
            for piece in [copy] if are_apart else self._offsets_of(copy):
                windows = self._windows(parts[piece.time], piece)
                tape.add(windows, self._target(patches, piece), windows)


def _outside(whole: range, inner: range) -> list[range]:
    """The parts of a range that lie before and behind another."""
    if not len(inner):
        return [whole]
    return [range(whole.start, inner.start), range(inner.stop, whole.stop)]


def heights_within(c: TimeHeightConvolutionComponent, low: int, high: int) -> range:
    """The output heights for which the input has all heights from offset low to offset high."""
    first = max(0, -(low // c.height_subsample_out))
    last = min(c.height_out - 1, (c.height_in - 1 - high) // c.height_subsample_out)
    return range(first, max(first, last + 1))


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

    def frames(self, tape: Tape, *shape: int, is_set: bool) -> Array:
        """Scratch memory for rows of the input: (*shape, input_dim)."""
        return tape.scratch(*shape, self._input_dim)

    def inside(self, frames: Array) -> Array:
        """All columns of the frames."""
        return frames

    def input_memory(self, tape: Tape, rows: int, parts: int, *, is_set: bool) -> Array:
        """Scratch memory for patches: (1, rows, height_out, columns of a patch).

        Args:
            tape: Records zeros where a patch reaches beyond the input.
            rows: Number of rows.
            parts: 1.
            is_set: Whether the caller will write the patches.
        """
        return self._patches.memory(tape, rows, is_zeroed=is_set)[None]

    def output_memory(self, tape: Tape, rows: int, filters: int) -> Array:
        """No memory: the products lie where the output does."""
        return tape.scratch(0, 0)

    def output_products(self, memory: Array, output: Array) -> Array:
        """The output itself: (1, rows, height_out, filters)."""
        return output.reshape(1, len(output), self._height_out, -1)

    def record_inputs(self, tape: Tape, frames: Array, products: Array) -> None:
        """Records copies of the patches; frames: (1, rows, input_dim)."""
        self._patches.record(tape, [*frames], products[0])

    def record_input_derivatives(
        self, tape: Tape, products: Array, memory: Array, frames: Array
    ) -> None:
        """Records frames = for each element, the sum of its copies in patches."""
        tape.fill(0.0, frames)
        self._patches.record_scatter(tape, products[0], [*frames])

    def record_outputs(self, tape: Tape, products: Array, output: Array) -> None:
        """Records nothing: the products are the output."""

    def record_output_derivatives(self, tape: Tape, output: Array, products: Array) -> None:
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

    def frames(self, tape: Tape, *shape: int, is_set: bool) -> Array:
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

    def input_memory(self, tape: Tape, rows: int, parts: int, *, is_set: bool) -> Array:
        """Scratch memory for B^T x: (products, rows, tiles, parts * filters_in)."""
        return tape.scratch(self.num_products, rows, self.num_tiles, parts * self.filters_in)

    def output_memory(self, tape: Tape, rows: int, filters: int) -> Array:
        """Scratch memory for the products: (products, rows, tiles, filters)."""
        return tape.scratch(self.num_products, rows, self.num_tiles, filters)

    def output_products(self, memory: Array, output: Array) -> Array:
        """The products of as many rows as the output has: a view of the memory."""
        return memory[:, : len(output)]

    # ---- transforms of inputs and outputs, forward and backward ----

    def record_inputs(self, tape: Tape, frames: Array, products: Array) -> None:
        """Records products = B^T x for each tile.

        frames: (parts, rows, columns of a frame); the products hold the parts side by side.
        """
        for frame, target in self._parts(frames, products):
            tape.small_products(
                self.filtering.inputs, self._tiles(frame, self.num_products), target
            )

    def record_input_derivatives(
        self, tape: Tape, products: Array, memory: Array, frames: Array
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

    def record_outputs(self, tape: Tape, products: Array, output: Array) -> None:
        """Records output = A^T times the products; output: (rows, columns)."""
        matrix = self.filtering.outputs
        tape.small_products(matrix, products.transpose(1, 2, 0, 3), self._output_tiles(output))

    def record_output_derivatives(self, tape: Tape, output: Array, products: Array) -> None:
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
