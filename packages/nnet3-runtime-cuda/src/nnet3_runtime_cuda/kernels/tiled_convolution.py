"""Convolution over time and height by tiles, with fewer multiplications.

With three time offsets, minimal filtering over time, F(4, 3), takes six products for four frames
instead of twelve. Over height, F(2, 3) takes four products for two heights instead of six. With the
matrices of `MinimalFiltering` (those of height within those of time),

    y = A^T ((G w) (B^T x))

where each product multiplies the filters of the input by a matrix of parameters. The backward pass
transposes everything. The derivative of the products is A dy. The derivative of x is B times the
transposed products. The gradient of w is G^T times the gradients of the products.

A direction that cannot be tiled has one product: of the input at all time offsets side by side
(`UntiledRows`), or of patches of heights (`UntiledHeights`).
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from nnet3_descriptors.components import TimeOffsetPrecomputedIndexes

from nnet3_runtime_cuda.kernels.base import Backpropagation, ComponentStore, Propagation
from nnet3_runtime_cuda.kernels.heights import HeightTiles, UntiledHeights
from nnet3_runtime_cuda.kernels.parameters import record_factor_product, rows_at_offsets
from nnet3_runtime_cuda.kernels.time_tiles import Run, TileBlock, Tiles, TimeTiles
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.panels import ROWS, Panels
from nnet3_runtime_cuda.operations.scratch import even_parts, parts_of_at_most

BLOCK_ROWS = 96
"""Rows of the input, counted over all products over time, that a thread computes at a time."""


class UntiledRows(NamedTuple):
    """Output rows, each with one product: of the input at all time offsets side by side.

    Attributes:
        indexes: The input rows of each time offset.
        rows: Number of output rows.
        num_parts: Number of time offsets.
        taps: (1, 1), one: the parameters are not transformed.
        num_products: Number of products for an output row: 1.
        reaches_next_only: False: input rows can belong to output rows that are far apart.
    """

    indexes: TimeOffsetPrecomputedIndexes
    rows: int
    num_parts: int
    taps: Array
    num_products: int = 1
    reaches_next_only: bool = False

    @classmethod
    def of(
        cls, indexes: TimeOffsetPrecomputedIndexes, rows: int, dtype: np.dtype[np.floating]
    ) -> Self:
        """The output rows 0 to rows - 1."""
        num_parts, taps = len(indexes.row_offsets), np.ones((1, 1), dtype)
        return cls(indexes=indexes, rows=rows, num_parts=num_parts, taps=taps)

    def blocks(self, most_rows: int, *, multiple_of: int = 1) -> list[TileBlock]:
        """The rows in blocks of nearly the same size.

        Args:
            most_rows: The most rows of a block; each block has at least one.
            multiple_of: The number of blocks is a multiple of this, if there are enough rows.
        """
        parts = parts_of_at_most(self.rows, most_rows, multiple_of=multiple_of)
        pieces = [Tiles(part.start, part.stop - part.start, 0) for part in parts]
        return [TileBlock((piece,), piece.start, piece.num_tiles) for piece in pieces]

    def output_rows(self, block: TileBlock) -> slice:
        """The output rows of a block."""
        start = block.pieces[0].start
        return slice(start, start + block.rows)

    def record_inputs(self, tape: Tape, block: TileBlock, x: Array, out: Array) -> None:
        """Records out = x at each time offset; out: (1, time offsets, rows of the block, cols)."""
        parts = rows_at_offsets(x, self.indexes, self.rows)
        for part, target in zip(parts, out[0], strict=True):
            tape.copy(part[self.output_rows(block)], target)

    def record_outputs(self, tape: Tape, block: TileBlock, products: Array, y: Array) -> None:
        """Records y = the products, (1, rows of the block, cols)."""
        tape.copy(products[0], y[self.output_rows(block)])

    def record_output_derivatives(
        self, tape: Tape, block: TileBlock, dy: Array, out: Array
    ) -> None:
        """Records out = dy."""
        tape.copy(dy[self.output_rows(block)], out[0])

    def sum_memory(self, tape: Tape, products: Array) -> Array:
        """No memory: products are added straight to dx."""
        return tape.scratch(0)

    def record_input_derivatives(
        self, tape: Tape, block: TileBlock, products: Array, memory: Array, dx: Array
    ) -> None:
        """Records the addition of the products to dx at each time offset."""
        parts = rows_at_offsets(dx, self.indexes, self.rows)
        for part, source in zip(parts, products[0], strict=True):
            target = part[self.output_rows(block)]
            tape.add(target, source, target)


_Memory = tuple[Array, Array]
"""Memory for transformed rows of the input, or of the output: rows transformed over time, (products
over time, ..., rows, columns); and one of these frames transformed over height, (products, rows,
tiles, columns)."""


def _rows_of(memory: _Memory, block: TileBlock) -> _Memory:
    """The part of the memory for the rows of a block."""
    frames, products = memory
    return frames[..., : block.rows, :], products[:, : block.rows]


class TiledConvolution:
    """A convolution whose time offsets all have the same height offsets, computed by tiles."""

    def __init__(
        self,
        store: ComponentStore,
        times: TimeTiles | UntiledRows,
        heights: HeightTiles | UntiledHeights,
    ) -> None:
        """Takes the parameters from the store.

        Args:
            store: The component's parameters; it keeps the factors of fixed ones.
            times: The products over time.
            heights: The products over height, within each product over time.
        """
        self._store, self._times, self._heights = store, times, heights
        self._linear = store.parameters["linear_params"]
        self._bias = store.parameters["bias_params"]
        self._filters_out = len(self._linear)
        self._taps = np.kron(times.taps, heights.taps)

    # ---- forward ----

    def record_forward(self, p: Propagation) -> None:
        """Records the forward pass."""
        tape, filters = p.tape, self._forward_filters(p.tape)
        for run in tape.independent(self._runs(tape, are_apart=True)):
            self._record_run_forward(p, run, filters)

    def _record_run_forward(
        self, p: Propagation, run: Run, filters: list[list[Array | Panels]]
    ) -> None:
        """Records the work of one thread."""
        tape, times, heights = p.tape, self._times, self._heights
        inputs = self._input_memory(tape, run, is_set=True)
        outputs = self._output_memory(tape, run, p.y.shape[1])
        for block in run:
            (frames, in_tiles), (results, out_tiles) = (
                _rows_of(memory, block) for memory in (inputs, outputs)
            )
            times.record_inputs(tape, block, p.x[:, heights.used], heights.inside(frames))
            for frame, output, factors in zip(frames, results, filters, strict=True):
                heights.record_inputs(tape, frame, in_tiles)
                products = heights.output_products(out_tiles, output)
                sources, targets = _by_height(in_tiles), _by_height(products)
                for source, factor, target in zip(sources, factors, targets, strict=True):
                    record_factor_product(tape, source, factor, target)
                heights.record_outputs(tape, products, output)
            times.record_outputs(tape, block, results, p.y)
            rows = p.y[times.output_rows(block)].reshape(-1, self._filters_out)
            tape.add(rows, self._bias, rows)

    # ---- backward ----

    def record_backward(self, b: Backpropagation, gradient: Array | None) -> None:
        """Records the derivative of the input and the gradient of the parameters without the bias.

        Args:
            b: The operands.
            gradient: The array that the gradient is added to, in the shape of linear_params; None
                if no gradient is wanted.
        """
        tape, heights, times = b.tape, self._heights, self._times
        runs = self._runs(tape, are_apart=b.dx is None or times.reaches_next_only)
        filters, gradients = None, None
        if gradient is not None:
            gradients = self._filter_memory(tape, len(runs))
        if b.dx is not None:
            filters = self._filters(tape)
            if isinstance(times, TimeTiles):
                runs = times.bordered(tape, runs, b.dx[:, heights.used].shape[1])
            if not b.add:
                tape.fill(0.0, b.dx)
        for number, run in enumerate(tape.independent(runs)):
            own = None if gradients is None else gradients[:, number]
            self._record_run_backward(b, run, own, filters)
        if b.dx is not None and isinstance(times, TimeTiles):
            times.record_borders(tape, runs, b.dx[:, heights.used])
        if gradient is not None and gradients is not None:
            # The transform also adds up the threads' gradients.
            taps = np.tile(self._taps.T, len(runs))
            total = tape.scratch(*self._by_offset.shape)
            tape.matmul(taps, self._by_part(gradients), total)
            tape.add(gradient, total.reshape(gradient.shape), gradient)

    def _record_run_backward(
        self, b: Backpropagation, run: Run, gradients: Array | None, filters: Array | None
    ) -> None:
        """Records the work of one thread.

        Args:
            b: The operands.
            run: The thread's blocks.
            gradients: The thread's part of `_filter_memory`, which is overwritten; None if no
                gradient is wanted.
            filters: The factors of the products; None if dx is not wanted.
        """
        tape, times, heights = b.tape, self._times, self._heights
        outputs = self._output_memory(tape, run, b.dy.shape[1])
        inputs = self._input_memory(tape, run, is_set=True)
        if filters is not None:
            derivatives = self._input_memory(tape, run, is_set=False)
            sums = times.sum_memory(tape, heights.inside(derivatives[0]))
        if gradients is not None:
            tape.fill(0.0, gradients)
            gradients = gradients.transpose(1, 2, 0, 3)
        for block in run:
            (frames, in_tiles), (results, out_tiles) = (
                _rows_of(memory, block) for memory in (inputs, outputs)
            )
            times.record_output_derivatives(tape, block, b.dy, results)
            if gradients is not None:
                times.record_inputs(tape, block, b.x[:, heights.used], heights.inside(frames))
            for k, output in enumerate(results):
                products = heights.output_products(out_tiles, output)
                heights.record_output_derivatives(tape, output, products)
                dys = _by_height(products)
                if gradients is not None:
                    heights.record_inputs(tape, frames[k], in_tiles)
                    xs = _by_height(in_tiles)
                    for each_x, each_dy, gradient in zip(xs, dys, gradients[k], strict=True):
                        tape.matmul(each_dy.T, each_x, gradient, add=True)
                if filters is not None:
                    dx_frames, dx_tiles = _rows_of(derivatives, block)
                    dxs = _by_height(dx_tiles)
                    for each_dy, factor, each_dx in zip(dys, filters[k], dxs, strict=True):
                        tape.matmul(each_dy, factor, each_dx)
                    # The memory of the inputs is no longer used.
                    spare = inputs[1].reshape(-1)
                    heights.record_input_derivatives(tape, dx_tiles, spare, dx_frames[k])
            if filters is not None and b.dx is not None:
                used = heights.inside(_rows_of(derivatives, block)[0])
                target = b.dx[:, heights.used]
                times.record_input_derivatives(tape, block, used, sums, target)

    # ---- memory ----

    def _runs(self, tape: Tape, *, are_apart: bool) -> list[Run]:
        """Blocks of rows, a run for each thread.

        If the threads' blocks share rows of the input, there is one run, which threads share.
        """
        times = self._times
        count, shared_by = (tape.threads, 1) if are_apart else (1, tape.threads)
        most_rows = shared_by * BLOCK_ROWS // (times.num_products * times.num_parts)
        blocks = times.blocks(most_rows, multiple_of=count)
        return [blocks[part] for part in even_parts(len(blocks), count)]

    def _input_memory(self, tape: Tape, run: Run, *, is_set: bool) -> _Memory:
        """Scratch memory for rows of the input; is_set: whether the caller will write them."""
        products, parts = self._times.num_products, self._times.num_parts
        rows = max(block.rows for block in run)
        frames = self._heights.frames(tape, products, parts, rows, is_set=is_set)
        return frames, self._heights.input_memory(tape, rows, parts, is_set=is_set)

    def _output_memory(self, tape: Tape, run: Run, columns: int) -> _Memory:
        """Scratch memory for rows of the output."""
        rows = max(block.rows for block in run)
        frames = tape.scratch(self._times.num_products, rows, columns)
        return frames, self._heights.output_memory(tape, rows, self._filters_out)

    # ---- parameters ----

    @property
    def _by_offset(self) -> Array:
        """The parameters as (num_filters_out, parts, transformed offsets, columns): a view."""
        shape = self._filters_out, self._times.num_parts, self._taps.shape[1], -1
        return self._linear.reshape(shape)

    def _by_part(self, filters: Array) -> Array:
        """The array of `_filter_memory` in the order of `_by_offset`, products for offsets."""
        products = filters.shape[1] * len(self._taps)
        shape = self._filters_out, products, self._times.num_parts, -1
        return filters.reshape(shape).transpose(0, 2, 1, 3)

    def _filter_memory(self, tape: Tape, count: int) -> Array:
        """Scratch memory: (num_filters_out, count, products over time, over height, columns)."""
        products = self._times.num_products, self._heights.num_products
        columns = self._linear.shape[1] // self._taps.shape[1]
        return tape.scratch(self._filters_out, count, *products, columns)

    def _filters(self, tape: Tape) -> Array:
        """Records G w: (products over time, over height, num_filters_out, columns)."""
        filters = self._filter_memory(tape, 1)
        tape.matmul(self._taps, self._by_offset, self._by_part(filters))
        return filters[:, 0].transpose(1, 2, 0, 3)

    def _forward_filters(self, tape: Tape) -> list[list[Array | Panels]]:
        """The factors of the products, each (columns, num_filters_out)."""
        if not self._store.is_fixed:
            return [[factor.T for factor in group] for group in self._filters(tape)]
        # Panels are fast for any number of rows, as blocks of so few rows lie in the cache.
        return self._store.fixed_factors(
            self._linear,
            (self._times.num_products, self._heights.num_products),
            self._filters,
            in_panels=tape.gains_by_panels(ROWS[-1]),
        )


def _by_height(products: Array) -> Array:
    """(products, rows, heights, columns) as (products, rows * heights, columns): a view."""
    return products.reshape(len(products), -1, products.shape[3])
