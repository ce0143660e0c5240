"""Products of rows spliced over time, by tiles: with fewer multiplications.

Minimal filtering over time, F(3, 2) where there are two taps, takes four products for three frames,
where there are six otherwise. With the matrices of `MinimalFiltering`,

    y = A^T ((G w) (B^T x)),

and backward everything is transposed: the derivative of the products is A dy, that of x is B times
what the transposed products give, and that of w is G^T times the gradients of the products.

The side with more columns, input or output, is computed with by parts of its columns, and by blocks
of rows, so that what is transformed stays in the cache; the other side is transformed once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Self

import attrs

from ..panels import ROWS, Panels
from ..parts import even_parts
from ..tape import Array, Tape
from .base import ComponentStore
from .parameter_products import gains_by_panels
from .tile_factors import Part, TileFactors
from .time_tiles import TileBlock, TimeTiles, are_wanted

PART_COLUMNS = 768
"""So many columns of the wider side are computed with at a time."""

MOST_CHANGING_TAPS = 2
"""With more taps, panels of parameters that may change are not worth the memory of all taps."""

CHANGING_PART_COLUMNS = 384
"""The same with parameters that may change, in panels: their factors take scratch memory, and
products are to sum up no more terms at a time than the library's, as longer sums round more."""

BLOCK_ROWS = 288
"""So many rows of each product for a thread: with fewer, products are slower, with more,
transforms are."""

PANEL_BLOCK_BYTES = 6 << 20
"""With parameters in panels, which lose less with fewer rows, a block takes so much memory if both
sides are about as wide. It then has all columns."""

PANEL_BLOCK_ROWS = 96
"""But such a block has so many rows of each product at least."""

ABOUT_AS_WIDE = 2
"""Neither side has so many times the columns of the other."""

FEWEST_COLUMNS = 64
"""Products with fewer columns of input or output are not computed by tiles."""

FEWEST_ROWS = 100
"""Nor are those with fewer rows: transformed parameters are up to twice as many, and have to come
from memory."""

MANY_ROWS = 256
"""Nor are those with fewer rows if parameters may change, and have to be transformed each time."""


@attrs.frozen(kw_only=True)
class _Place:
    """Rows that are computed with at a time.

    Attributes:
        block: The tiles.
        rows: Of each product, where all rows are in memory.
    """

    block: TileBlock
    rows: slice


_Memory = Callable[[_Place, slice], Array]


