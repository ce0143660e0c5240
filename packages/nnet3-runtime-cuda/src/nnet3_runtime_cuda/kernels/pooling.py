"""Convolution and max-pooling over three-dimensional rows (x, y, z), by gathering patches."""

from __future__ import annotations

import itertools

import numpy as np
from nnet3_descriptors.components import ConvolutionComponent, MaxpoolingComponent

from nnet3_runtime_cuda.kernels.base import (
    Backpropagation,
    Kernel,
    Propagation,
    column_blocks,
    contiguous,
)
from nnet3_runtime_cuda.kernels.fixed_maps import record_gather_columns
from nnet3_runtime_cuda.kernels.parameters import add_column_sum
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Tape


def _steps(size: int, window: int, step: int) -> range:
    """The first positions of a window that moves over `size` elements."""
    return range(0, size - window + 1, step)


class PatchMap:
    """The columns of a row that make its patches, and the inverse map for sums over patches.

    Attributes:
        columns: (patch columns,) int64, the column of the row for each column of the patches.
    """

    def __init__(self, columns: Array, row_dim: int) -> None:
        self.columns = columns
        self.row_dim = row_dim
        # Layer k of the inverse names, for each column of the row, the k-th patch column that
        # copies it; columns copied less often point behind the end, at a column of zeros.
        order = np.argsort(columns, kind="stable")
        counts = np.bincount(columns, minlength=row_dim)
        rank = np.arange(len(columns)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.layers = np.full((int(counts.max()), row_dim), len(columns), dtype=np.int64)
        self.layers[rank, columns[order]] = order

    def record_gather(self, tape: Tape, x: Array) -> Array:
        """Records the copy of the patches of x to scratch memory: (rows, patch columns)."""
        patches = tape.scratch(len(x), len(self.columns))
        record_gather_columns(tape, x, self.columns, patches)
        return patches

    def scratch_for_scatter(self, tape: Tape, rows: int) -> Array:
        """Scratch memory for derivatives of patches, with the column of zeros at the end."""
        patches = tape.scratch(rows, len(self.columns) + 1)
        tape.fill(0.0, patches[:, -1])
        return patches

    def record_scatter(self, tape: Tape, patches: Array, dx: Array, *, add: bool) -> None:
        """Records dx (+)= for each column the sum of the patch columns that copy it."""
        layer = tape.scratch(len(dx), self.row_dim)
        for columns in self.layers:
            if not add and dx.flags.c_contiguous:
                tape.take_columns(patches, columns, dx)
            else:
                tape.take_columns(patches, columns, layer)
                if add:
                    tape.add(dx, layer, dx)
                else:
                    tape.copy(layer, dx)
            add = True


@kernel_for(ConvolutionComponent)
class ConvolutionKernel(Kernel):
    """Each filter applied to each patch of the row: y_(patch, filter) += patch . filter + bias.

    The row is a tensor (x, y, z), z or y fastest; filters span all z. filter_params: (filters,
    filt_x_dim * filt_y_dim * input_z_dim), and the output has the filter as fastest index.
    """

    def prepare(self) -> None:
        """Finds the parameters and the columns of the patches."""
        self.filters = self.store.parameters["filter_params"]
        self.bias = self.store.parameters["bias_params"]
        c = self.component
        x, y, z = (np.arange(n) for n in (c.filt_x_dim, c.filt_y_dim, c.input_z_dim))
        corners = itertools.product(
            _steps(c.input_x_dim, c.filt_x_dim, c.filt_x_step),
            _steps(c.input_y_dim, c.filt_y_dim, c.filt_y_step),
        )
        z_is_fastest = c.input_vectorization == "zyx"
        y_stride, z_stride = (c.input_z_dim, 1) if z_is_fastest else (1, c.input_y_dim)
        columns = [
            (x0 + x[:, None, None]) * (c.input_y_dim * c.input_z_dim)
            + (y0 + y[:, None]) * y_stride
            + z * z_stride
            for x0, y0 in corners
        ]
        self.patches = PatchMap(np.concatenate(columns, axis=None), c.input_dim)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        tape, (count, width) = p.tape, self.filters.shape
        patches = self.patches.record_gather(tape, p.x).reshape(-1, width)
        direct = p.y.flags.c_contiguous and not p.add
        y = p.y if direct else tape.scratch(*p.y.shape)
        rows = y.reshape(-1, count)
        tape.matmul(patches, self.store.transposed(self.filters, pays=False), rows)
        tape.add(rows, self.bias, rows)
        if p.add:
            tape.add(p.y, y, p.y)
        elif not direct:
            tape.copy(y, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        tape, (count, width) = b.tape, self.filters.shape
        dy = contiguous(tape, b.dy).reshape(-1, count)
        if b.dx is not None:
            patches = self.patches.scratch_for_scatter(tape, len(b.dy))
            product = tape.scratch(len(dy), width)
            tape.matmul(dy, self.filters, product)
            tape.copy(product.reshape(len(b.dy), -1), patches[:, :-1])
            self.patches.record_scatter(tape, patches, b.dx, add=b.add)
        if b.update:
            rows = self.patches.record_gather(tape, b.x).reshape(-1, width)
            directions = self.store.directions
            tape.matmul(dy.T, rows, directions["filter_params"], add=True)
            add_column_sum(tape, dy, directions["bias_params"])


@kernel_for(MaxpoolingComponent)
class MaxpoolingKernel(Kernel):
    """y_pool = largest element of the pool; dx = sum over pools of dy where x equals it."""

    def prepare(self) -> None:
        """Finds the columns of the patches: one patch for each position within the pools."""
        c = self.component
        starts = [
            np.array(_steps(size, pool, step))
            for size, pool, step in (
                (c.input_x_dim, c.pool_x_size, c.pool_x_step),
                (c.input_y_dim, c.pool_y_size, c.pool_y_step),
                (c.input_z_dim, c.pool_z_size, c.pool_z_step),
            )
        ]
        x, y, z = starts[0][:, None, None], starts[1][:, None], starts[2]
        within = itertools.product(range(c.pool_x_size), range(c.pool_y_size), range(c.pool_z_size))
        columns = [
            ((x + i) * c.input_y_dim + (y + j)) * c.input_z_dim + (z + k) for i, j, k in within
        ]
        self.patches = PatchMap(np.concatenate(columns, axis=None), c.input_dim)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        # (rows, pools) for each position in the pools.
        patches = self.patches.record_gather(p.tape, p.x)
        first, *others = column_blocks(patches, p.y.shape[1])
        p.tape.copy(first, p.y)
        for layer in others:
            p.tape.maximum(p.y, layer, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        tape = b.tape
        values = self.patches.record_gather(tape, b.x)
        derivatives = self.patches.scratch_for_scatter(tape, len(b.x))
        is_largest = tape.scratch(*b.y.shape, dtype=np.bool_)
        dim = b.y.shape[1]
        pairs = zip(
            column_blocks(values, dim), column_blocks(derivatives[:, :-1], dim), strict=True
        )
        for value, derivative in pairs:
            tape.equal(value, b.y, is_largest)
            tape.multiply(b.dy, is_largest, derivative)
        self.patches.record_scatter(tape, derivatives, out, add=b.add)
