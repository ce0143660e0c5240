"""Maps without parameters that training changes: of elements, and between columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_cuda.kernels.base import (
    Backpropagation,
    Kernel,
    Propagation,
    column_blocks,
    contiguous,
    copy_unless_same,
)
from nnet3_runtime_cuda.kernels.parameters import add_count_above
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Tape


def record_gather_columns(tape: Tape, source: Array, columns: Array, out: Array) -> None:
    """Records out[:, i] = source[:, columns[i]], for any strides of source and out."""
    source = contiguous(tape, source)
    target = out if out.flags.c_contiguous else tape.scratch(*out.shape)
    tape.take_columns(source, columns, target)
    if target is not out:
        tape.copy(target, out)


@kernel_for(components.PnormComponent)
class PnormKernel(Kernel):
    """y_j = Euclidean norm of group j of consecutive columns; dx = dy x / y, 0 where y is 0."""

    def _groups(self, x: Array) -> Array:
        """View of x as (rows, groups, size of a group)."""
        return x.reshape(len(x), self.component.output_dim, -1)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        tape, groups, y = p.tape, self._groups(p.x), p.y

        def norms(dtype: np.dtype[Any]) -> None:
            squares = y if y.dtype == dtype else tape.scratch(*y.shape, dtype=dtype)
            tape.row_dot(groups, groups, squares)
            tape.sqrt(squares, y)

        tape.within_range(norms, y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        tape, ratio = b.tape, b.tape.scratch(*b.y.shape)
        # If all squares underflow, y is 0, but x need not be. dy is set to 0 there before the
        # division: divided by the tiny number it would overflow, and 0 times infinity is nan.
        is_positive = tape.scratch(*b.y.shape, dtype=np.bool_)
        tape.greater(b.y, 0.0, is_positive)
        tape.multiply(b.dy, is_positive, ratio)
        norm = tape.scratch(*b.y.shape)
        tape.maximum(b.y, float(np.finfo(tape.dtype).tiny), norm)
        tape.divide(ratio, norm, ratio)
        tape.multiply(self._groups(b.x), ratio[..., None], self._groups(out))


@kernel_for(components.SumGroupComponent)
class SumGroupKernel(Kernel):
    """y_j = sum of group j of consecutive columns, of given sizes; dx_i = dy_j for i in group j."""

    def prepare(self) -> None:
        """Makes the (input_dim, output_dim) matrix of ones that sums the groups."""
        sizes = np.asarray(self.component.sizes)
        group = np.repeat(np.arange(len(sizes)), sizes)
        self.members = self.store.constant(group[:, None] == np.arange(len(sizes)))
        self.group = np.asarray(group, dtype=np.int64)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass, as a product with ones."""
        p.tape.matmul(p.x, self.members, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        record_gather_columns(b.tape, b.dy, self.group, out)


@kernel_for(components.SumBlockComponent)
class SumBlockKernel(Kernel):
    """y += scale * sum of the blocks of columns of x; dx_k += scale dy for each block k."""

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        self._record(p.tape, column_blocks(p.x, p.y.shape[1]), p.y, add=p.add)

    def _record(self, tape: Tape, sources: list[Array], out: Array, *, add: bool) -> None:
        """Records out (+)= scale * sum of the sources."""
        first, *others = sources
        if not others and not add:
            tape.multiply(first, self.component.scale, out)
            return
        total = tape.scratch(*out.shape) if add or self.component.scale != 1.0 else out
        if others:
            tape.add(first, others[0], total)
            for other in others[1:]:
                tape.add(total, other, total)
            first = total
        if self.component.scale != 1.0:
            tape.multiply(first, self.component.scale, total if add else out)
            first = total
        if add:
            tape.add(out, first, out)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        for dx in column_blocks(out, b.dy.shape[1]):
            self._record(b.tape, [b.dy], dx, add=b.add)


@kernel_for(components.PermuteComponent)
class PermuteKernel(Kernel):
    """y_i = x_j with j = column_map[i]."""

    def prepare(self) -> None:
        """Makes the column map and its inverse."""
        columns = np.asarray(self.component.column_map, dtype=np.int64)
        self.columns = np.asarray(columns)
        self.inverse = np.asarray(np.argsort(columns))

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        record_gather_columns(p.tape, p.x, self.columns, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        record_gather_columns(b.tape, b.dy, self.inverse, out)


@kernel_for(components.NoOpComponent)
class NoOpKernel(Kernel):
    """y = x; dx = backprop_scale dy."""

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        copy_unless_same(p.tape, p.x, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        if self.component.backprop_scale != 1.0:
            b.tape.multiply(b.dy, self.component.backprop_scale, out)
        else:
            copy_unless_same(b.tape, b.dy, out)


@kernel_for(components.ElementwiseProductComponent)
class ElementwiseProductKernel(Kernel):
    """y = product of the blocks of x; d of one block = dy times the other blocks."""

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        first, *others = column_blocks(p.x, p.y.shape[1])
        for other in others:
            p.tape.multiply(first, other, p.y)
            first = p.y

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        xs = column_blocks(b.x, b.dy.shape[1])
        for i, dx in enumerate(column_blocks(out, b.dy.shape[1])):
            source = b.dy
            for j, x in enumerate(xs):
                if i != j:
                    b.tape.multiply(source, x, dx)
                    source = dx


@kernel_for(components.ClipGradientComponent)
class ClipGradientKernel(Kernel):
    """y = x; dx = dy, clipped: each row to a norm of clipping_threshold, or each element to it.

    Self-repair: if more than a given proportion of the rows were clipped so far, inputs beyond
    self_repair_target are pushed back, with a term of the size of the derivative.
    """

    def prepare(self) -> None:
        """Starts from the counts in the component."""
        self.num_clipped = self.store.state([[self.component.num_clipped]])
        self.count = float(self.component.count)
        self.num_self_repaired = self.store.state([[self.component.num_self_repaired]])
        self.num_backpropped = int(self.component.num_backpropped)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        copy_unless_same(p.tape, p.x, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        tape, threshold = b.tape, self.component.clipping_threshold
        if threshold == 0.0:
            tape.fill(0.0, out)
        elif self.component.norm_based_clipping:
            scale = tape.scratch(len(b.dy))
            tape.row_dot(b.dy, b.dy, scale)
            tape.multiply(scale, threshold**-2, scale)
            if b.update:
                add_count_above(tape, scale, 1.0, self.num_clipped)
                tape.note(partial(self._count_rows, len(scale)))
            tape.maximum(scale, 1.0, scale)
            tape.sqrt(scale, scale)
            tape.divide(b.dy, scale[:, None], out)
        else:
            tape.minimum(b.dy, threshold, out)
            tape.maximum(out, -threshold, out)
        if b.update and threshold > 0.0:
            self._record_repair(tape, b.x, out)

    def _count_rows(self, rows: int) -> None:
        self.count += rows

    def _record_repair(self, tape: Tape, x: Array, dx: Array) -> None:
        c = self.component
        limit = c.self_repair_clipped_proportion_threshold
        tape.note(self._count_minibatch)
        if limit >= 1.0 or c.self_repair_scale == 0.0:
            return
        proportion, factor, before, after = (tape.scratch(1, 1, dtype=np.float64) for _ in range(4))
        acts, is_above = tape.scratch(1, 1), tape.scratch(1, 1, dtype=np.bool_)
        tape.divide(self.num_clipped, tape.value(lambda: max(self.count, 1.0)), proportion)
        tape.greater(proportion, limit, is_above)
        tape.copy(tape.value(lambda: self.chance(0.5)), factor)
        tape.multiply(factor, is_above, acts)
        with tape.when(acts):
            tape.add(self.num_self_repaired, 1.0, self.num_self_repaired)
            excess = tape.scratch(*x.shape)
            tape.minimum(x, c.self_repair_target, excess)
            tape.maximum(excess, -c.self_repair_target, excess)
            tape.subtract(x, excess, excess)
            _record_mean_norm(tape, dx, before)
            # Without any excess the factor does not matter.
            _record_mean_norm(tape, excess, factor)
            tape.divide(before, factor, factor)
            tape.multiply(factor, proportion, factor)
            tape.multiply(factor, 2.0 * c.self_repair_scale, factor)
            scale = tape.scratch(1, 1)
            tape.copy(factor, scale)
            tape.multiply(excess, scale, excess)
            tape.subtract(dx, excess, dx)
            _record_mean_norm(tape, dx, after)
            tape.divide(before, after, after)
            tape.copy(after, scale)
            tape.multiply(dx, scale, dx)

    def _count_minibatch(self) -> None:
        self.num_backpropped += 1

    def with_statistics(self) -> components.Component:
        """The component with its present counts."""
        return self.replaced(
            num_clipped=int(self.num_clipped[0, 0]),
            count=int(self.count),
            num_self_repaired=int(self.num_self_repaired[0, 0]),
            num_backpropped=self.num_backpropped,
        )


def _record_mean_norm(tape: Tape, a: Array, out: Array) -> None:
    """Records out = the mean norm of the rows of a, or a tiny number if that is 0; out: (1, 1)."""
    norms = tape.scratch(len(a))
    tape.row_dot(a, a, norms)
    tape.sqrt(norms, norms)
    tape.row_sum(norms.reshape(1, -1), out)
    tape.multiply(out, 1.0 / len(a), out)
    tape.maximum(out, float(np.finfo(np.float32).tiny), out)
