"""Convolution over time and height, as products with patches of the input."""

from __future__ import annotations

import itertools

import attrs
import numpy as np
from nnet3_descriptors.components import TimeHeightConvolutionComponent

from ..natural_gradient import NaturalGradientOptions, OnlineNaturalGradient
from ..tape import Array, Tape
from .affine_gradient import add_affine_gradient, add_column_sum
from .base import Backpropagation, Kernel, Propagation, kernel_for
from .time_offsets import rows_at_offsets

PATCH_BYTES = 1 << 20
"""Patches are made for so many rows at a time that they stay in the cache."""

FORWARD_PATCH_BYTES = 1 << 21
"""The same for the forward pass, which reads patches once: more rows make faster products."""


@attrs.frozen
class PatchCopy:
    """Columns of patches that are columns of the input, for a range of output heights.

    For each such height h the columns column <= c < column + width of its patch are the columns of
    the input from first + (h - height) * step on, at one time offset.

    Attributes:
        time: Number of the time offset.
        height: The first output height.
        height_end: Behind the last output height.
        column: The first column in the patch.
        width: Number of columns.
        first: The first column of the input, for the first height.
        step: Distance in the input of the columns of neighbouring output heights.
    """

    time: int
    height: int
    height_end: int
    column: int
    width: int
    first: int
    step: int


