"""The rows of a convolution over time in tiles, computed with fewer multiplications.

Winograd's minimal filtering F(m, r) computes m outputs of a filter with r taps,

    y_i = sum over k of w_k x_(i+k),    0 <= i < m,    0 <= k < r,

with m + r - 1 products of sums of inputs and sums of taps:

    y = A^T ((G w) * (B^T x)).

S. Winograd, Arithmetic Complexity of Computations (1980); for convolutions, whose products are
products of matrices, A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks
(2015). The matrices are those of the Toom-Cook algorithm, which multiplies polynomials by their
values at some points and at infinity.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.scratch import parts_of_at_most

FEW_POINTS = (0.0, 1.0, -1.0)
"""The points at which F(2, 3) evaluates polynomials, beside infinity."""

POINTS = (*FEW_POINTS, 0.5, -2.0)
"""The points at which F(4, 3) evaluates polynomials, beside infinity.

Among points that need few multiplications these round least: B. Barabasz, A. Anderson,
K. Soodhalter and D. Gregg, Error Analysis and Improving the Accuracy of Winograd Convolution for
Deep Neural Networks (2018). With three taps, errors are three to five times those of direct sums.
"""


class MinimalFiltering(NamedTuple):
    """The matrices of F(m, r).

    Attributes:
        inputs: B^T, (products, products).
        taps: G, (products, r): powers of the points. If the first point is 0, the first row is one
            at the first tap and zero elsewhere; the last row is one at the last tap only.
        outputs: A^T, (m, products).
    """

    inputs: Array
    taps: Array
    outputs: Array

    @property
    def num_products(self) -> int:
        """Number of products, m + r - 1; the number of inputs is the same."""
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        """Number of outputs, m."""
        return len(self.outputs)


@functools.cache
def minimal_filtering(
    num_taps: int, dtype: np.dtype[np.floating], points: tuple[float, ...] = POINTS
) -> MinimalFiltering:
    """F(m, r), whose number of products is the number of points plus one.

    Args:
        num_taps: r, at least 1 and at most the number of products.
        dtype: The type of the matrices.
        points: The points at which polynomials are evaluated, beside infinity.
    """
    num_products = len(points) + 1
    num_outputs = num_products + 1 - num_taps
    inputs = np.zeros((num_products, num_products))
    for number, point in enumerate(points):
        others = [other for other in points if other != point]
        scale = math.prod(point - other for other in others)
        inputs[number, :-1] = _coefficients(others) / scale
    inputs[-1] = _coefficients(points)
    taps = _powers(points, num_taps)
    outputs = _powers(points, num_outputs).T
    return MinimalFiltering(*(matrix.astype(dtype) for matrix in (inputs, taps, outputs)))


def _coefficients(roots: tuple[float, ...] | list[float]) -> Array:
    """The coefficients of the polynomial with these roots, the highest power last."""
    return np.poly(roots)[::-1]


def _powers(points: tuple[float, ...], count: int) -> Array:
    """(points and infinity, count): the powers of each point; infinity has only the highest one."""
    last = np.zeros((1, count))
    last[0, -1] = 1.0
    return np.concatenate([np.vander(np.array(points), count, increasing=True), last])


MOST_PRODUCTS = 0.75
"""The most products of the tiles, relative to the products of a row for each tap."""


class Tiles(NamedTuple):
    """Neighbouring tiles.

    Attributes:
        start: First output row of the first tile.
        num_tiles: Number of tiles.
        place: First row of the tiles' products, within the products of the block.
    """

    start: int
    num_tiles: int
    place: int


class TileBlock(NamedTuple):
    """Tiles that are computed at a time.

    The last tile shares rows of the input with the next block. Threads that compute the two blocks
    at the same time cannot both add to these rows: the border of the first block keeps its terms
    until both are done.

    Attributes:
        pieces: The tiles.
        place: First row of the block's products, within the products of all blocks.
        rows: Rows of each product.
        border: Memory for these terms, (rows of a frame, frames, cols); None if no thread needs it.
    """

    pieces: tuple[Tiles, ...]
    place: int
    rows: int
    border: Array | None = None


Run = Sequence[TileBlock]
"""Neighbouring blocks, which one thread computes in turn."""


class TimeTiles(NamedTuple):
    """Output rows r that depend on the input rows first + r + k distance, for 0 <= k < taps.

    A tile is m frames of `distance` output rows each; it depends on m + taps - 1 frames of the
    input. If the tiles do not divide the rows, the last tile overlaps the one before.

    Attributes:
        filtering: The minimal filtering of a tile.
        rows: Number of output rows.
        first: The first input row.
        distance: Number of rows from the input row of one tap to that of the next.
        num_parts: Number of input frames side by side in a product: 1.
    """

    filtering: MinimalFiltering
    rows: int
    first: int
    distance: int
    num_parts: int = 1

    @classmethod
    def at(
        cls,
        offsets: Sequence[int],
        rows: int,
        dtype: np.dtype[np.floating],
        *,
        is_precise: bool = False,
    ) -> Self | None:
        """The tiles for some output rows, or None if tiles would not save products.

        Args:
            offsets: For each tap, the input row that output row 0 needs; row r needs r rows later.
            rows: Number of output rows.
            dtype: The type of the values.
            is_precise: Use F(2, 3) for three taps, where it saves products. F(4, 3) needs a quarter
                fewer products, but rounds more. Two taps always use F(3, 2): with more points,
                products would fall by a sixteenth, and errors would double.
        """
        taps = len(offsets)
        choices: list[tuple[float, ...]] = [FEW_POINTS] if taps == 2 else [POINTS]
        if is_precise and taps == 3:
            choices = [FEW_POINTS, POINTS]
        found = (cls._with(points, offsets, rows, dtype) for points in choices)
        return next((tiles for tiles in found if tiles is not None), None)

    @classmethod
    def _with(
        cls,
        points: tuple[float, ...],
        offsets: Sequence[int],
        rows: int,
        dtype: np.dtype[np.floating],
    ) -> Self | None:
        """The tiles with these points, or None if tiles would not save products."""
        distances = set(np.diff(offsets).tolist())
        taps = len(offsets)
        if len(distances) != 1 or min(distances) <= 0 or taps > len(points):
            return None
        filtering = minimal_filtering(taps, dtype, points)
        tiles = cls(filtering=filtering, rows=rows, first=offsets[0], distance=distances.pop())
        products = filtering.num_products * tiles.num_tiles * tiles.distance
        pays = rows >= tiles.tile_rows and products <= MOST_PRODUCTS * taps * rows
        return tiles if pays else None

    @property
    def num_products(self) -> int:
        """Number of products of a tile."""
        return self.filtering.num_products

    @property
    def in_all_outputs(self) -> int:
        """Number of the product that A^T adds to every output unchanged: that of the point 1."""
        return int((self.filtering.outputs == 1.0).all(axis=0).argmax())

    @property
    def taps(self) -> Array:
        """(products, time offsets): G, which turns parameters into factors of the products."""
        return self.filtering.taps

    @property
    def tile_rows(self) -> int:
        """Output rows of a tile."""
        return self.filtering.num_outputs * self.distance

    @property
    def num_tiles(self) -> int:
        """Number of tiles."""
        return -(-self.rows // self.tile_rows)

    @property
    def reaches_next_only(self) -> bool:
        """Whether a tile shares input frames only with its neighbours."""
        return self.filtering.num_products <= 2 * self.filtering.num_outputs

    def blocks(self, most_rows: int, *, multiple_of: int = 1) -> list[TileBlock]:
        """The tiles in blocks of nearly the same size, which share no output rows.

        Args:
            most_rows: The most rows of a product in a block. But each block has at least one tile,
                and the last block also has the tile that overlaps another.
            multiple_of: The number of blocks is a multiple of this, if there are enough tiles.
        """
        whole, blocks = self.rows // self.tile_rows, []
        for part in parts_of_at_most(whole, most_rows // self.distance, multiple_of=multiple_of):
            count = part.stop - part.start
            pieces = [Tiles(part.start * self.tile_rows, count, 0)]
            if part.stop == whole < self.num_tiles:
                place = count * self.distance
                pieces.append(Tiles(self.rows - self.tile_rows, 1, place))
            rows = sum(piece.num_tiles for piece in pieces) * self.distance
            place = part.start * self.distance
            blocks.append(TileBlock(pieces=tuple(pieces), place=place, rows=rows))
        return blocks

    def output_rows(self, block: TileBlock) -> slice:
        """The output rows of a block."""
        last = block.pieces[-1]
        return slice(block.pieces[0].start, last.start + last.num_tiles * self.tile_rows)

    # ---- transforms of inputs and outputs, forward and backward ----

    def record_inputs(self, tape: Tape, block: TileBlock, x: Array, out: Array) -> None:
        """Records out = B^T x.

        x: (rows in, cols); out: (products, 1, rows of the block, cols).
        """
        matrix, out = self.filtering.inputs, out[:, 0]
        for piece in block.pieces:
            frames = self._frames(x[self.first :], piece.start, piece.num_tiles, len(matrix))
            tape.small_products(matrix, frames, self._products(out, piece))

    def record_outputs(self, tape: Tape, block: TileBlock, products: Array, y: Array) -> None:
        """Records y = A^T times the products; y: (rows, cols)."""
        matrix = self.filtering.outputs
        for piece in block.pieces:
            frames = self._frames(y, piece.start, piece.num_tiles, len(matrix))
            tape.small_products(matrix, self._products(products, piece), frames)

    def record_output_derivatives(
        self, tape: Tape, block: TileBlock, dy: Array, out: Array
    ) -> None:
        """Records out = A dy, the derivatives of the products.

        Rows that the last tile shares with the tile before count in that tile only.
        """
        matrix = self.filtering.outputs
        for piece in block.pieces:
            source, start = dy, piece.start
            if start % self.tile_rows:
                own = self.rows % self.tile_rows
                source, start = tape.scratch(self.tile_rows, dy.shape[1]), 0
                tape.fill(0.0, source[:-own])
                tape.copy(dy[len(dy) - own :], source[-own:])
            frames = self._frames(source, start, piece.num_tiles, len(matrix))
            tape.small_products(matrix.T, frames, self._products(out, piece))

    def begin_input_derivatives(self, tape: Tape, dx: Array, *, add: bool) -> None:
        """Records zeros in the rows of dx that `record_input_derivatives` does not set.

        dx: (rows in, cols); add: as in `record_input_derivatives`.
        """
        if not add:
            for rest in (dx[: self.first], dx[self.first + self._whole_rows :]):
                if len(rest):
                    tape.fill(0.0, rest)

    def sum_memory(self, tape: Tape, products: Array, *, add: bool = True) -> Array:
        """Scratch memory of `record_input_derivatives` for an array of products."""
        if add:
            return tape.scratch(products.size)
        overlap = len(products) - self.filtering.num_outputs
        tile = len(products) * self.distance * products.shape[-1]
        return tape.scratch(max(products.size // len(products) * overlap, tile))

    def record_input_derivatives(
        self,
        tape: Tape,
        block: TileBlock,
        products: Array,
        memory: Array,
        dx: Array,
        *,
        add: bool = True,
    ) -> None:
        """Records dx += B times the derivatives of B^T x.

        Args:
            tape: Records the arithmetic.
            block: The tiles; the border keeps what belongs to it.
            products: (products, 1, rows of the block, cols).
            memory: The result of `sum_memory`.
            dx: (rows in, cols).
            add: If false, overwrites the rows that belong to one tile only. Then blocks must be
                recorded from the last to the first, after `begin_input_derivatives`.
        """
        matrix, products = self.filtering.inputs.T, products[:, 0]
        own, columns, dx = self.filtering.num_outputs, products.shape[2], dx[self.first :]
        for piece in block.pieces:
            source = self._products(products, piece)
            frames = self._frames(dx, piece.start, piece.num_tiles, len(matrix))
            if not add and piece.start % self.tile_rows:
                # Rows that this tile shares with the tile before do not count here.
                rows = memory[: len(matrix) * self.distance * columns].reshape(-1, columns)
                tape.small_products(matrix, source, self._frames(rows, 0, 1, len(matrix)))
                target = dx[self._whole_rows : piece.start + len(rows)]
                tape.add(target, rows[-len(target) :], target)
                continue
            # The last frames of a tile are the first frames of the next tile.
            first = 0 if add else own
            if not add:
                tape.small_products(matrix[:own], source, frames[:, :, :own])
            if len(matrix) == first + 1:
                # Only the product at infinity depends on the last frame.
                sums = source[:, :, -1:]
            else:
                shape = piece.num_tiles, self.distance, len(matrix) - first, columns
                sums = memory[: math.prod(shape)].reshape(shape)
                tape.small_products(matrix[first:], source, sums)
            for k in range(first, len(matrix), own):
                target, terms = frames[:, :, k : k + own], sums[:, :, k - first : k - first + own]
                if block.border is not None and k:
                    tape.copy(terms[-1], block.border)
                    target, terms = target[:-1], terms[:-1]
                tape.add(target, terms, target)

    def bordered(self, tape: Tape, runs: Sequence[Run], columns: int) -> list[Run]:
        """The runs, with scratch memory for the rows that neighbouring runs share.

        Args:
            tape: Gives the memory.
            runs: Runs that threads compute at the same time; one, unless `reaches_next_only`.
            columns: Columns of the input.
        """
        shape = self.distance, self.num_products - self.filtering.num_outputs, columns
        meeting = [[*run[:-1], run[-1]._replace(border=tape.scratch(*shape))] for run in runs[:-1]]
        return [*meeting, runs[-1]]

    def record_borders(self, tape: Tape, runs: Sequence[Run], dx: Array) -> None:
        """Records dx += the borders of the runs, after all runs."""
        for run in runs[:-1]:
            block = run[-1]
            assert block.border is not None
            (piece,) = block.pieces
            start = piece.start + (piece.num_tiles - 1) * self.tile_rows
            frames = self._frames(dx[self.first :], start, 1, self.num_products)
            target = frames[0, :, self.filtering.num_outputs :]
            tape.add(target, block.border, target)

    @property
    def _whole_rows(self) -> int:
        """Output rows of the tiles, without a last tile that overlaps another."""
        return self.rows // self.tile_rows * self.tile_rows

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
        rows = products[:, piece.place : piece.place + piece.num_tiles * self.distance]
        shape = len(products), piece.num_tiles, self.distance, products.shape[2]
        return rows.reshape(shape).transpose(1, 2, 0, 3)
