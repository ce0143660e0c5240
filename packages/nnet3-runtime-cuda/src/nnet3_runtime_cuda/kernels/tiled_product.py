"""Products of rows spliced over time, by tiles, with fewer multiplications.

With two taps, minimal filtering over time, F(3, 2), takes four products for three frames instead of
six. With the matrices of `MinimalFiltering`,

    y = A^T ((G w) (B^T x)),

and the backward pass transposes everything: the derivative of the products is A dy, the derivative
of x is B times the transposed products, and the gradient of w is G^T times the gradients of the
products.

`TileBlocking` divides the work among threads and into blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from nnet3_runtime_cuda.kernels.base import ComponentStore
from nnet3_runtime_cuda.kernels.parameters import record_factor_product
from nnet3_runtime_cuda.kernels.tile_parts import (
    Part,
    Share,
    TileBlocking,
    TileFactors,
    fixed_parts,
)
from nnet3_runtime_cuda.kernels.time_tiles import TileBlock, TimeTiles
from nnet3_runtime_cuda.operations import Array, Operations
from nnet3_runtime_cuda.operations.panels import ROWS

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


def _fewest_columns(linear: Array, num_taps: int) -> int:
    """The columns of the narrower side."""
    columns: int = min(len(linear), linear.shape[1] // num_taps)
    return columns


def goes_by_taps(
    tape: Operations, store: ComponentStore, linear: Array, offsets: Sequence[int]
) -> bool:
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
    tape: Operations,
    store: ComponentStore,
    linear: Array,
    xs: Sequence[Array],
    y: Array,
    *,
    add: bool,
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
        self._blocking = TileBlocking.of(
            tiles,
            linear.shape[1] // tiles.taps.shape[1],
            len(linear),
            itemsize=linear.itemsize,
            is_fixed=store.is_fixed,
            in_panels=in_panels,
            threads=threads,
        )
        parts = self._blocking.parts
        self._factors = TileFactors(store, linear, tiles.taps, parts, in_panels=in_panels)

    @classmethod
    def around(
        cls,
        tape: Operations,
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
        self, tape: Operations, x: Array, y: Array, *, bias: Array | None = None, add: bool = False
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
            kept = self._blocking.kept_memory(tape)
            for part in self._blocking.parts:
                for share in self._blocking.shares(tape, part, self._blocking.runs, kept):
                    self._record_share_forward(tape, part, share, x, y, bias=bias, add=add)

    def _record_share_forward(
        self,
        tape: Operations,
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
        self, tape: Operations, block: TileBlock, products: Array, y: Array, *, add: bool
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

    def record_input_derivative(self, tape: Operations, dy: Array, dx: Array, *, add: bool) -> None:
        """Records dx = the derivative of the input, or dx += that.

        Args:
            tape: Records the arithmetic.
            dy: (rows, output_dim).
            dx: (rows in, input_dim).
            add: Whether to add to the contents of `dx`.
        """
        tiles = self._tiles
        with tape.passing():
            kept = self._blocking.kept_memory(tape)
            tiles.begin_input_derivatives(tape, dx, add=add)
            for part in self._blocking.parts:
                with tape.passing():
                    runs = self._blocking.derivative_runs
                    runs = tiles.bordered(tape, runs, part.shape[1])
                    for share in self._blocking.shares(tape, part, runs, kept):
                        self._record_share_backward(tape, part, share, dy, dx, add=add)
                    if part.ends_inputs:
                        tiles.record_borders(tape, runs, dx[:, part.inputs])

    def _record_share_backward(
        self, tape: Operations, part: Part, share: Share, dy: Array, dx: Array, *, add: bool
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
        self,
        tape: Operations,
        x: Array,
        dy: Array,
        out: Array,
        scale: Array | None,
        add: bool,
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
        tiles, taps, runs = self._tiles, self._tiles.taps.T, self._blocking.runs
        with tape.passing():
            count = len(runs) * tiles.num_products
            memory = self._factors.memory(tape, count)
            kept = self._blocking.kept_memory(tape)
            terms = self._factors.memory(tape, len(taps)) if add else None
            # The transform also adds up the threads' gradients.
            matrix = np.tile(taps, len(runs))
            if scale is not None:
                taps, matrix = matrix, tape.scratch(*matrix.shape)
                factor = tape.scratch(1)
                tape.copy(scale, factor)
                tape.multiply(taps, factor, matrix)
            for part in self._blocking.parts:
                gradients = self._factors.of_part(memory, part, count)
                each = gradients.reshape(len(runs), tiles.num_products, *part.shape)
                shares = self._blocking.shares(tape, part, runs, kept)
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
        self, tape: Operations, part: Part, share: Share, x: Array, dy: Array, gradients: Array
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