class TiledProduct:
    """y[r] (+)= sum over taps k of x[first + r + k distance] A_k^T, by tiles; and its derivatives.

    A = [A_0 A_1 ...] are parameters, (output_dim, taps * input_dim). Where the source rows of a
    splice have equal distances, `around` gives such a product, if it pays.
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
        """Lays out parts and blocks.

        Args:
            store: Keeps the factors of fixed parameters.
            linear: (output_dim, taps * input_dim), A; perhaps some columns of a larger matrix.
            tiles: The rows.
            in_panels: Whether parameters are laid out in panels.
            threads: How many share the rows of a block.
        """
        self._linear, self._tiles = linear, tiles
        self._output_dim = len(linear)
        self._input_dim = linear.shape[1] // tiles.taps.shape[1]
        self._is_wide_input = self._input_dim > self._output_dim
        narrow, wide = sorted((self._input_dim, self._output_dim))
        is_whole = in_panels and store.is_fixed and wide < ABOUT_AS_WIDE * narrow
        is_changing = in_panels and not store.is_fixed
        most_columns = CHANGING_PART_COLUMNS if is_changing else PART_COLUMNS
        columns = even_parts(wide, 1 if is_whole else -(-wide // most_columns))
        everything = slice(0, narrow)
        self._parts = [
            Part(
                number=number,
                inputs=part if self._is_wide_input else everything,
                outputs=everything if self._is_wide_input else part,
                is_first=number == 0,
                is_last=number == len(columns) - 1,
            )
            for number, part in enumerate(columns)
        ]
        self._factors = TileFactors(store, linear, tiles.taps, self._parts, in_panels=in_panels)
        most_rows = threads * (self._whole_block_rows() if is_whole else BLOCK_ROWS)
        # The last block may have a tile more.
        blocks = tiles.blocks(most_rows - tiles.distance if is_whole else most_rows)
        self._memory_rows = max(block.rows for block in blocks)
        if is_whole and len(blocks) > 1:
            # As much for all rows and distances: scratch arrays of the same size share memory.
            self._memory_rows = max(self._memory_rows, most_rows)
        ends = list(itertools.accumulate(block.rows for block in blocks))
        self._places = [
            _Place(block=block, rows=slice(end - block.rows, end))
            for block, end in zip(blocks, ends, strict=True)
        ]

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
            tape: What is to record it.
            store: Keeps the factors of fixed parameters.
            linear: (output_dim, taps * input_dim), A.
            offsets: For each tap, the input row that output row 0 needs; row r needs r rows later.
            rows: Number of output rows.
            is_precise: See `TimeTiles.at`.
        """
        fewest_columns = min(len(linear), linear.shape[1] // len(offsets))
        if not are_wanted(tape) or fewest_columns < FEWEST_COLUMNS:
            return None
        if rows < (FEWEST_ROWS if store.is_fixed else MANY_ROWS):
            return None
        tiles = TimeTiles.at(offsets, rows, store.dtype, is_precise=is_precise)
        # Panels serve any number of rows, as parts of so few lie in the cache.
        in_panels = gains_by_panels(tape, ROWS[-1])
        in_panels &= store.is_fixed or len(offsets) <= MOST_CHANGING_TAPS
        if tiles is None:
            return None
        return cls(store, linear, tiles, in_panels=in_panels, threads=tape.threads)

    def _whole_block_rows(self) -> int:
        """How many rows of each product are computed with at a time, with all columns."""
        columns = self._tiles.num_products * (self._input_dim + self._output_dim)
        rows: int = PANEL_BLOCK_BYTES // (columns * self._linear.itemsize)
        return min(max(rows, PANEL_BLOCK_ROWS), BLOCK_ROWS)

    # ---- forward ----

    def record_forward(
        self, tape: Tape, x: Array, y: Array, *, bias: Array | None = None, add: bool = False
    ) -> None:
        """Records y = the products + bias, or y += that.

        Args:
            tape: Records the arithmetic.
            x: (rows in, input_dim).
            y: (rows, output_dim).
            bias: (output_dim,).
            add: Add to what `y` holds.
        """
        tiles, is_narrow = self._tiles, not self._is_wide_input
        with tape.passing():
            inputs, outputs = self._memories(tape)
            factors_of = self._factors.forward(tape)
            for part in self._parts:
                factors = factors_of(part)
                for place in self._places:
                    frames = inputs(place, part.inputs)
                    products = outputs(place, part.outputs)
                    if not is_narrow or part.is_first:
                        tiles.record_inputs(tape, place.block, x[:, part.inputs], frames[:, None])
                    is_sum = not is_narrow and not part.is_first
                    for k, frame in enumerate(frames):
                        plus = None
                        if bias is not None and k == tiles.in_all_outputs and not is_sum:
                            plus = bias[None, part.outputs]
                        _record_product(tape, frame, factors[k], products[k], add=is_sum, plus=plus)
                    if is_narrow or part.is_last:
                        target = y[:, part.outputs]
                        self._record_outputs(tape, place.block, products, target, add=add)

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
            add: Add to what `dx` holds.
        """
        tiles, is_narrow = self._tiles, not self._is_wide_input
        with tape.passing():
            inputs, derivatives = self._memories(tape)
            factors_of = self._factors.backward(tape)
            rows = max(self._places, key=lambda place: place.block.rows)
            columns = max(self._parts, key=lambda part: math.prod(part.shape)).inputs
            sums = tiles.sum_memory(tape, inputs(rows, columns), add=add)
            tiles.begin_input_derivatives(tape, dx, add=add)
            for part in self._parts:
                factors = factors_of(part)
                # The last block first: see `TimeTiles.record_input_derivatives`.
                for place in self._places[::-1]:
                    dys, dxs = derivatives(place, part.outputs), inputs(place, part.inputs)
                    if is_narrow or part.is_first:
                        source = dy[:, part.outputs]
                        tiles.record_output_derivatives(tape, place.block, source, dys)
                    is_sum = is_narrow and not part.is_first
                    for frame, factor, product in zip(dys, factors, dxs, strict=True):
                        _record_product(tape, frame, factor, product, add=is_sum)
                    if not is_narrow or part.is_last:
                        tiles.record_input_derivatives(
                            tape, place.block, dxs[:, None], sums, dx[:, part.inputs], add=add
                        )

    def record_gradient(
        self, x: Array, tape: Tape, dy: Array, out: Array, /, *, scale: Array | None, add: bool
    ) -> None:
        """Records out = scale dy^T X, or out += that, with the splice X of the rows of x.

        Args:
            x: (rows in, input_dim).
            tape: Records the arithmetic.
            dy: (rows, output_dim).
            out: (output_dim, taps * input_dim).
            scale: (1,) float64; None for 1.
            add: Add to what `out` holds.
        """
        tiles, is_wide_input, taps = self._tiles, self._is_wide_input, self._tiles.taps.T
        with tape.passing():
            inputs, derivatives = self._memories(tape)
            memory = self._factors.memory(tape, tiles.num_products)
            terms = self._factors.memory(tape, len(taps)) if add else None
            matrix = taps
            if scale is not None:
                matrix, factor = tape.scratch(*taps.shape), tape.scratch(1)
                tape.copy(scale, factor)
                tape.multiply(taps, factor, matrix)
            for part in self._parts:
                gradients = self._factors.of_part(memory, part, tiles.num_products)
                for place in self._places:
                    dys, xs = derivatives(place, part.outputs), inputs(place, part.inputs)
                    if not is_wide_input or part.is_first:
                        source = dy[:, part.outputs]
                        tiles.record_output_derivatives(tape, place.block, source, dys)
                    if is_wide_input or part.is_first:
                        tiles.record_inputs(tape, place.block, x[:, part.inputs], xs[:, None])
                    is_sum = place is not self._places[0]
                    for each_dy, each_x, gradient in zip(dys, xs, gradients, strict=True):
                        with tape.passing():
                            tape.matmul(each_dy.T, each_x, gradient, add=is_sum)
                total = self._factors.by_tap(out)[part.outputs, :, part.inputs]
                products = gradients.transpose(1, 0, 2)
                if terms is None:
                    tape.small_products(matrix, products, total)
                    continue
                term = self._factors.of_part(terms, part, len(taps)).reshape(total.shape)
                tape.small_products(matrix, products, term)
                tape.add(total, term, total)

    # ---- memory ----

    def _memories(self, tape: Tape) -> tuple[_Memory, _Memory]:
        """Scratch memory for input and output, each as `_memory` gives it."""
        # The larger one first: so all layers find room in the same memory.
        if self._is_wide_input:
            inputs = self._memory(tape, self._input_dim, is_wide=True)
            return inputs, self._memory(tape, self._output_dim, is_wide=False)
        outputs = self._memory(tape, self._output_dim, is_wide=True)
        return self._memory(tape, self._input_dim, is_wide=False), outputs

    def _memory(self, tape: Tape, columns: int, *, is_wide: bool) -> _Memory:
        """Scratch memory for one side: gives (products, rows, columns) for a place and a part.

        On the wide side all places and parts use the same; on the other one all parts do.
        """
        count = self._tiles.num_products
        if not is_wide and len(self._parts) > 1:
            memory = tape.scratch(count, self._places[-1].rows.stop, columns)
            return lambda place, part: memory[:, place.rows]
        rows = self._memory_rows
        spans = [part.inputs if self._is_wide_input else part.outputs for part in self._parts]
        width = max(span.stop - span.start for span in spans) if is_wide else columns
        memory = tape.scratch(count, rows, width)
        return lambda place, part: memory[:, : place.block.rows, : part.stop - part.start]


def _record_product(
    tape: Tape,
    x: Array,
    factor: Array | Panels,
    y: Array,
    *,
    add: bool,
    plus: Array | None = None,
) -> None:
    """Records y (+)= x times the factor, or y = plus + that; plus: (1, columns)."""
    with tape.passing():
        if isinstance(factor, Panels):
            factor.record(tape, x, y, add=add, plus=plus)
        else:
            tape.matmul(x, factor, y, add=add, plus=plus)
