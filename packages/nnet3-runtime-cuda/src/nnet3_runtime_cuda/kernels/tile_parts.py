"""Cuts a tiled product into parts of columns and blocks of rows, and lays out its factors.

The wider side, input or output, is computed in parts of its columns and in blocks of rows, so that
transformed values stay in the cache. The narrower side is transformed once.

With parameters in panels, each thread has its own blocks, which it computes from end to end. Each
thread also lays out for itself the parameters that can change: fetching them from another thread's
cache takes as long. Without panels this would take too much memory, and threads share the blocks.

The factors are G w, with the matrix G of `MinimalFiltering`. The first factor is the first tap's
parameters and the last one the last tap's; the others are sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Self

from nnet3_runtime_cuda.kernels.base import ComponentStore
from nnet3_runtime_cuda.kernels.time_tiles import Run, TileBlock, TimeTiles
from nnet3_runtime_cuda.operations import Array, Operations
from nnet3_runtime_cuda.operations.panels import WIDTH, Panels
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


class Part(NamedTuple):
    """The columns that are computed at a time; one of the two sides has all its columns.

    Attributes:
        number: Number of the part, from 0.
        inputs, outputs: Columns of the input, and of the output.
        begins_inputs, begins_outputs: Whether no earlier part uses these columns.
        ends_inputs, ends_outputs: Whether no later part uses these columns.
    """

    number: int
    inputs: slice
    outputs: slice
    begins_inputs: bool
    begins_outputs: bool
    ends_inputs: bool
    ends_outputs: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Number of outputs and of inputs."""
        return self.outputs.stop - self.outputs.start, self.inputs.stop - self.inputs.start


Memory = Callable[[TileBlock], Array]
"""The memory for transformed rows of a block: (products of a tile, rows of the block, columns)."""

Share = tuple[Run, Memory, Memory]
"""The work of a thread for a part: blocks of rows, memory of the inputs and of the outputs."""


class TileBlocking(NamedTuple):
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
        elif in_panels and _most_fixed_columns(narrow, wide) == wide:
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
        own = part.shape[1] if self.is_wide_input else part.shape[0]
        for run in tape.independent(runs):
            sizes = self.tiles.num_products, self.memory_rows
            # The larger array first, so that the arrays of all layers fit the same memory.
            wide = partial(_first_rows, tape.scratch(*sizes, self.part_columns)[:, :, :own])
            if kept is None:
                narrow = partial(_first_rows, tape.scratch(*sizes, self.narrow_columns))
            else:
                narrow = partial(_own_rows, kept)
            yield (run, wide, narrow) if self.is_wide_input else (run, narrow, wide)


def _first_rows(memory: Array, block: TileBlock) -> Array:
    """Memory that all blocks use in turn."""
    return memory[:, : block.rows]


def _own_rows(memory: Array, block: TileBlock) -> Array:
    """Memory in which each block has its own rows."""
    return memory[:, block.place : block.place + block.rows]


def _parts(spans: Sequence[slice], everything: slice, *, is_wide_input: bool) -> list[Part]:
    """Parts of the wider side's columns, each with all columns of the narrower side."""
    parts = []
    for number, span in enumerate(spans):
        is_first, is_last = number == 0, number == len(spans) - 1
        if is_wide_input:
            parts.append(Part(number, span, everything, True, is_first, True, is_last))
        else:
            parts.append(Part(number, everything, span, is_first, True, is_last, True))
    return parts


def fixed_parts(input_dim: int, output_dim: int) -> list[Part]:
    """The parts for parameters in panels that never change, whatever the number of rows."""
    narrow, wide = sorted((input_dim, output_dim))
    spans = parts_of_at_most(wide, _most_fixed_columns(narrow, wide))
    return _parts(spans, slice(0, narrow), is_wide_input=input_dim > output_dim)


def _most_fixed_columns(narrow: int, wide: int) -> int:
    """The most columns of the wider side in such a part."""
    return wide if wide < ABOUT_AS_WIDE * narrow else PART_COLUMNS


SAME_SET = 4096
"""Bytes between rows that fall into the same set of a cache, if they are a multiple of it."""

PADDING = 16
"""Elements added to each row of a matrix that is read by columns, so that its rows do not."""

TRANSPOSED_ELEMENTS = 1 << 16
"""About how many elements are transposed at a time: 256 KiB, which stay in the cache."""


