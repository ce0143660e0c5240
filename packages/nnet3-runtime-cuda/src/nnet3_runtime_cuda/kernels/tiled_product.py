"""Products of rows spliced over time, by tiles: with fewer multiplications.

Minimal filtering over time, F(3, 2) where there are two taps, takes four products for three frames,
where there are six otherwise. With the matrices of `MinimalFiltering`,

    y = A^T ((G w) (B^T x)),

and backward everything is transposed: the derivative of the products is A dy, that of x is B times
what the transposed products give, and that of w is G^T times the gradients of the products.

The side with more columns, input or output, is computed with by parts of its columns, and by blocks
of rows, so that what is transformed stays in the cache; the other side is transformed once.

With parameters in panels threads have blocks of their own, which they compute from end to end, and
lay out parameters that may change each for itself: that takes no longer than to get them from the
cache of another one. Without, that would be too much memory, and threads share the blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Self

import attrs
import numpy as np

from ..panels import ROWS, Panels
from ..parts import even_parts, parts_of_at_most
from ..tape import Array, Tape
from .base import ComponentStore
from .parameter_products import gains_by_panels
from .tile_factors import Part, TileFactors
from .time_tiles import TileBlock, TileBorder, TimeTiles, are_wanted

PART_COLUMNS = 768
"""So many columns of the wider side are computed with at a time."""

MOST_CHANGING_TAPS = 2
"""With more taps, panels of parameters that may change are not worth the memory of all taps."""

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
_Run = Sequence[_Place]
"""Places that follow one another, which a thread computes in turn."""


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
            threads: How many there are.
        """
        self._linear, self._tiles = linear, tiles
        self._output_dim = len(linear)
        self._input_dim = linear.shape[1] // tiles.taps.shape[1]
        self._is_wide_input = self._input_dim > self._output_dim
        narrow, wide = sorted((self._input_dim, self._output_dim))
        is_whole = in_panels and store.is_fixed and wide < ABOUT_AS_WIDE * narrow
        is_changing = in_panels and not store.is_fixed
        most_columns = CHANGING_PART_COLUMNS if is_changing else PART_COLUMNS
        columns = parts_of_at_most(wide, wide if is_whole else most_columns)
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
        count, shared_by = (threads, 1) if in_panels else (1, threads)
        most_rows = shared_by * (self._whole_block_rows() if is_whole else BLOCK_ROWS)
        # The last block may have a tile more.
        blocks = tiles.blocks(most_rows - tiles.distance, multiple_of=count)
        self._memory_rows = max(block.rows for block in blocks)
        if len(blocks) > count:
            # As much for all rows and distances: scratch arrays of the same size share memory.
            self._memory_rows = max(self._memory_rows, most_rows)
        ends = list(itertools.accumulate(block.rows for block in blocks))
        places = [
            _Place(block=block, rows=slice(end - block.rows, end))
            for block, end in zip(blocks, ends, strict=True)
        ]
        self._rows = ends[-1]
        self._runs = [places[part] for part in even_parts(len(places), count)]
        self._derivative_runs = self._runs if tiles.reaches_next_only else [places]

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
        with tape.passing():
            kept = self._kept_memory(tape)
            for part in self._parts:
                for run in tape.independent(self._runs):
                    self._record_run_forward(tape, run, part, kept, x, y, bias=bias, add=add)

    def _record_run_forward(
        self,
        tape: Tape,
        run: _Run,
        part: Part,
        kept: Array | None,
        x: Array,
        y: Array,
        *,
        bias: Array | None,
        add: bool,
    ) -> None:
        """Records what a thread does for a part."""
        tiles, is_narrow = self._tiles, not self._is_wide_input
        inputs, outputs = self._memories(tape, kept)
        factors = self._factors.forward(tape, part)
        for place in run:
            frames, products = inputs(place, part.inputs), outputs(place, part.outputs)
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
        tiles, runs = self._tiles, self._derivative_runs
        with tape.passing():
            kept = self._kept_memory(tape)
            tiles.begin_input_derivatives(tape, dx, add=add)
            for part in self._parts:
                target = dx[:, part.inputs]
                with tape.passing():
                    borders = [
                        tiles.border(tape, run[-1].block, target.shape[1]) for run in runs[:-1]
                    ]
                    for run, border in zip(tape.independent(runs), [*borders, None], strict=True):
                        self._record_run_backward(
                            tape, run, part, kept, dy[:, part.outputs], target, border, add=add
                        )
                    if self._is_wide_input or part.is_last:
                        for border in borders:
                            border.record_sum(tape, target)

    def _record_run_backward(
        self,
        tape: Tape,
        run: _Run,
        part: Part,
        kept: Array | None,
        dy: Array,
        dx: Array,
        border: TileBorder | None,
        *,
        add: bool,
    ) -> None:
        """Records what a thread does for a part, but for what goes to the rows of another one."""
        tiles, is_narrow = self._tiles, not self._is_wide_input
        inputs, derivatives = self._memories(tape, kept)
        factors = self._factors.backward(tape, part)
        largest = max(run, key=lambda place: place.block.rows)
        sums = tiles.sum_memory(tape, inputs(largest, part.inputs), add=add)
        # The last block first: see `TimeTiles.record_input_derivatives`.
        for place in run[::-1]:
            dys, dxs = derivatives(place, part.outputs), inputs(place, part.inputs)
            if is_narrow or part.is_first:
                tiles.record_output_derivatives(tape, place.block, dy, dys)
            is_sum = is_narrow and not part.is_first
            for frame, factor, product in zip(dys, factors, dxs, strict=True):
                _record_product(tape, frame, factor, product, add=is_sum)
            if not is_narrow or part.is_last:
                products = dxs[:, None]
                if border is not None and place.block is border.block:
                    border.record_input_derivatives(tape, products, sums, dx, add=add)
                else:
                    tiles.record_input_derivatives(tape, place.block, products, sums, dx, add=add)

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
        tiles, taps, runs = self._tiles, self._tiles.taps.T, self._runs
        with tape.passing():
            count = len(runs) * tiles.num_products
            memory = self._factors.memory(tape, count)
            kept = self._kept_memory(tape)
            terms = self._factors.memory(tape, len(taps)) if add else None
            # The sum over the threads is part of the transform.
            matrix = np.tile(taps, len(runs))
            if scale is not None:
                taps, matrix = matrix, tape.scratch(*matrix.shape)
                factor = tape.scratch(1)
                tape.copy(scale, factor)
                tape.multiply(taps, factor, matrix)
            for part in self._parts:
                gradients = self._factors.of_part(memory, part, count)
                each = gradients.reshape(len(runs), tiles.num_products, *part.shape)
                for number, run in enumerate(tape.independent(runs)):
                    self._record_run_gradient(tape, run, part, kept, x, dy, each[number])
                total = self._factors.by_tap(out)[part.outputs, :, part.inputs]
                products = gradients.transpose(1, 0, 2)
                if terms is None:
                    tape.small_products(matrix, products, total)
                    continue
                term = self._factors.of_part(terms, part, total.shape[1]).reshape(total.shape)
                tape.small_products(matrix, products, term)
                tape.add(total, term, total)

    def _record_run_gradient(
        self,
        tape: Tape,
        run: _Run,
        part: Part,
        kept: Array | None,
        x: Array,
        dy: Array,
        gradients: Array,
    ) -> None:
        """Records what a thread does for a part; gradients: (products, outputs, inputs)."""
        tiles, is_narrow = self._tiles, not self._is_wide_input
        inputs, derivatives = self._memories(tape, kept)
        for place in run:
            dys, xs = derivatives(place, part.outputs), inputs(place, part.inputs)
            if is_narrow or part.is_first:
                tiles.record_output_derivatives(tape, place.block, dy[:, part.outputs], dys)
            if not is_narrow or part.is_first:
                tiles.record_inputs(tape, place.block, x[:, part.inputs], xs[:, None])
            for each_dy, each_x, gradient in zip(dys, xs, gradients, strict=True):
                with tape.passing():
                    tape.matmul(each_dy.T, each_x, gradient, add=place is not run[0])

    # ---- memory ----

    def _kept_memory(self, tape: Tape) -> Array | None:
        """Scratch memory for all rows of the narrow side, if it is computed with more than once."""
        if len(self._parts) == 1:
            return None
        columns = min(self._input_dim, self._output_dim)
        return tape.scratch(self._tiles.num_products, self._rows, columns)

    def _memories(self, tape: Tape, kept: Array | None) -> tuple[_Memory, _Memory]:
        """Memory for input and output: (products, rows, columns) for a place and a part.

        All places and parts use the same, unless it is kept.
        """
        spans = [part.inputs if self._is_wide_input else part.outputs for part in self._parts]
        # The larger one first: so all layers find room in the same memory.
        wide = self._memory(tape, max(span.stop - span.start for span in spans))
        narrow = self._memory(tape, min(self._input_dim, self._output_dim), kept)
        return (wide, narrow) if self._is_wide_input else (narrow, wide)

    def _memory(self, tape: Tape, columns: int, kept: Array | None = None) -> _Memory:
        if kept is not None:
            return lambda place, part: kept[:, place.rows]
        memory = tape.scratch(self._tiles.num_products, self._memory_rows, columns)
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
