"""Convolution over time and height, as products with patches of the input or with the input."""

from __future__ import annotations

import itertools

import numpy as np
from nnet3_descriptors.components import (
    TimeHeightConvolutionComponent,
    TimeOffsetPrecomputedIndexes,
)

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Propagation
from nnet3_runtime_cuda.kernels.heights import (
    HeightPatches,
    HeightRun,
    HeightTiles,
    UntiledHeights,
    height_runs,
    heights_within,
)
from nnet3_runtime_cuda.kernels.parameters import add_column_sum, rows_at_offsets
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.kernels.tiled_convolution import TiledConvolution, UntiledRows
from nnet3_runtime_cuda.kernels.time_tiles import TimeTiles
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.gradients import FisherEstimate

PATCH_BYTES = 1 << 20
"""The size of the patches that are made at a time, so that they stay in the cache."""

FORWARD_PATCH_BYTES = 1 << 21
"""The same for the forward pass, which reads patches once: more rows make faster products."""

FEWEST_FILTERS = 16
"""Convolutions with fewer filters of input or output are not computed by tiles or stacks."""

FEWEST_HEIGHTS = 256
"""The fewest rows of heights for tiles, which also take transforms of the parameters."""


@kernel_for(TimeHeightConvolutionComponent)
class TimeHeightConvolutionKernel(Kernel):
    """y(t, h) = b + sum over i of W_i x(t + time offset i, s h + height offset i).

    The patch of (t, h) holds x at all offsets side by side, zeros where x has no such height; so
    y, as a row of num_filters_out for each (t, h), is the product of patches and
    linear_params^T, [W_0 W_1 ...]. Backward likewise: the derivative of the patches is dy times
    linear_params, and is added up where the patches came from.

    A device computes large convolutions without patches: see `HeightProducts`.

    Where all time offsets have the same height offsets, and frames at a constant distance, the
    processor computes several frames with fewer products: see `TiledConvolution`.
    """

    def prepare(self) -> None:
        """Finds the parameters, plans the copies, and sets up the preconditioners."""
        c = self.component
        self.linear = self.store.parameters["linear_params"]
        self.bias = self.store.parameters["bias_params"]
        self.patches = HeightPatches(c, num_times=len(c.time_offsets))
        self.height_products = HeightProducts(c)
        self.input_side, self.output_side = (
            self.store.estimate(
                FisherEstimate(
                    rank=rank, num_minibatches_history=c.num_minibatches_history, alpha=alpha
                )
            )
            for rank, alpha in ((c.rank_in, c.alpha_in), (c.rank_out, c.alpha_out))
        )

    def _tiled(self, operands: Propagation | Backpropagation, rows: int) -> TiledConvolution | None:
        """The products of `rows` output rows by tiles, if they are faster."""
        c, dtype = self.component, self.store.dtype
        heights = sorted({height for _, height in c.offsets})
        is_grid = c.offsets == tuple(itertools.product(c.time_offsets, heights))
        filters = min(c.num_filters_in, c.num_filters_out)
        is_large = filters >= FEWEST_FILTERS and rows * c.height_out >= FEWEST_HEIGHTS
        if not (self.store.takes_tiles(operands.tape) and is_grid and is_large):
            return None
        is_precise = isinstance(operands, Propagation) and self.store.forward_is_precise
        time_tiles, offsets = None, operands.indexes.row_offsets
        if operands.indexes.row_stride == 1:
            time_tiles = TimeTiles.at(offsets, rows, dtype, is_precise=is_precise)
        height_tiles = HeightTiles.of(c, heights, dtype)
        if time_tiles is None and height_tiles is None:
            return None
        return TiledConvolution(
            self.store,
            time_tiles or UntiledRows.of(operands.indexes, rows, dtype),
            height_tiles or UntiledHeights(c, dtype),
        )

    def _has_stacks(self, tape: Tape, rows: int) -> bool:
        """Whether stacks of products are faster than the patches of `rows` output rows.

        They are if these are many, and if no product of a stack is narrow.
        """
        filters = min(self.component.num_filters_in, self.component.num_filters_out)
        has_many = len(self._groups(rows, tape.cache_scale * PATCH_BYTES)) > 1
        return tape.gains_by_stacks and has_many and filters >= FEWEST_FILTERS

    def _groups(self, num_rows: int, group_bytes: int) -> list[slice]:
        """Ranges of output rows whose patches are made at a time."""
        row_bytes = self.component.height_out * self.linear.shape[1] * self.store.dtype.itemsize
        size = max(1, group_bytes // row_bytes)
        return [slice(k, min(k + size, num_rows)) for k in range(0, num_rows, size)]

    def _group_memory(self, tape: Tape, groups: list[slice], *, is_zeroed: bool) -> Array:
        """Scratch memory for the patches of any of the groups."""
        most_rows = max(group.stop - group.start for group in groups)
        return self.patches.memory(tape, most_rows, is_zeroed=is_zeroed)

    def _by_height(self, a: Array, rows: slice) -> Array:
        """Rows of an output or its derivative with a row for each height: a view."""
        return a[rows].reshape(-1, self.component.num_filters_out)

    # ---- forward ----

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        tiled = self._tiled(p, len(p.y))
        if tiled is not None:
            tiled.record_forward(p)
            return
        tape, weights = p.tape, self.store.transposed(self.linear, pays=True)
        if self._has_stacks(tape, len(p.y)):
            self.height_products.record_forward(tape, p.x, p.indexes, weights, self.bias, p.y)
            return
        groups = self._groups(len(p.y), tape.cache_scale * FORWARD_PATCH_BYTES)
        parts = rows_at_offsets(p.x, p.indexes, len(p.y))
        memory = self._group_memory(tape, groups, is_zeroed=True)
        for rows in groups:
            y = self._by_height(p.y, rows)
            tape.matmul(self._record_patches(tape, rows, parts, memory), weights, y)
            tape.add(y, self.bias, y)

    def _record_patches(self, tape: Tape, rows: slice, parts: list[Array], memory: Array) -> Array:
        """Records the patches of some output rows; gives them by height."""
        patches = memory[: rows.stop - rows.start]
        self.patches.record(tape, [part[rows] for part in parts], patches)
        return patches.reshape(-1, self.patches.columns)

    # ---- backward ----

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if not b.update:
            self._record_backward(b, None)
            return
        linear, bias = (self.store.directions[name] for name in ("linear_params", "bias_params"))
        by_height = self._by_height(b.dy, slice(None))
        if self.natural(self.input_side) is None:
            self._record_backward(b, linear)
            add_column_sum(b.tape, by_height, bias)
            return
        rows, columns = linear.shape
        gradient = b.tape.scratch(rows, columns + 1)
        b.tape.fill(0.0, gradient)
        self._record_backward(b, gradient[:, :columns])
        add_column_sum(b.tape, by_height, gradient[:, columns])
        self._record_natural(b.tape, gradient, linear, bias)

    def _record_backward(self, b: Backpropagation, gradient: Array | None) -> None:
        """Records the input derivative and adds the gradient of linear_params, if wanted."""
        tiled = self._tiled(b, len(b.dy))
        if tiled is not None:
            tiled.record_backward(b, gradient)
            return
        if b.dx is not None:
            self._record_input_derivative(b, b.dx)
        if gradient is not None and self._has_stacks(b.tape, len(b.dy)):
            self.height_products.record_gradient(b.tape, b.x, b.indexes, b.dy, gradient)
        elif gradient is not None:
            groups = self._groups(len(b.dy), b.tape.cache_scale * PATCH_BYTES)
            parts = rows_at_offsets(b.x, b.indexes, len(b.dy))
            memory = self._group_memory(b.tape, groups, is_zeroed=True)
            for rows in groups:
                patches = self._record_patches(b.tape, rows, parts, memory)
                b.tape.matmul(self._by_height(b.dy, rows).T, patches, gradient, add=True)

    def _record_input_derivative(self, b: Backpropagation, dx: Array) -> None:
        tape = b.tape
        if not b.add:
            tape.fill(0.0, dx)
        parts = rows_at_offsets(dx, b.indexes, len(b.dy))
        if self._has_stacks(tape, len(b.dy)):
            self.height_products.record_input_derivative(tape, b.dy, self.linear, parts)
            return
        groups = self._groups(len(b.dy), tape.cache_scale * PATCH_BYTES)
        memory = self._group_memory(tape, groups, is_zeroed=False)
        for rows in groups:
            patches, dy = memory[: rows.stop - rows.start], self._by_height(b.dy, rows)
            tape.matmul(dy, self.linear, patches.reshape(len(dy), -1))
            self.patches.record_scatter(tape, patches, [part[rows] for part in parts])

    def _record_natural(self, tape: Tape, gradient: Array, linear: Array, bias: Array) -> None:
        """Preconditions the gradient, bias as last column, on both sides, and adds it."""
        transposed, scale = tape.scratch(*gradient.shape[::-1]), tape.scratch(1)
        tape.copy(tape.precondition(self.input_side, gradient), scale)
        tape.copy(gradient.T, transposed)
        tape.multiply(scale, tape.precondition(self.output_side, transposed), scale)
        tape.multiply(transposed, scale, transposed)
        tape.add(linear, transposed[:-1].T, linear)
        tape.add(bias, transposed[-1], bias)


# ---- without patches ----


class HeightProducts:
    """Forward and backward passes of a convolution by products with the input, for all heights.

    Such a product is a stack, with a matrix for each height of the output: the rows of the input,
    and of them the columns that this height depends on. Forward, and for the gradient, the input is
    copied once, with zeros for the heights that it does not have: then offsets of one time and
    neighbouring heights share a product.
    """

    def __init__(self, component: TimeHeightConvolutionComponent) -> None:
        """Plans the products."""
        c = self._component = component
        heights = [height for _, height in c.offsets]
        last = (c.height_out - 1) * c.height_subsample_out + max(heights)
        self._before, self._behind = max(0, -min(heights)), max(0, last + 1 - c.height_in)
        self._runs = height_runs(c)

    def record_forward(
        self,
        tape: Tape,
        x: Array,
        indexes: TimeOffsetPrecomputedIndexes,
        weights: Array,
        bias: Array,
        y: Array,
    ) -> None:
        """Records y. The weights are (columns of the parameters, num_filters_out)."""
        parts = rows_at_offsets(self._padded(tape, x), indexes, len(y))
        out = self._by_height(y, self._component.height_out).transpose(1, 0, 2)
        for number, run in enumerate(self._runs):
            tape.matmul(self._windows(parts, run), weights[run.columns], out, add=number > 0)
        tape.add(out, bias, out)

    def record_gradient(
        self,
        tape: Tape,
        x: Array,
        indexes: TimeOffsetPrecomputedIndexes,
        dy: Array,
        gradient: Array,
    ) -> None:
        """Records that the gradient of the parameters is added to `gradient`.

        Each height has a gradient of its own at first.
        """
        parts = rows_at_offsets(self._padded(tape, x), indexes, len(dy))
        transposed = self._by_height(dy, self._component.height_out).transpose(1, 2, 0)
        of_heights = tape.scratch(len(transposed), *gradient.shape)
        for run in self._runs:
            tape.matmul(transposed, self._windows(parts, run), of_heights[:, :, run.columns])
        total = tape.scratch(1, gradient.size)
        tape.column_sum(of_heights.reshape(len(of_heights), -1), total)
        tape.add(gradient, total.reshape(gradient.shape), gradient)

    def record_input_derivative(
        self, tape: Tape, dy: Array, parameters: Array, parts: list[Array]
    ) -> None:
        """Records that the derivative of the input is added to its rows at each time offset.

        Neighbouring heights of the input would meet in one product, so each offset has its own.
        """
        c = self._component
        filters, step = c.num_filters_in, c.height_subsample_out
        by_height = self._by_height(dy, c.height_out)
        for number, (time, height) in enumerate(c.offsets):
            heights = heights_within(c, height, height)
            dx = self._by_height(parts[c.time_offsets.index(time)], c.height_in)
            dx = dx[:, heights.start * step + height :: step][:, : len(heights)]
            columns = slice(number * filters, (number + 1) * filters)
            given = by_height[:, heights.start : heights.stop]
            tape.matmul(given, parameters[:, columns], dx, add=True)

    def _by_height(self, a: Array, heights: int) -> Array:
        """Rows as (rows, heights, filters): a view."""
        return np.lib.stride_tricks.as_strided(
            a,
            shape=(len(a), heights, a.shape[1] // heights),
            strides=(a.strides[0], a.shape[1] // heights * a.strides[1], a.strides[1]),
        )

    def _padded(self, tape: Tape, x: Array) -> Array:
        """The input as (rows, heights, filters), with zeros before and behind its heights."""
        x = self._by_height(x, self._component.height_in)
        if not (self._before or self._behind):
            return x
        rows, heights, filters = x.shape
        end = self._before + heights
        padded = tape.scratch(rows, end + self._behind, filters)
        for gap in (padded[:, : self._before], padded[:, end:]):
            if gap.size:
                tape.fill(0.0, gap)
        tape.copy(x, padded[:, self._before : end])
        return padded

    def _windows(self, parts: list[Array], run: HeightRun) -> Array:
        """What the heights of the output see of the padded input: (height_out, rows, columns)."""
        part, c = parts[run.time], self._component
        rows, height, column = part.strides
        return np.lib.stride_tricks.as_strided(
            part[:, self._before + run.low :],
            shape=(c.height_out, len(part), run.columns.stop - run.columns.start),
            strides=(c.height_subsample_out * height, rows, column),
            writeable=False,
        )
