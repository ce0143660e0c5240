"""Distribution over x: the blocks of a row become rows."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.components import (
    DistributeComponent,
    DistributePrecomputedIndexes,
    PrecomputedIndexes,
)

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Propagation
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array


@kernel_for(DistributeComponent)
class DistributeKernel(Kernel):
    """Each row of y is a block of columns of x: number source_blocks[i] of all blocks."""

    def _blocks(self, indexes: PrecomputedIndexes | None) -> Array:
        """The number of the block of x that each row of y is, counted along the rows of x."""
        assert isinstance(indexes, DistributePrecomputedIndexes)
        blocks: Array = np.asarray(indexes.source_blocks, dtype=np.int64)
        return blocks

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        tape, source = p.tape, p.x
        if not source.flags.c_contiguous:
            source = tape.scratch(*p.x.shape)
            tape.copy(p.x, source)
        target = p.y if p.y.flags.c_contiguous else tape.scratch(*p.y.shape)
        tape.take_rows(source.reshape(-1, p.y.shape[1]), self._blocks(p.indexes), target)
        if target is not p.y:
            tape.copy(target, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass; blocks that no row of y copied get 0."""
        if b.dx is None:
            return
        tape, width, blocks = b.tape, b.dy.shape[1], self._blocks(b.indexes)
        target = b.dx if b.dx.flags.c_contiguous else tape.scratch(*b.dx.shape)
        if len(blocks) != target.size // width:
            tape.fill(0.0, target)
        tape.put_rows(b.dy, blocks, target.reshape(-1, width))
        if target is not b.dx:
            tape.copy(target, b.dx)
