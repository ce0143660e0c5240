"""Maps between columns: sums of groups, permutations, norms over groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from nnet3_descriptors.components import (
    PermuteComponent,
    PnormComponent,
    SumBlockComponent,
    SumGroupComponent,
)

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Propagation
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Operations


def record_gather_columns(tape: Operations, source: Array, columns: Array, out: Array) -> None:
    """Records out[:, i] = source[:, columns[i]], for any strides of source and out."""
    if not source.flags.c_contiguous:
        copy = tape.scratch(*source.shape)
        tape.copy(source, copy)
        source = copy
    target = out if out.flags.c_contiguous else tape.scratch(*out.shape)
    tape.take_columns(source, columns, target)
    if target is not out:
        tape.copy(target, out)


@kernel_for(PnormComponent)
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

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        tape, ratio = b.tape, b.tape.scratch(*b.y.shape)
        # If all squares underflow, y is 0, but x need not be. dy is set to 0 there before the
        # division: divided by the tiny number it would overflow, and 0 times infinity is nan.
        is_positive = tape.scratch(*b.y.shape, dtype=np.bool_)
        tape.greater(b.y, 0.0, is_positive)
        tape.multiply(b.dy, is_positive, ratio)
        norm = tape.scratch(*b.y.shape)
        tape.maximum(b.y, float(np.finfo(tape.dtype).tiny), norm)
        tape.divide(ratio, norm, ratio)
        tape.multiply(self._groups(b.x), ratio[..., None], self._groups(b.dx))


@kernel_for(SumGroupComponent)
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

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is not None:
            record_gather_columns(b.tape, b.dy, self.group, b.dx)


@kernel_for(SumBlockComponent)
class SumBlockKernel(Kernel):
    """y += scale * sum of the blocks of columns of x; dx_k += scale dy for each block k."""

    def _blocks(self, x: Array) -> list[Array]:
        dim = self.component.output_dim
        return [x[:, k : k + dim] for k in range(0, self.component.input_dim, dim)]

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        self._record(p.tape, self._blocks(p.x), p.y, add=p.add)

    def _record(self, tape: Operations, sources: list[Array], out: Array, *, add: bool) -> None:
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

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is not None:
            for dx in self._blocks(b.dx):
                self._record(b.tape, [b.dy], dx, add=b.add)


@kernel_for(PermuteComponent)
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

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is not None:
            record_gather_columns(b.tape, b.dy, self.inverse, b.dx)