def _record_transposed(tape: Operations, source: Array, panels: Panels, start: int) -> None:
    """Records that the rows of the source become columns of the panels, from `start` on."""
    columns = source.shape[1] + PADDING
    height = max(TRANSPOSED_ELEMENTS // (columns * WIDTH), 1) * WIDTH
    with tape.passing():
        memory = tape.scratch(height, columns)
        for first in range(0, len(source), height):
            rows = source[first : first + height]
            copy = memory[: len(rows), : rows.shape[1]]
            tape.copy(rows, copy)
            panels.record_copy(tape, copy.T, start + first)


class TileFactors:
    """The factors for parameters A = [A_0 A_1 ...], (output_dim, taps * input_dim)."""

    def __init__(
        self,
        store: ComponentStore,
        linear: Array,
        taps: Array,
        parts: Sequence[Part],
        *,
        in_panels: bool,
    ) -> None:
        """Prepares the factors of some parts.

        Args:
            store: Keeps the factors of fixed parameters.
            linear: A, which can be a view of columns of a larger matrix.
            taps: G, (products, taps).
            parts: All parts.
            in_panels: Whether factors are laid out in panels.
        """
        self._store, self._linear, self._taps, self._parts = store, linear, taps, parts
        self._in_panels = in_panels

    def by_tap(self, matrix: Array, part: Part) -> Array:
        """A part of (output_dim, taps * input_dim) as (outputs, taps, inputs): a view."""
        by_tap = matrix.reshape(len(matrix), self._taps.shape[1], -1)
        return by_tap[part.outputs, :, part.inputs]

    def memory(self, tape: Operations, count: int) -> Array:
        """Scratch memory for `count` factors of any part."""
        return tape.scratch(count * max(math.prod(part.shape) for part in self._parts))

    def of_part(self, memory: Array, part: Part, count: int) -> Array:
        """The factors of a part in that memory: (factors, outputs, inputs)."""
        return memory[: count * math.prod(part.shape)].reshape(count, *part.shape)

    def forward(self, tape: Operations, part: Part) -> Sequence[Array | Panels]:
        """Records the computation of the factors of x A^T, each (inputs, outputs)."""
        if self._store.is_fixed:
            return self._fixed(part)
        return self._changing(tape, part, transposed=True)

    def backward(self, tape: Operations, part: Part) -> Sequence[Array | Panels]:
        """Records the computation of the factors of dy A, each (outputs, inputs)."""
        return self._changing(tape, part, transposed=False)

    def _fixed(self, part: Part) -> Sequence[Array | Panels]:
        def record(tape: Operations) -> list[list[Array]]:
            memories = [self.memory(tape, self._num_sums) for _ in self._parts]
            wholes = [
                self._whole(tape, each, memory)
                for each, memory in zip(self._parts, memories, strict=True)
            ]
            return [whole[1:-1] if self._in_panels else whole for whole in wholes]

        groups = self._store.fixed_factors(
            self._linear, self._taps.shape, record, in_panels=self._in_panels
        )
        if not self._in_panels:
            return groups[part.number]
        # Products of few rows use the same panels: see `record_by_taps`.
        of_taps = self.by_tap(self._linear, part)
        first, last = (self._store.panels(of_taps[:, tap]) for tap in (0, -1))
        return [first, *groups[part.number], last]

    def _changing(
        self, tape: Operations, part: Part, *, transposed: bool
    ) -> Sequence[Array | Panels]:
        if self._in_panels:
            memory = self.memory(tape, self._num_sums + self._taps.shape[1])
            return self._panels(tape, part, memory, transposed=transposed)
        factors = self._whole(tape, part, self.memory(tape, self._num_sums))
        return [factor.T for factor in factors] if transposed else factors

    def _whole(self, tape: Operations, part: Part, memory: Array) -> list[Array]:
        """Records G w, each (outputs, inputs): the first and last are views of the parameters."""
        of_taps = self.by_tap(self._linear, part)
        sums = self.of_part(memory, part, self._num_sums)
        tape.small_products(self._taps[1:-1], of_taps, sums.transpose(1, 0, 2))
        return [of_taps[:, 0], *sums, of_taps[:, -1]]

    def _panels(
        self, tape: Operations, part: Part, memory: Array, *, transposed: bool
    ) -> Sequence[Panels]:
        """Records G w in panels: copies of parameters, and sums of the panels.

        Args:
            tape: Records the arithmetic.
            part: The columns.
            memory: Memory for all taps and sums.
            transposed: Whether factors are (inputs, outputs), not (outputs, inputs).
        """
        count, of_taps = self._taps.shape[1], self.by_tap(self._linear, part)
        rows = self.of_part(memory, part, count + self._num_sums).reshape(-1, math.prod(part.shape))
        inner, columns = part.shape[::-1] if transposed else part.shape
        panels = [Panels.within(row, (inner, columns)) for row in rows]
        # A thread sums up the panels that it has copied, so it need not wait for other threads.
        for share in tape.shared(-(-columns // WIDTH), rows.size):
            start, end = share.start * WIDTH, min(share.stop * WIDTH, columns)
            for tap in range(count):
                if not transposed:
                    panels[tap].record_copy(tape, of_taps[:, tap, start:end], start)
                elif of_taps.strides[0] % SAME_SET:
                    panels[tap].record_copy(tape, of_taps[start:end, tap].T, start)
                else:
                    _record_transposed(tape, of_taps[start:end, tap], panels[tap], start)
            for place in panels[0].places(start, end):
                tape.small_products(self._taps[1:-1], rows[:count, place], rows[count:, place])
        return [panels[0], *panels[count:], panels[count - 1]]

    @property
    def _num_sums(self) -> int:
        """Number of factors that are sums, not parameters of one tap."""
        return len(self._taps) - 2
