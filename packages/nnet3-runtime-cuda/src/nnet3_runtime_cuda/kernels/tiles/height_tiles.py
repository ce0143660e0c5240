"""Tiles of heights; minimal filtering computes the heights of a tile together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import attrs
import numpy as np
from nnet3_descriptors.components import TimeHeightConvolutionComponent

from nnet3_runtime_cuda.kernels.tiles.minimal_filtering import (
    FEW_POINTS,
    MinimalFiltering,
    minimal_filtering,
)
from nnet3_runtime_cuda.operations import Array, Operations

TAPS = 3
"""Number of height offsets of a convolution that can be tiled."""


@attrs.frozen(kw_only=True, eq=False)
class HeightTiles:
    """The output heights of a convolution with the height offsets low, low + 1 and low + 2.

    A tile is two output heights, which four input heights determine. Some of these lie outside the
    input; so rows of the input are copied to longer rows ("frames") that have zeros there. The
    products have the shape (products, rows, tiles, filters).

    Attributes:
        filtering: The minimal filtering of a tile.
        count: Number of tiles.
        filters_in: Number of filters of the input.
        used: The columns of the input that the output depends on.
        start: The column of a frame at which the used columns begin.
    """

    filtering: MinimalFiltering
    count: int
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
            count=c.height_out // filtering.num_outputs,
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
        heights = self.count * self.filtering.num_outputs + self.taps.shape[1] - 1
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
        return tape.scratch(self.num_products, rows, self.count, parts * self.filters_in)

    def output_memory(self, tape: Operations, rows: int, filters: int) -> Array:
        """Scratch memory for the products: (products, rows, tiles, filters)."""
        return tape.scratch(self.num_products, rows, self.count, filters)

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
        width = size * self.count * self.filters_in
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
            shape=(len(frame), self.count, heights, self.filters_in),
            strides=(
                row,
                self.filtering.num_outputs * self.filters_in * column,
                self.filters_in * column,
                column,
            ),
        )

    def _output_tiles(self, output: Array) -> Array:
        """(rows, columns) as (rows, tiles, heights of a tile, filters): a view."""
        return output.reshape(len(output), self.count, self.filtering.num_outputs, -1)
