"""Cuts a tiled product into parts of columns and blocks of rows, and plans its working memory.

The wider side, input or output, is computed in parts of its columns and in blocks of rows, so that
transformed values stay in the cache. The narrower side is transformed once.

With parameters in panels, each thread has its own blocks, which it computes from end to end. Each
thread also lays out for itself the parameters that can change: fetching them from another thread's
cache takes as long. Without panels this would take too much memory, and threads share the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import attrs

from nnet3_runtime_cuda.kernels.tiles.time_tiles import Run, TileBlock, TimeTiles
from nnet3_runtime_cuda.operations import Array, Operations
from nnet3_runtime_cuda.operations.scratch import even_parts, parts_of_at_most

PART_COLUMNS = 768
"""The most columns of the wider side that are computed at a time."""

CHANGING_PART_COLUMNS = 384
"""The same for panels of parameters that can change. Their factors take scratch memory. Sums have
no more terms at a time than those of the BLAS library, because longer sums round more."""

BLOCK_ROWS = 288
"""Rows of each product in a block: with fewer, products are slower; with more, transforms are."""

PANEL_BLOCK_BYTES = 6 << 20
"""Bytes of a block with parameters in panels, if both sides are about as wide. Panels lose less
with few rows, so such a block has all columns and fewer rows."""

PANEL_BLOCK_ROWS = 96
"""The fewest rows of each product in such a block."""

ABOUT_AS_WIDE = 2
"""Sides are about as wide if neither has this many times the columns of the other."""


@attrs.frozen(kw_only=True)
class Columns:
    """Columns of the input or of the output.

    Attributes:
        span: The columns.
        is_first, is_last: Whether this is the first, and the last, part to use these columns.
    """

    span: slice
    is_first: bool = True
    is_last: bool = True

    @property
    def count(self) -> int:
        """Number of columns."""
        count: int = self.span.stop - self.span.start
        return count

    def of(self, matrix: Array) -> Array:
        """These columns of a matrix: a view."""
        return matrix[:, self.span]


@attrs.frozen(kw_only=True)
class Part:
    """The columns that are computed at a time.

    Attributes:
        number: Number of the part, from 0.
        inputs, outputs: Columns of input and output; one of the two sides has all its columns.
    """

    number: int
    inputs: Columns
    outputs: Columns

    @property
    def shape(self) -> tuple[int, int]:
        """Number of outputs and of inputs."""
        return self.outputs.count, self.inputs.count


@attrs.frozen(kw_only=True, eq=False)
class PartMemory:
    """Memory for transformed columns of the input or of the output.

    Attributes:
        array: (products of a tile, rows, columns).
        has_all_rows: Whether each block has its own rows here; else all blocks use the same rows.
    """

    array: Array
    has_all_rows: bool

    def of(self, block: TileBlock) -> Array:
        """The memory of a block: (products of a tile, rows of the block, columns)."""
        start = block.place if self.has_all_rows else 0
        return self.array[:, start : start + block.rows]


@attrs.frozen(kw_only=True, eq=False)
class Share:
    """The work of a thread for a part.

    Attributes:
        part: The columns.
        run: The blocks of rows.
        inputs, outputs: Memory for the transformed columns of both sides.
    """

    part: Part
    run: Run
    inputs: PartMemory
    outputs: PartMemory


@attrs.frozen(kw_only=True, eq=False)
class TileBlocking:
    """The parts of the columns and the blocks of the rows of a tiled product.

    Attributes:
        tiles: The tiles of all rows.
        is_wide_input: Whether the input is the wider side, which is computed in parts.
        parts: The parts of the columns.
        part_columns: The most columns of the wider side in a part.
        narrow_columns: Columns of the narrower side.
        runs: The blocks of rows, a run for each thread that has its own run.
        memory_rows: Rows of each product in working memory, if it does not hold all rows.
    """

    tiles: TimeTiles
    is_wide_input: bool
    parts: Sequence[Part]
    part_columns: int
    narrow_columns: int
    runs: Sequence[Run]
    memory_rows: int

    @classmethod
    def of(
        cls,
        tiles: TimeTiles,
        input_dim: int,
        output_dim: int,
        *,
        itemsize: int,
        is_fixed: bool,
        in_panels: bool,
        threads: int,
    ) -> Self:
        """Plans parts and blocks.

        Args:
            tiles: The tiles of all rows.
            input_dim: Columns of the input.
            output_dim: Columns of the output.
            itemsize: Bytes of an element.
            is_fixed: Whether parameters never change.
            in_panels: Whether parameters are laid out in panels.
            threads: Number of threads.
        """
        narrow, wide = sorted((input_dim, output_dim))
        most_columns, most_rows = PART_COLUMNS, BLOCK_ROWS
        if in_panels and not is_fixed:
            most_columns = CHANGING_PART_COLUMNS
        elif not is_fixed:
            # Their factors then take no more scratch memory than a splice of these rows would.
            num_taps = tiles.taps.shape[1]
            most_columns = min(most_columns, tiles.rows * num_taps // tiles.num_products)
        elif in_panels and wide < ABOUT_AS_WIDE * narrow:
            row_bytes = tiles.num_products * (narrow + wide) * itemsize
            most_columns = wide
            most_rows = min(max(PANEL_BLOCK_BYTES // row_bytes, PANEL_BLOCK_ROWS), BLOCK_ROWS)
        count, shared_by = (threads, 1) if in_panels else (1, threads)
        most_rows *= shared_by
        # The last block can have one tile more than the others.
        blocks = tiles.blocks(most_rows - tiles.distance, multiple_of=count)
        memory_rows = max(block.rows for block in blocks)
        if len(blocks) > count:
            # The same size for all layers: scratch arrays of equal size share memory.
            memory_rows = max(memory_rows, most_rows)
        spans = parts_of_at_most(wide, most_columns)
        is_wide_input = input_dim > output_dim
        return cls(
            tiles=tiles,
            is_wide_input=is_wide_input,
            parts=_parts(spans, slice(0, narrow), is_wide_input=is_wide_input),
            part_columns=max(span.stop - span.start for span in spans),
            narrow_columns=narrow,
            runs=[blocks[part] for part in even_parts(len(blocks), count)],
            memory_rows=memory_rows,
        )

    @property
    def derivative_runs(self) -> Sequence[Run]:
        """The runs for the derivative of the input: one, if runs share more than their borders."""
        if self.tiles.reaches_next_only:
            return self.runs
        return [[block for run in self.runs for block in run]]

    def kept_memory(self, tape: Operations) -> Array | None:
        """Scratch memory for all rows of the narrower side; None if there is only one part."""
        if len(self.parts) == 1:
            return None
        last = self.runs[-1][-1]
        return tape.scratch(self.tiles.num_products, last.place + last.rows, self.narrow_columns)

    def shares(
        self, tape: Operations, part: Part, runs: Sequence[Run], kept: Array | None
    ) -> Iterator[Share]:
        """The work of each thread for a part, in a loop of `Operations.independent`.

        Args:
            tape: Gives each round its memory.
            part: The columns.
            runs: The blocks of rows; a round each.
            kept: The result of `kept_memory`.
        """
        for run in tape.independent(runs):
            yield self._share(tape, part, run, kept)

    def _share(self, tape: Operations, part: Part, run: Run, kept: Array | None) -> Share:
        sizes = self.tiles.num_products, self.memory_rows
        # The larger array first, so that the arrays of all layers fit the same memory.
        array = tape.scratch(*sizes, self.part_columns)
        own = part.inputs if self.is_wide_input else part.outputs
        wide = PartMemory(array=array[:, :, : own.count], has_all_rows=False)
        if kept is None:
            array = tape.scratch(*sizes, self.narrow_columns)
            narrow = PartMemory(array=array, has_all_rows=False)
        else:
            narrow = PartMemory(array=kept, has_all_rows=True)
        inputs, outputs = (wide, narrow) if self.is_wide_input else (narrow, wide)
        return Share(part=part, run=run, inputs=inputs, outputs=outputs)


def _parts(spans: Sequence[slice], everything: slice, *, is_wide_input: bool) -> list[Part]:
    """Parts of the wider side's columns, each with all columns of the narrower side."""
    parts = []
    for number, span in enumerate(spans):
        own, last = Columns(span=span), len(spans) - 1
        common = Columns(span=everything, is_first=number == 0, is_last=number == last)
        inputs, outputs = (own, common) if is_wide_input else (common, own)
        parts.append(Part(number=number, inputs=inputs, outputs=outputs))
    return parts
