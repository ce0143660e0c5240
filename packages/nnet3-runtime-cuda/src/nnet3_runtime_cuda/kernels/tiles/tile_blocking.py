"""How products by tiles are cut up, and the memory that they work in.

The side with more columns, input or output, is computed with by parts of its columns, and by blocks
of rows, so that what is transformed stays in the cache; the other side is transformed once.

With parameters in panels threads have blocks of their own, which they compute from end to end, and
lay out parameters that may change each for itself: that takes no longer than to get them from the
cache of another one. Without, that would be too much memory, and threads share the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import attrs

from nnet3_runtime_cuda.kernels.tiles.time_tiles import Run, TileBlock, TimeTiles
from nnet3_runtime_cuda.operations import Array, Operations
from nnet3_runtime_cuda.slices import even_parts, parts_of_at_most

PART_COLUMNS = 768
"""So many columns of the wider side are computed with at a time."""

CHANGING_PART_COLUMNS = 384
"""The same with parameters that may change, in panels: their factors take scratch memory, and
products are to sum up no more terms at a time than the library's, as longer sums round more."""

BLOCK_ROWS = 288
"""So many rows of each product: with fewer, products are slower, with more, transforms are."""

PANEL_BLOCK_BYTES = 6 << 20
"""With parameters in panels, which lose less with fewer rows, a block takes so much memory if both
sides are about as wide. It then has all columns."""

PANEL_BLOCK_ROWS = 96
"""But such a block has so many rows of each product at least."""

ABOUT_AS_WIDE = 2
"""Neither side has so many times the columns of the other."""


@attrs.frozen(kw_only=True)
class Columns:
    """Columns of the input or of the output.

    Attributes:
        span: Which.
        is_first, is_last: Whether no part before or after has them.
    """

    span: slice
    is_first: bool = True
    is_last: bool = True

    @property
    def count(self) -> int:
        """How many."""
        count: int = self.span.stop - self.span.start
        return count

    def of(self, matrix: Array) -> Array:
        """These columns of a matrix: a view."""
        return matrix[:, self.span]


@attrs.frozen(kw_only=True)
class Part:
    """Columns that are computed with at a time.

    Attributes:
        number: Counts parts.
        inputs, outputs: Of one of the taps' parameters; all of them on one of the two sides.
    """

    number: int
    inputs: Columns
    outputs: Columns

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        return self.outputs.count, self.inputs.count


@attrs.frozen(kw_only=True, eq=False)
class PartMemory:
    """Memory for some columns of the input or of the output, transformed.

    Attributes:
        array: (products of a tile, rows, columns).
        has_all_rows: Whether blocks have rows of their own; else all use the same.
    """

    array: Array
    has_all_rows: bool

    def of(self, block: TileBlock) -> Array:
        """(products of a tile, rows of a block, columns)."""
        start = block.place if self.has_all_rows else 0
        return self.array[:, start : start + block.rows]


@attrs.frozen(kw_only=True, eq=False)
class Share:
    """What a thread computes with for a part.

    Attributes:
        part: The columns.
        run: The rows.
        inputs, outputs: Where these columns of both sides are transformed.
    """

    part: Part
    run: Run
    inputs: PartMemory
    outputs: PartMemory


@attrs.frozen(kw_only=True, eq=False)
class TileBlocking:
    """Parts of the columns and blocks of the rows of a product.

    Attributes:
        tiles: All rows.
        is_wide_input: Whether the input is the side that is computed with by parts.
        parts: The columns.
        part_columns: Most columns of the wider side that a part has.
        narrow_columns: Columns of the other side.
        runs: The rows.
        memory_rows: So many rows of each product are in memory, where not all are.
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
        """Lays out parts and blocks.

        Args:
            tiles: The rows.
            input_dim: Columns of the input.
            output_dim: Columns of the output.
            itemsize: Bytes of an element.
            is_fixed: Whether parameters will not change.
            in_panels: Whether parameters are laid out in panels.
            threads: How many there are.
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
        # The last block may have a tile more.
        blocks = tiles.blocks(most_rows - tiles.distance, multiple_of=count)
        memory_rows = max(block.rows for block in blocks)
        if len(blocks) > count:
            # As much for all rows and distances: scratch arrays of the same size share memory.
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
        """Runs for the derivative of the input: one, unless only their borders are in common."""
        if self.tiles.reaches_next_only:
            return self.runs
        return [[block for run in self.runs for block in run]]

    def kept_memory(self, tape: Operations) -> Array | None:
        """Scratch memory for all rows of the narrow side, if it is computed with more than once."""
        if len(self.parts) == 1:
            return None
        last = self.runs[-1][-1]
        return tape.scratch(self.tiles.num_products, last.place + last.rows, self.narrow_columns)

    def shares(
        self, tape: Operations, part: Part, runs: Sequence[Run], kept: Array | None
    ) -> Iterator[Share]:
        """A part for each run, for a loop whose rounds are those of `Operations.independent`.

        Args:
            tape: Gives the memory of a round.
            part: The columns.
            runs: The rows.
            kept: As of `kept_memory`.
        """
        for run in tape.independent(runs):
            yield self._share(tape, part, run, kept)

    def _share(self, tape: Operations, part: Part, run: Run, kept: Array | None) -> Share:
        sizes = self.tiles.num_products, self.memory_rows
        # The larger one first: so all layers find room in the same memory.
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
    """Some columns of the wider side each, with all columns of the other one."""
    parts = []
    for number, span in enumerate(spans):
        own, last = Columns(span=span), len(spans) - 1
        common = Columns(span=everything, is_first=number == 0, is_last=number == last)
        inputs, outputs = (own, common) if is_wide_input else (common, own)
        parts.append(Part(number=number, inputs=inputs, outputs=outputs))
    return parts
