"""The rows of a convolution over time, without tiles, with the methods of `TimeTiles`."""

from __future__ import annotations

from typing import ClassVar, Self

import attrs
import numpy as np
from nnet3_descriptors.components import PrecomputedIndexes, TimeOffsetPrecomputedIndexes

from nnet3_runtime_cuda.kernels.rows import rows_at_offsets
from nnet3_runtime_cuda.kernels.tiles.time_tiles import TileBlock, Tiles
from nnet3_runtime_cuda.operations import Array, Operations
from nnet3_runtime_cuda.operations.scratch import parts_of_at_most


@attrs.frozen(kw_only=True, eq=False)
class UntiledRows:
    """Output rows, each with one product: of the input at all time offsets side by side.

    Attributes:
        indexes: The input rows of each time offset.
        rows: Number of output rows.
        num_parts: Number of time offsets.
        taps: (1, 1), one: the parameters are not transformed.
    """

    indexes: PrecomputedIndexes | None
    rows: int
    num_parts: int
    taps: Array

    num_products: ClassVar[int] = 1
    reaches_next_only: ClassVar[bool] = False
    """No: rows of the input can belong to output rows that are far apart."""

    @classmethod
    def of(
        cls, indexes: PrecomputedIndexes | None, rows: int, dtype: np.dtype[np.floating]
    ) -> Self:
        """The output rows 0 to rows - 1."""
        assert isinstance(indexes, TimeOffsetPrecomputedIndexes)
        num_parts, taps = len(indexes.row_offsets), np.ones((1, 1), dtype)
        return cls(indexes=indexes, rows=rows, num_parts=num_parts, taps=taps)

    def blocks(self, most_rows: int, *, multiple_of: int = 1) -> list[TileBlock]:
        """The rows in blocks of nearly the same size.

        Args:
            most_rows: The most rows of a block; each block has at least one.
            multiple_of: The number of blocks is a multiple of this, if there are enough rows.
        """
        parts = parts_of_at_most(self.rows, most_rows, multiple_of=multiple_of)
        pieces = [Tiles(start=part.start, count=part.stop - part.start, place=0) for part in parts]
        return [TileBlock(pieces=(piece,), place=piece.start, rows=piece.count) for piece in pieces]

    def output_rows(self, block: TileBlock) -> slice:
        """The output rows of a block."""
        start = block.pieces[0].start
        return slice(start, start + block.rows)

    def record_inputs(self, tape: Operations, block: TileBlock, x: Array, out: Array) -> None:
        """Records out = x at each time offset; out: (1, time offsets, rows of the block, cols)."""
        parts = rows_at_offsets(x, self.indexes, self.rows)
        for part, target in zip(parts, out[0], strict=True):
            tape.copy(part[self.output_rows(block)], target)

    def record_outputs(self, tape: Operations, block: TileBlock, products: Array, y: Array) -> None:
        """Records y = the products, (1, rows of the block, cols)."""
        tape.copy(products[0], y[self.output_rows(block)])

    def record_output_derivatives(
        self, tape: Operations, block: TileBlock, dy: Array, out: Array
    ) -> None:
        """Records out = dy."""
        tape.copy(dy[self.output_rows(block)], out[0])

    def sum_memory(self, tape: Operations, products: Array) -> Array:
        """No memory: products are added straight to dx."""
        return tape.scratch(0)

    def record_input_derivatives(
        self, tape: Operations, block: TileBlock, products: Array, memory: Array, dx: Array
    ) -> None:
        """Records the addition of the products to dx at each time offset."""
        parts = rows_at_offsets(dx, self.indexes, self.rows)
        for part, source in zip(parts, products[0], strict=True):
            target = part[self.output_rows(block)]
            tape.add(target, source, target)
