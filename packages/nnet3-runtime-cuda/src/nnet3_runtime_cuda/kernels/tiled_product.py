"""Products of rows spliced over time, by tiles, with fewer multiplications.

With two taps, minimal filtering over time, F(3, 2), takes four products for three frames instead of
six. With the matrices of `MinimalFiltering`,

    y = A^T ((G w) (B^T x)),

and the backward pass transposes everything: the derivative of the products is A dy, the derivative
of x is B times the transposed products, and the gradient of w is G^T times the gradients of the
products.

The wider side, input or output, is computed in parts of its columns (`tile_parts`) and in blocks of
rows, so that transformed values stay in the cache.

With parameters in panels, each thread has its own blocks, which it computes from end to end. Each
thread also lays out for itself the parameters that can change: fetching them from another thread's
cache takes as long. Without panels this would take too much memory, and threads share the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Self

import numpy as np

from nnet3_runtime_cuda.kernels.base import ComponentStore
from nnet3_runtime_cuda.kernels.parameters import record_factor_product
from nnet3_runtime_cuda.kernels.tile_parts import (
    PART_COLUMNS,
    Part,
    TileFactors,
    fixed_parts,
    most_fixed_columns,
    parts_of,
)
from nnet3_runtime_cuda.kernels.time_tiles import Run, TileBlock, TimeTiles
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.panels import ROWS
from nnet3_runtime_cuda.operations.scratch import even_parts, parts_of_at_most

CHANGING_PART_COLUMNS = 384
"""`PART_COLUMNS` for panels of parameters that can change. Their factors take scratch memory. Sums
have no more terms at a time than those of the BLAS library, because longer sums round more."""

BLOCK_ROWS = 288
"""Rows of each product in a block: with fewer, products are slower; with more, transforms are."""

PANEL_BLOCK_BYTES = 6 << 20
"""Bytes of a block with parameters in panels, if both sides are about as wide. Panels lose less
with few rows, so such a block has all columns and fewer rows."""

PANEL_BLOCK_ROWS = 96
"""The fewest rows of each product in such a block."""

MOST_CHANGING_TAPS = 2
"""With more taps, panels of changing parameters take more memory than they are worth."""

FEWEST_COLUMNS = 64
"""Products with fewer columns of input or output are not computed by tiles."""

FEWEST_FIXED_ROWS, FEWEST_WITHOUT_PANELS = 48, 100
"""Products with fewer rows are not computed by tiles: transformed parameters take up to twice the
memory, and have to be read from it. Without panels, products of a quarter of the rows are slower,
too."""

FEWEST_CHANGING_ROWS = 256
"""The same where parameters can change: they are transformed for each product."""


Memory = Callable[[TileBlock], Array]
"""The memory for transformed rows of a block: (products of a tile, rows of the block, columns)."""

Share = tuple[Run, Memory, Memory]
"""The work of a thread for a part: blocks of rows, memory of the inputs and of the outputs."""


def _fewest_columns(linear: Array, num_taps: int) -> int:
    """The columns of the narrower side."""
    columns: int = min(len(linear), linear.shape[1] // num_taps)
    return columns


def goes_by_taps(tape: Tape, store: ComponentStore, linear: Array, offsets: Sequence[int]) -> bool:
    """Whether direct products are sums of two products, one for each tap: where tiles exist, too.

    So the parameters of a tap stand in memory in one layout, whatever the numbers of rows. With
    more taps, tiles have no factor for those in the middle, and few rows would take a tenth longer.
    """
    return (
        store.is_fixed
        and len(offsets) == 2
        and offsets[0] < offsets[1]
        and store.takes_tiles(tape)
        and tape.gains_by_panels(ROWS[-1])
        and _fewest_columns(linear, len(offsets)) >= FEWEST_COLUMNS
    )


def record_by_taps(
    tape: Tape, store: ComponentStore, linear: Array, xs: Sequence[Array], y: Array, *, add: bool
) -> None:
    """Records y (+)= sum over taps k of xs[k] A_k^T.

    Args:
        tape: Records the arithmetic.
        store: Keeps the panels.
        linear: A, (output_dim, taps * input_dim).
        xs: For each tap (rows, input_dim).
        y: (rows, output_dim).
        add: Whether to add to the contents of `y`.
    """
    by_tap = linear.reshape(len(linear), len(xs), -1)
    for part in fixed_parts(by_tap.shape[2], len(linear)):
        for tap, x in enumerate(xs):
            factor = store.panels(by_tap[part.outputs, tap, part.inputs])
            adds = add or tap > 0 or not part.begins_outputs
            with tape.passing():
                record_factor_product(tape, x[:, part.inputs], factor, y[:, part.outputs], add=adds)


class TiledProduct:
    """y[r] (+)= sum over taps k of x[first + r + k distance] A_k^T by tiles, and its derivatives.

    The parameters are A = [A_0 A_1 ...], (output_dim, taps * input_dim). `around` returns such a
    product for a splice whose source rows have equal distances, if it is faster.
    """

    def __init__(
        self,
        store: ComponentStore,
        linear: Array,
        tiles: TimeTiles,
        *,
        in_panels: bool,
        threads: int = 1,
    ) -> None:
        """Plans parts and blocks.

        Args:
            store: Keeps the factors of fixed parameters.
            linear: A, (output_dim, taps * input_dim); it can be a view of a larger matrix.
            tiles: The tiles of all rows.
            in_panels: Whether parameters are laid out in panels.
            threads: Number of threads.
        """
        self._tiles = tiles
        input_dim, output_dim = linear.shape[1] // tiles.taps.shape[1], len(linear)
        narrow, wide = sorted((input_dim, output_dim))
        most_columns, most_rows = PART_COLUMNS, BLOCK_ROWS
        if in_panels and not store.is_fixed:
            most_columns = CHANGING_PART_COLUMNS
        elif not store.is_fixed:
            # Their factors then take no more scratch memory than a splice of these rows would.
            num_taps = tiles.taps.shape[1]
            most_columns = min(most_columns, tiles.rows * num_taps // tiles.num_products)
        elif in_panels and most_fixed_columns(narrow, wide) == wide:
            row_bytes = tiles.num_products * (narrow + wide) * linear.itemsize
            most_columns = wide
            most_rows = min(max(PANEL_BLOCK_BYTES // row_bytes, PANEL_BLOCK_ROWS), BLOCK_ROWS)
        count, shared_by = (threads, 1) if in_panels else (1, threads)
        most_rows *= shared_by
        # The last block can have one tile more than the others.
        blocks = tiles.blocks(most_rows - tiles.distance, multiple_of=count)
        self._runs = [blocks[part] for part in even_parts(len(blocks), count)]
        # Rows of each product in working memory, if it does not hold all rows.
        self._memory_rows = max(block.rows for block in blocks)
        if len(blocks) > count:
            # The same size for all layers: scratch arrays of equal size share memory.
            self._memory_rows = max(self._memory_rows, most_rows)
        spans = parts_of_at_most(wide, most_columns)
        self._is_wide_input = input_dim > output_dim
        self._parts = parts_of(spans, slice(0, narrow), is_wide_input=self._is_wide_input)
        self._narrow_columns = narrow
        self._part_columns = max(span.stop - span.start for span in spans)
        self._factors = TileFactors(store, linear, tiles.taps, self._parts, in_panels=in_panels)

    @classmethod
    def around(
        cls,
        tape: Tape,
        store: ComponentStore,
        linear: Array,
        offsets: Sequence[int],
        rows: int,
        *,
        is_precise: bool = False,
    ) -> Self | None:
        """The product for some output rows, or None if a direct one is as fast.

        Args:
            tape: The tape that would record the product.
            store: Keeps the factors of fixed parameters.
            linear: (output_dim, taps * input_dim), A.
            offsets: For each tap, the input row of output row 0; row r needs r rows later.
            rows: Number of output rows.
            is_precise: See `TimeTiles.at`.
        """
        if not store.takes_tiles(tape) or _fewest_columns(linear, len(offsets)) < FEWEST_COLUMNS:
            return None
        # Panels are fast for any number of rows, as blocks of so few rows lie in the cache.
        in_panels = tape.gains_by_panels(ROWS[-1])
        fewest = FEWEST_FIXED_ROWS if in_panels else FEWEST_WITHOUT_PANELS
        if rows < (fewest if store.is_fixed else FEWEST_CHANGING_ROWS):
            return None
        tiles = TimeTiles.at(offsets, rows, store.dtype, is_precise=is_precise)
        in_panels &= store.is_fixed or len(offsets) <= MOST_CHANGING_TAPS
        if tiles is None:
            return None
        return cls(store, linear, tiles, in_panels=in_panels, threads=tape.threads)

    # ---- forward ----

    def record_forward(
        self, tape: Tape, x: Array, y: Array, *, bias: Array | None = None, add: bool = False
    ) -> None:
        """Records y = the products + bias, or y += the products + bias.

        Args:
            tape: Records the arithmetic.
            x: (rows in, input_dim).
            y: (rows, output_dim).
            bias: (output_dim,).
            add: Whether to add to the contents of `y`.
        """
        with tape.passing():
            kept = self._kept_memory(tape)
            for part in self._parts:
                for share in self._shares(tape, part, self._runs, kept):
                    self._record_share_forward(tape, part, share, x, y, bias=bias, add=add)

    def _record_share_forward(
        self,
        tape: Tape,
        part: Part,
        share: Share,
        x: Array,
        y: Array,
        *,
        bias: Array | None,
        add: bool,
    ) -> None:
        """Records the work of one thread."""
        tiles, (run, inputs, outputs) = self._tiles, share
        factors = self._factors.forward(tape, part)
        for block in run:
            frames, products = inputs(block), outputs(block)
            if part.begins_inputs:
                tiles.record_inputs(tape, block, x[:, part.inputs], frames[:, None])
            for k, frame in enumerate(frames):
                plus = None
                if bias is not None and k == tiles.in_all_outputs and part.begins_outputs:
                    plus = bias[None, part.outputs]
                add_product = not part.begins_outputs
                with tape.passing():
                    record_factor_product(
                        tape, frame, factors[k], products[k], add=add_product, plus=plus
                    )
            if part.ends_outputs:
                self._record_outputs(tape, block, products, y[:, part.outputs], add=add)

    def _record_outputs(
        self, tape: Tape, block: TileBlock, products: Array, y: Array, *, add: bool
    ) -> None:
        """Records the output rows of a block."""
        if not add:
            self._tiles.record_outputs(tape, block, products, y)
            return
        rows = y[self._tiles.output_rows(block)]
        with tape.passing():
            before = tape.scratch(*rows.shape)
            tape.copy(rows, before)
            self._tiles.record_outputs(tape, block, products, y)
            tape.add(rows, before, rows)

    # ---- backward ----

    def record_input_derivative(self, tape: Tape, dy: Array, dx: Array, *, add: bool) -> None:
        """Records dx = the derivative of the input, or dx += that.

        Args:
            tape: Records the arithmetic.
            dy: (rows, output_dim).
            dx: (rows in, input_dim).
            add: Whether to add to the contents of `dx`.
        """
        tiles = self._tiles
        with tape.passing():
            kept = self._kept_memory(tape)
            tiles.begin_input_derivatives(tape, dx, add=add)
            for part in self._parts:
                with tape.passing():
                    runs = self._derivative_runs
                    runs = tiles.bordered(tape, runs, part.shape[1])
                    for share in self._shares(tape, part, runs, kept):
                        self._record_share_backward(tape, part, share, dy, dx, add=add)
                    if part.ends_inputs:
                        tiles.record_borders(tape, runs, dx[:, part.inputs])

    def _record_share_backward(
        self, tape: Tape, part: Part, share: Share, dy: Array, dx: Array, *, add: bool
    ) -> None:
        """Records the work of one thread, except for rows that belong to another thread."""
        tiles, (run, inputs, outputs) = self._tiles, share
        dx, dy = dx[:, part.inputs], dy[:, part.outputs]
        factors = self._factors.backward(tape, part)
        largest = max(run, key=lambda block: block.rows)
        sums = tiles.sum_memory(tape, inputs(largest), add=add)
        # From the last block to the first: see `TimeTiles.record_input_derivatives`.
        for block in run[::-1]:
            dys, dxs = outputs(block), inputs(block)
            if part.begins_outputs:
                tiles.record_output_derivatives(tape, block, dy, dys)
            for frame, factor, product in zip(dys, factors, dxs, strict=True):
                with tape.passing():
                    record_factor_product(tape, frame, factor, product, add=not part.begins_inputs)
            if part.ends_inputs:
                tiles.record_input_derivatives(tape, block, dxs[:, None], sums, dx, add=add)

    def record_gradient(
        self, tape: Tape, x: Array, dy: Array, out: Array, scale: Array | None, add: bool
    ) -> None:
        """Records out = scale dy^T X, or out += that, where X is the splice of the rows of x.

        Args:
            tape: Records the arithmetic.
            x: (rows in, input_dim).
            dy: (rows, output_dim).
            out: (output_dim, taps * input_dim).
            scale: (1,) float64; None for 1.
            add: Whether to add to the contents of `out`.
        """
        tiles, taps, runs = self._tiles, self._tiles.taps.T, self._runs
        with tape.passing():
            count = len(runs) * tiles.num_products
            memory = self._factors.memory(tape, count)
            kept = self._kept_memory(tape)
            terms = self._factors.memory(tape, len(taps)) if add else None
            # The transform also adds up the threads' gradients.
            matrix = np.tile(taps, len(runs))
            if scale is not None:
                taps, matrix = matrix, tape.scratch(*matrix.shape)
                factor = tape.scratch(1)
                tape.copy(scale, factor)
                tape.multiply(taps, factor, matrix)
            for part in self._parts:
                gradients = self._factors.of_part(memory, part, count)
                each = gradients.reshape(len(runs), tiles.num_products, *part.shape)
                shares = self._shares(tape, part, runs, kept)
                for share, gradient in zip(shares, each, strict=True):
                    self._record_share_gradient(tape, part, share, x, dy, gradient)
                total = self._factors.by_tap(out, part)
                products = gradients.transpose(1, 0, 2)
                if terms is None:
                    tape.small_products(matrix, products, total)
                    continue
                term = self._factors.of_part(terms, part, total.shape[1]).reshape(total.shape)
                tape.small_products(matrix, products, term)
                tape.add(total, term, total)

    def _record_share_gradient(
        self, tape: Tape, part: Part, share: Share, x: Array, dy: Array, gradients: Array
    ) -> None:
        """Records the work of one thread; overwrites gradients, (products, outputs, inputs)."""
        tiles, (run, inputs, outputs) = self._tiles, share
        for block in run:
            dys, xs = outputs(block), inputs(block)
            if part.begins_outputs:
                tiles.record_output_derivatives(tape, block, dy[:, part.outputs], dys)
            if part.begins_inputs:
                tiles.record_inputs(tape, block, x[:, part.inputs], xs[:, None])
            for each_dy, each_x, gradient in zip(dys, xs, gradients, strict=True):
                with tape.passing():
                    tape.matmul(each_dy.T, each_x, gradient, add=block is not run[0])

    # ---- the work of each thread ----

    @property
    def _derivative_runs(self) -> Sequence[Run]:
        """The runs for the derivative of the input: one, if runs share more than their borders."""
        if self._tiles.reaches_next_only:
            return self._runs
        return [[block for run in self._runs for block in run]]

    def _kept_memory(self, tape: Tape) -> Array | None:
        """Scratch memory for all rows of the narrower side; None if there is only one part."""
        if len(self._parts) == 1:
            return None
        last = self._runs[-1][-1]
        return tape.scratch(self._tiles.num_products, last.place + last.rows, self._narrow_columns)

    def _shares(
        self, tape: Tape, part: Part, runs: Sequence[Run], kept: Array | None
    ) -> Iterator[Share]:
        """The work of each thread for a part, in a loop of `Tape.independent`.

        Args:
            tape: Gives each round its memory.
            part: The columns.
            runs: The blocks of rows; a round each.
            kept: The result of `_kept_memory`.
        """
        own = part.shape[1] if self._is_wide_input else part.shape[0]
        for run in tape.independent(runs):
            sizes = self._tiles.num_products, self._memory_rows
            # The larger array first, so that the arrays of all layers fit the same memory.
            wide = partial(_first_rows, tape.scratch(*sizes, self._part_columns)[:, :, :own])
            if kept is None:
                narrow = partial(_first_rows, tape.scratch(*sizes, self._narrow_columns))
            else:
                narrow = partial(_own_rows, kept)
            yield (run, wide, narrow) if self._is_wide_input else (run, narrow, wide)


def _first_rows(memory: Array, block: TileBlock) -> Array:
    """Memory that all blocks use in turn."""
    return memory[:, : block.rows]


def _own_rows(memory: Array, block: TileBlock) -> Array:
    """Memory in which each block has its own rows."""
    return memory[:, block.place : block.place + block.rows]
