"""The rows of a convolution over time in tiles, each of which is computed by minimal filtering."""

from __future__ import annotations

import math
from typing import ClassVar, Self

import attrs
import numpy as np
from nnet3_descriptors.components import PrecomputedIndexes, TimeOffsetPrecomputedIndexes

from ..tape import Array, Tape
from .minimal_filtering import POINTS, MinimalFiltering, minimal_filtering

MOST_PRODUCTS = 0.75
"""Tiles have at most so many products, relative to those of rows with taps."""


@attrs.frozen(kw_only=True)
class Tiles:
    """Tiles that follow one another.

    Attributes:
        start: First output row of the first tile.
        count: How many.
        place: First row of each product in those of the block.
    """

    start: int
    count: int
    place: int


@attrs.frozen(kw_only=True)
class TileBlock:
    """Tiles that are computed at a time.

    Attributes:
        pieces: The tiles.
        rows: Rows of each product.
    """

    pieces: tuple[Tiles, ...]
    rows: int


@attrs.frozen(kw_only=True, eq=False)
class TimeTiles:
    """Output rows r that are made of the input rows first + r + k distance, for 0 <= k < taps.

    A tile is m frames of `distance` output rows each, made of m + taps - 1 frames of the input. If
    the rows are no whole number of tiles, the last tile begins so early that it ends with them.

    Attributes:
        filtering: The algorithm for a tile.
        rows: Number of output rows.
        first: The first input row.
        distance: Of the rows of two taps.
    """

    filtering: MinimalFiltering
    rows: int
    first: int
    distance: int

    @classmethod
    def around(
        cls, indexes: PrecomputedIndexes | None, rows: int, dtype: np.dtype[np.floating]
    ) -> Self | None:
        """The tiles for some output rows, or None if they would not save products.

        Args:
            indexes: Which input rows each output row needs.
            rows: Number of output rows.
            dtype: Of the values.
        """
        assert isinstance(indexes, TimeOffsetPrecomputedIndexes)
        distances = set(np.diff(indexes.row_offsets).tolist())
        taps = len(indexes.row_offsets)
        is_regular = indexes.row_stride == 1 and len(distances) == 1 and min(distances) > 0
        if not is_regular or taps > len(POINTS):
            return None
        filtering = minimal_filtering(taps, dtype)
        tiles = cls(
            filtering=filtering,
            rows=rows,
            first=indexes.row_offsets[0],
            distance=distances.pop(),
        )
        products = filtering.num_products * tiles.count * tiles.distance
        pays = rows >= tiles.tile_rows and products <= MOST_PRODUCTS * taps * rows
        return tiles if pays else None

    num_parts: ClassVar[int] = 1

    @property
    def num_products(self) -> int:
        """Products of a tile."""
        return self.filtering.num_products

    @property
    def taps(self) -> Array:
        """(products, time offsets): what makes the factors of the products of the parameters."""
        return self.filtering.taps

    @property
    def tile_rows(self) -> int:
        """Output rows of a tile."""
        return self.filtering.num_outputs * self.distance

    @property
    def count(self) -> int:
        """Number of tiles."""
        return -(-self.rows // self.tile_rows)

    def blocks(self, most_rows: int) -> list[TileBlock]:
        """The tiles in blocks of nearly the same size, which have no output rows in common.

        Args:
            most_rows: Of one product of a block; but a block has a tile at least, and the last one
                also that which overlaps another.
        """
        whole, blocks = self.rows // self.tile_rows, []
        count = -(-whole // max(1, most_rows // self.distance))
        for number in range(count):
            start, end = (k * whole // count for k in (number, number + 1))
            pieces = [Tiles(start=start * self.tile_rows, count=end - start, place=0)]
            if number == count - 1 and whole < self.count:
                place = (end - start) * self.distance
                pieces.append(Tiles(start=self.rows - self.tile_rows, count=1, place=place))
            rows = sum(piece.count for piece in pieces) * self.distance
            blocks.append(TileBlock(pieces=tuple(pieces), rows=rows))
        return blocks

    def output_rows(self, block: TileBlock) -> slice:
        """The output rows of a block."""
        last = block.pieces[-1]
        return slice(block.pieces[0].start, last.start + last.count * self.tile_rows)

    # ---- what goes into the products and comes out of them, forward and backward ----

    def record_inputs(self, tape: Tape, block: TileBlock, x: Array, out: Array) -> None:
        """Records out = B^T x.

        x: (rows in, cols); out: (products, 1, rows of the block, cols).
        """
        matrix, out = self.filtering.inputs, out[:, 0]
        for piece in block.pieces:
            frames = self._frames(x[self.first :], piece.start, piece.count, len(matrix))
            tape.small_products(matrix, frames, self._products(out, piece))

    def record_outputs(self, tape: Tape, block: TileBlock, products: Array, y: Array) -> None:
        """Records y = A^T times the products; y: (rows, cols)."""
        matrix = self.filtering.outputs
        for piece in block.pieces:
            frames = self._frames(y, piece.start, piece.count, len(matrix))
            tape.small_products(matrix, self._products(products, piece), frames)

    def record_output_derivatives(
        self, tape: Tape, block: TileBlock, dy: Array, out: Array
    ) -> None:
        """Records out = A dy, the derivatives of the products.

        Rows that the last tile has in common with the one before count there only.
        """
        matrix = self.filtering.outputs
        for piece in block.pieces:
            source, start = dy, piece.start
            if start % self.tile_rows:
                own = self.rows % self.tile_rows
                source, start = tape.scratch(self.tile_rows, dy.shape[1]), 0
                tape.fill(0.0, source[:-own])
                tape.copy(dy[len(dy) - own :], source[-own:])
            frames = self._frames(source, start, piece.count, len(matrix))
            tape.small_products(matrix.T, frames, self._products(out, piece))

    def sum_memory(self, tape: Tape, products: Array) -> Array:
        """Scratch memory for `record_input_derivatives` of so many products."""
        return tape.scratch(products.size)

    def record_input_derivatives(
        self, tape: Tape, block: TileBlock, products: Array, memory: Array, dx: Array
    ) -> None:
        """Records dx += B times the derivatives of what went into the products.

        products: (products, 1, rows of the block, cols); memory: `sum_memory`; dx: (rows in, cols).
        """
        matrix, products = self.filtering.inputs, products[:, 0]
        num_products, _, columns = products.shape
        for piece in block.pieces:
            shape = piece.count, self.distance, num_products, columns
            sums = memory[: math.prod(shape)].reshape(shape)
            tape.small_products(matrix.T, self._products(products, piece), sums)
            frames = self._frames(dx[self.first :], piece.start, piece.count, num_products)
            # The last frames of a tile are the first ones of the next.
            own = self.filtering.num_outputs
            for k in range(0, num_products, own):
                target = frames[:, :, k : k + own]
                tape.add(target, sums[:, :, k : k + own], target)

    def _frames(self, rows: Array, start: int, count: int, frames: int) -> Array:
        """The rows of some tiles: (tiles, rows of a frame, frames, cols), a view."""
        distance, (row, column) = self.distance, rows.strides
        return np.lib.stride_tricks.as_strided(
            rows[start:],
            shape=(count, distance, frames, rows.shape[1]),
            strides=(self.tile_rows * row, row, distance * row, column),
        )

    def _products(self, products: Array, piece: Tiles) -> Array:
        """The products of some tiles: (tiles, rows of a frame, products, cols), a view."""
        rows = products[:, piece.place : piece.place + piece.count * self.distance]
        shape = len(products), piece.count, self.distance, products.shape[2]
        return rows.reshape(shape).transpose(1, 2, 0, 3)
