"""The TDNN component: an affine map of several frames of the input, spliced without copying."""

from __future__ import annotations

from functools import partial

from nnet3_descriptors import components

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Propagation, column_blocks
from nnet3_runtime_cuda.kernels.parameters import (
    record_affine_gradient,
    record_product,
    rows_at_offsets,
)
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.kernels.tiled_product import TiledProduct, goes_by_taps, record_by_taps
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.gradients import (
    AffineGradient,
    GradientProduct,
    TimeSplice,
    sides_of,
)

MOST_EXTRA_ROWS = 1.25
"""The least relative difference between the rows of the input and the rows of a splice."""


@kernel_for(components.TdnnComponent)
class TdnnKernel(Kernel):
    """y(t) = sum over offsets o_i of x(t + o_i) A_i^T, + b.

    A = [A_0 A_1 ...] is (output_dim, number of offsets * input_dim). The rows of the input are so
    ordered that x(t + o_i), for all rows of the output, is a slice: from a row offset on, with a
    row stride.

    One product computes all offsets. If the output is wider than the input, the parts of the input
    are put side by side. If it is narrower, the products of all rows with all A_i are put side by
    side; see `TimeSplice`. Where offsets have equal distances, the processor computes several
    frames with fewer products: see `TiledProduct`.
    """

    sets_gradient = True

    def prepare(self) -> None:
        """Finds the parameters and sets up the preconditioner."""
        self.linear = self.store.parameters["linear_params"]
        self.has_bias = self.component.bias_params.size > 0
        self.bias = self.store.parameters.get("bias_params")
        self.sides = self.store.both_estimates(sides_of(self.component))

    def _splice(
        self, x: Array, indexes: components.TimeOffsetPrecomputedIndexes, rows: int
    ) -> TimeSplice | None:
        """The splice of the input, if products with the input's own rows take less work.

        They do if the input is wider than the output, and nearly all of its rows are used.
        """
        first, end = min(indexes.row_offsets), max(indexes.row_offsets) + rows
        pays = self.component.input_dim > len(self.linear) and len(indexes.row_offsets) > 1
        if not pays or indexes.row_stride != 1 or end - first > MOST_EXTRA_ROWS * rows:
            return None
        offsets = tuple(offset - first for offset in indexes.row_offsets)
        return TimeSplice(x[first:end], offsets, rows)

    def _tiled(
        self,
        tape: Tape,
        indexes: components.TimeOffsetPrecomputedIndexes,
        rows: int,
        *,
        is_precise: bool = False,
    ) -> TiledProduct | None:
        """The product of `rows` output rows by tiles, if it is faster."""
        if indexes.row_stride != 1:
            return None
        offsets = indexes.row_offsets
        return TiledProduct.around(
            tape, self.store, self.linear, offsets, rows, is_precise=is_precise
        )

    def _side_by_side(self, tape: Tape, parts: list[Array]) -> Array:
        """The parts as one matrix, copied to scratch memory if there are several."""
        if len(parts) == 1:
            return parts[0]
        together = tape.scratch(len(parts[0]), self.linear.shape[1])
        for part, columns in zip(
            parts, column_blocks(together, self.component.input_dim), strict=True
        ):
            tape.copy(part, columns)
        return together

    # ---- forward ----

    def propagate(self, p: Propagation) -> None:
        """Records y = sum of x_i A_i^T, + b; or y += that, without bias."""
        tape, add = p.tape, p.add and not self.has_bias
        bias = self.bias if self.has_bias else None
        tiled = self._tiled(tape, p.indexes, len(p.y), is_precise=self.store.forward_is_precise)
        if tiled is not None:
            tiled.record_forward(tape, p.x, p.y, bias=bias, add=add)
            return
        parts = rows_at_offsets(p.x, p.indexes, len(p.y))
        splice = self._splice(p.x, p.indexes, len(p.y))
        if goes_by_taps(tape, self.store, self.linear, p.indexes.row_offsets):
            record_by_taps(tape, self.store, self.linear, parts, p.y, add=add)
        elif splice is not None:
            wide = tape.scratch(len(splice.x), len(self.linear) * len(splice.offsets))
            record_product(self.store, tape, splice.x, splice.by_row(self.linear), wide)
            terms = [*([p.y] if add else []), *splice.products(wide)]
            tape.add(terms[0], terms[1], p.y)
            for term in terms[2:]:
                tape.add(p.y, term, p.y)
        else:
            x = self._side_by_side(tape, parts)
            record_product(self.store, tape, x, self.linear, p.y, add=add)
        if bias is not None:
            tape.add(p.y, bias, p.y)

    # ---- backward ----

    def backprop(self, b: Backpropagation) -> None:
        """Records dx_i += dy A_i for each offset, and the gradient."""
        num_rows = len(b.dy)
        tiled = self._tiled(b.tape, b.indexes, num_rows)
        if tiled is not None:
            if b.dx is not None:
                tiled.record_input_derivative(b.tape, b.dy, b.dx, add=b.add)
            if b.update:
                parts = rows_at_offsets(b.x, b.indexes, num_rows)
                self._update(b, parts, partial(tiled.record_gradient, b.tape, b.x))
            return
        splice = self._splice(b.x, b.indexes, num_rows)
        if splice is not None:
            self._backprop_splice(b, splice)
            return
        if b.dx is not None:
            self._record_input_derivative(b, b.dx)
        if b.update:
            x = self._side_by_side(b.tape, rows_at_offsets(b.x, b.indexes, num_rows))
            self._update(b, [x])

    def _record_input_derivative(self, b: Backpropagation, dx: Array) -> None:
        parts = rows_at_offsets(dx, b.indexes, len(b.dy))
        if not b.add:
            b.tape.fill(0.0, dx)
        if len(parts) == 1:
            b.tape.matmul(b.dy, self.linear, parts[0], add=True)
            return
        together = b.tape.scratch(len(b.dy), self.linear.shape[1])
        b.tape.matmul(b.dy, self.linear, together)
        for part, derivative in zip(
            parts, column_blocks(together, self.component.input_dim), strict=True
        ):
            b.tape.add(part, derivative, part)

    def _backprop_splice(self, b: Backpropagation, splice: TimeSplice) -> None:
        """The same, with the rows of the input instead of those of its splice."""
        tape, count = b.tape, len(splice.offsets)
        wide = tape.scratch(len(splice.x), b.dy.shape[1] * count)
        for gap in splice.gaps(wide):
            tape.fill(0.0, gap)
        for view in splice.products(wide):
            tape.copy(b.dy, view)
        if b.dx is not None:
            first = min(b.indexes.row_offsets)
            end = first + len(splice.x)
            tape.matmul(wide, splice.by_row(self.linear), b.dx[first:end], add=b.add)
            for rest in () if b.add else (b.dx[:first], b.dx[end:]):
                if len(rest):
                    tape.fill(0.0, rest)
        if b.update:
            # Not for the natural gradient, which may precondition dy: `wide` has it as it was.
            is_plain = self.natural(self.sides) is None
            product = partial(_record_wide_gradient, tape, splice, wide) if is_plain else None
            self._update(b, splice.parts, product)

    def _update(
        self, b: Backpropagation, parts: list[Array], product: GradientProduct | None = None
    ) -> None:
        """Records the gradient; parts, product: see `AffineGradient`."""
        directions = self.store.directions
        gradient = AffineGradient(
            xs=parts,
            dy=b.dy,
            linear=directions["linear_params"],
            bias=directions["bias_params"] if self.has_bias else None,
            first=b.first,
            product=product,
        )
        record_affine_gradient(b.tape, gradient, self.natural(self.sides))


def _record_wide_gradient(
    tape: Tape,
    splice: TimeSplice,
    wide: Array,
    _dy: Array,
    out: Array,
    scale: Array | None,
    add: bool,
) -> None:
    """Records out (+)= scale dy^T X as one product, with dy at the rows of x: see `TimeSplice`."""
    tape.scaled_product(wide.T, splice.x, splice.by_row(out), add=add, scale=scale)
