"""The kernel of the type for nnet3-runtime-cuda, recorded on a tape."""

from __future__ import annotations

import numpy as np
from nnet3_runtime_cuda.kernels import Backpropagation, Kernel, Propagation, kernel_for

from nnet3_delta.component import DeltaComponent


@kernel_for(DeltaComponent)
class DeltaKernel(Kernel):
    """y(t) = scale (x(t + offset) - x(t - offset)); dx sums the derivatives of all reads."""

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        later, earlier = p.tape.scratch(*p.y.shape), p.tape.scratch(*p.y.shape)
        x = p.tape.scratch(*p.x.shape)
        p.tape.copy(p.x, x)  # rows of p.x can be parts of longer rows
        p.tape.take_rows(x, p.indexes.later.astype(np.int64), later)
        p.tape.take_rows(x, p.indexes.earlier.astype(np.int64), earlier)
        p.tape.subtract(later, earlier, later)
        p.tape.multiply(later, self.component.scale, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass; rows that nothing read get 0."""
        if b.dx is None:
            return
        later, earlier = b.tape.scratch(*b.dx.shape), b.tape.scratch(*b.dx.shape)
        for rows, target in ((b.indexes.later, later), (b.indexes.earlier, earlier)):
            b.tape.fill(0.0, target)
            b.tape.put_rows(b.dy, rows.astype(np.int64), target)
        b.tape.subtract(later, earlier, later)
        b.tape.multiply(later, self.component.scale, b.dx)
