"""Truncation of derivatives in a recurrence: clipped, and at regular times set to zero."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.components import (
    BackpropTruncationComponent,
    BackpropTruncationPrecomputedIndexes,
    Component,
)

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Propagation
from nnet3_runtime_cuda.kernels.counts import add_count_above, add_total
from nnet3_runtime_cuda.kernels.registry import kernel_for

NO_THRESHOLD = 1.0e10
"""The limit for a threshold that is switched off."""


@kernel_for(BackpropTruncationComponent)
class BackpropTruncationKernel(Kernel):
    """y = scale x; dx = scale dy, each row clipped to a norm, or zeroed where it grew too large.

    Rows whose norm exceeds clipping_threshold are scaled down to it. At regular times
    (boundary_rows) rows whose norm exceeds zeroing_threshold are set to 0.
    """

    def prepare(self) -> None:
        """Starts from the counts in the component."""
        c = self.component
        self.num_clipped = self.store.state([[c.num_clipped]])
        self.num_zeroed = self.store.state([[c.num_zeroed]])
        self.counts = self.store.state([c.count, c.count_zeroing_boundaries])

    def with_statistics(self) -> Component:
        """The component with its present counts."""
        changed: Component = self.component.replace(
            num_clipped=float(self.num_clipped[0, 0]),
            num_zeroed=float(self.num_zeroed[0, 0]),
            count=float(self.counts[0]),
            count_zeroing_boundaries=float(self.counts[1]),
        )
        return changed

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        if self.component.scale == 1.0:
            p.tape.copy(p.x, p.y)
        else:
            p.tape.multiply(p.x, self.component.scale, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is None:
            return
        assert isinstance(b.indexes, BackpropTruncationPrecomputedIndexes)
        tape, c = b.tape, self.component
        tape.multiply(b.dy, c.scale, b.dx)
        squares, factor = tape.scratch(len(b.dx)), tape.scratch(len(b.dx))
        tape.row_dot(b.dx, b.dx, squares)
        clipping = c.clipping_threshold if c.clipping_threshold > 0.0 else NO_THRESHOLD
        zeroing = c.zeroing_threshold if c.zeroing_threshold > 0.0 else NO_THRESHOLD
        boundaries = b.indexes.boundary_rows
        is_boundary = np.zeros(len(b.dx), dtype=np.float32)
        is_boundary[boundaries] = 1.0
        too_large = tape.scratch(len(b.dx), dtype=np.bool_)
        tape.greater(squares, zeroing**2, too_large)
        keep = tape.scratch(len(b.dx))
        tape.multiply(self.store.constant(is_boundary), too_large, keep)
        if b.update:
            add_count_above(tape, squares, clipping**2, self.num_clipped)
            add_total(tape, keep, self.num_zeroed)
            rows = np.array([len(b.dx), len(boundaries)], dtype=np.float32)
            tape.add(self.counts, self.store.constant(rows), self.counts)
        tape.subtract(1.0, keep, keep)
        tape.multiply(squares, clipping**-2, factor)
        tape.maximum(factor, 1.0, factor)
        tape.sqrt(factor, factor)
        tape.divide(keep, factor, factor)
        tape.multiply(b.dx, factor[:, None], b.dx)