@kernel_for(TimeHeightConvolutionComponent)
class TimeHeightConvolutionKernel(Kernel):
    """y(t, h) = b + sum over i of W_i x(t + time offset i, s h + height offset i).

    The patch of (t, h) holds x at all offsets side by side, zeros where x has no such height; so
    y, as a row of num_filters_out for each (t, h), is the product of patches and
    linear_params^T, [W_0 W_1 ...]. Backward likewise: the derivative of the patches is dy times
    linear_params, and is added up where the patches came from.
    """

    def prepare(self) -> None:
        """Finds the parameters, plans the copies, and sets up the preconditioners."""
        c = self.component
        self.linear = self.store.parameters["linear_params"]
        self.bias = self.store.parameters["bias_params"]
        self.copies = list(_patch_copies(c))
        self.has_gaps = sum(
            (copy.height_end - copy.height) * copy.width for copy in self.copies
        ) < (c.height_out * self.linear.shape[1])
        self.input_side, self.output_side = (
            OnlineNaturalGradient(
                NaturalGradientOptions(
                    rank=rank, num_minibatches_history=c.num_minibatches_history, alpha=alpha
                )
            )
            for rank, alpha in ((c.rank_in, c.alpha_in), (c.rank_out, c.alpha_out))
        )

    # ---- patches ----

    def _groups(self, num_rows: int, group_bytes: int) -> list[slice]:
        """Ranges of output rows whose patches are made at a time."""
        row_bytes = self.component.height_out * self.linear.shape[1] * self.store.dtype.itemsize
        size = max(1, group_bytes // row_bytes)
        return [slice(k, min(k + size, num_rows)) for k in range(0, num_rows, size)]

    def _scratch_patches(self, tape: Tape, groups: list[slice]) -> Array:
        """Memory for patches of one group: (rows, height_out, columns of a patch)."""
        rows = max(group.stop - group.start for group in groups)
        patches = tape.scratch(rows, self.component.height_out, self.linear.shape[1])
        if self.has_gaps:
            # Heights that the input does not have are zero in every patch; copies leave them so.
            tape.fill(0.0, patches)
        return patches

    def _views(self, parts: list[Array], rows: slice, patches: Array) -> list[tuple[Array, Array]]:
        """For each copy the view of the input and that of the patches, of equal shapes."""
        return [
            (
                _windows(parts[copy.time][rows], copy),
                patches[:, copy.height : copy.height_end, copy.column : copy.column + copy.width],
            )
            for copy in self.copies
        ]

    def _by_height(self, a: Array, rows: slice) -> Array:
        """Rows of an output or its derivative with a row for each height: a view."""
        return a[rows].reshape(-1, self.component.num_filters_out)

    # ---- the two passes ----

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        tape, groups = p.tape, self._groups(len(p.y), p.tape.cache_scale * FORWARD_PATCH_BYTES)
        parts = rows_at_offsets(p.x, p.indexes, len(p.y))
        memory = self._scratch_patches(tape, groups)
        weights = self.store.transposed(self.linear, pays=True)
        for rows in groups:
            patches = memory[: rows.stop - rows.start]
            for source, patch in self._views(parts, rows, patches):
                tape.copy(source, patch)
            y = self._by_height(p.y, rows)
            tape.matmul(patches.reshape(len(y), -1), weights, y)
            tape.add(y, self.bias, y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is not None:
            self._record_input_derivative(b, b.dx)
        if not b.update:
            return
        rows, columns = self.linear.shape
        linear, bias = self.store.directions["linear_params"], self.store.directions["bias_params"]
        if not self.store.natural_gradient or not self.component.use_natural_gradient:
            self._record_gradient(b, linear, bias)
            return
        gradient = b.tape.scratch(rows, columns + 1)
        b.tape.fill(0.0, gradient)
        self._record_gradient(b, gradient[:, :columns], gradient[:, columns])
        self._record_natural(b.tape, gradient, linear, bias)

    def _record_input_derivative(self, b: Backpropagation, dx: Array) -> None:
        tape, groups = b.tape, self._groups(len(b.dy), b.tape.cache_scale * PATCH_BYTES)
        if not b.add:
            tape.fill(0.0, dx)
        parts = rows_at_offsets(dx, b.indexes, len(b.dy))
        rows = max(group.stop - group.start for group in groups)
        memory = tape.scratch(rows, self.component.height_out, self.linear.shape[1])
        for group in groups:
            patches = memory[: group.stop - group.start]
            dy = self._by_height(b.dy, group)
            tape.matmul(dy, self.linear, patches.reshape(len(dy), -1))
            for copy in self.copies:
                self._record_scatter(tape, parts[copy.time][group], copy, patches)

    def _record_scatter(self, tape: Tape, dx: Array, copy: PatchCopy, patches: Array) -> None:
        """Records the addition of one piece of the patches to dx.

        Windows that overlap are added one offset in height after another.
        """
        width = copy.width if copy.width <= copy.step else self.component.num_filters_in
        for start in range(0, copy.width, width):
            piece = attrs.evolve(
                copy, column=copy.column + start, width=width, first=copy.first + start
            )
            target = _windows(dx, piece)
            patch = patches[:, piece.height : piece.height_end, piece.column : piece.column + width]
            tape.add(target, patch, target)

    def _record_gradient(self, b: Backpropagation, linear: Array, bias: Array) -> None:
        """Records the addition of the plain gradient to linear and bias."""
        tape, groups = b.tape, self._groups(len(b.dy), b.tape.cache_scale * PATCH_BYTES)
        parts = rows_at_offsets(b.x, b.indexes, len(b.dy))
        memory = self._scratch_patches(tape, groups)
        for rows in groups:
            patches = memory[: rows.stop - rows.start]
            for source, patch in self._views(parts, rows, patches):
                tape.copy(source, patch)
            dy = self._by_height(b.dy, rows)
            add_affine_gradient(tape, patches.reshape(len(dy), -1), dy, linear)
        add_column_sum(tape, self._by_height(b.dy, slice(None)), bias)

    def _record_natural(self, tape: Tape, gradient: Array, linear: Array, bias: Array) -> None:
        """Preconditions the gradient, bias as last column, on both sides, and adds it."""
        transposed, scale = tape.scratch(*gradient.shape[::-1]), tape.scratch(1)
        tape.copy(tape.precondition(self.input_side, gradient), scale)
        tape.copy(gradient.T, transposed)
        tape.multiply(scale, tape.precondition(self.output_side, transposed), scale)
        tape.multiply(transposed, scale, transposed)
        tape.add(linear, transposed[:-1].T, linear)
        tape.add(bias, transposed[-1], bias)


def _windows(x: Array, copy: PatchCopy) -> Array:
    """The columns of x that a copy takes, as (rows, heights, width); windows may overlap."""
    rows, columns = x.strides
    return np.lib.stride_tricks.as_strided(
        x[:, copy.first :],
        shape=(len(x), copy.height_end - copy.height, copy.width),
        strides=(rows, copy.step * columns, columns),
    )


def _patch_copies(c: TimeHeightConvolutionComponent) -> list[PatchCopy]:
    """How patches are put together from the input, in few pieces.

    Offsets of one time whose heights follow one another lie side by side both in the patch and in
    the input, so they are copied together, at the output heights at which all of them exist.
    """
    times = c.time_offsets
    copies = []
    for (time, _), group in itertools.groupby(
        enumerate(c.offsets), key=lambda item: (item[1][0], item[1][1] - item[0])
    ):
        numbered = list(group)
        start, low = numbered[0][0], numbered[0][1][1]
        high = numbered[-1][1][1]
        inner = _heights_within(c, low, high)
        pieces = [(start, low, high, inner)]
        for number, (_, height) in numbered:
            whole = _heights_within(c, height, height)
            pieces += [(number, height, height, part) for part in _outside(whole, inner)]
        copies += [
            _patch_copy(c, times.index(time), number, first, last, heights)
            for number, first, last, heights in pieces
            if len(heights)
        ]
    return copies


def _heights_within(c: TimeHeightConvolutionComponent, low: int, high: int) -> range:
    """The output heights for which the input has all heights from offset low to offset high."""
    first = max(0, -(low // c.height_subsample_out))
    last = min(c.height_out - 1, (c.height_in - 1 - high) // c.height_subsample_out)
    return range(first, max(first, last + 1))


def _outside(whole: range, inner: range) -> list[range]:
    """The parts of a range that lie before and behind another."""
    if not len(inner):
        return [whole]
    return [range(whole.start, inner.start), range(inner.stop, whole.stop)]


def _patch_copy(
    c: TimeHeightConvolutionComponent, time: int, number: int, low: int, high: int, heights: range
) -> PatchCopy:
    filters = c.num_filters_in
    return PatchCopy(
        time=time,
        height=heights.start,
        height_end=heights.stop,
        column=number * filters,
        width=(high - low + 1) * filters,
        first=(heights.start * c.height_subsample_out + low) * filters,
        step=c.height_subsample_out * filters,
    )
