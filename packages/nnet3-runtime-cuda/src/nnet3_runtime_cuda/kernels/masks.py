"""Dropout and other masks, which multiply their input by random numbers."""

from __future__ import annotations

from functools import partial

import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_cuda.kernels.base import (
    Backpropagation,
    Kernel,
    Propagation,
    as_blocks,
    copy_unless_same,
)
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Tape


@kernel_for(components.DropoutComponent)
class DropoutKernel(Kernel):
    """y = x, with each element, or each row, set to 0 with probability dropout_proportion.

    Other values keep their size; in test mode y = (1 - dropout_proportion) x. The backward pass is
    dx = dy y / x, and dy where x is 0.
    """

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        c = self.component
        if c.test_mode:
            p.tape.multiply(p.x, 1.0 - c.dropout_proportion, p.y)
            return
        shape = (len(p.x), 1 if c.dropout_per_frame else p.x.shape[1])
        uniform, mask = p.tape.scratch(*shape), p.tape.scratch(*shape, dtype=np.bool_)
        p.tape.random_uniform(self.store.rng, uniform)
        p.tape.greater(uniform, c.dropout_proportion, mask)
        p.tape.multiply(p.x, mask, p.y)

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        tape, shape = b.tape, b.x.shape
        is_zero, ratio = tape.scratch(*shape, dtype=np.bool_), tape.scratch(*shape)
        # With 1 added to x and y where x (and so y) is 0, their quotient is 1 there.
        tape.equal(b.x, 0.0, is_zero)
        tape.add(b.y, is_zero, ratio)
        divisor = tape.scratch(*shape)
        tape.add(b.x, is_zero, divisor)
        tape.divide(ratio, divisor, ratio)
        tape.multiply(b.dy, ratio, out)


@kernel_for(components.DropoutMaskComponent)
class DropoutMaskKernel(Kernel):
    """A random mask without an input: 0 with probability dropout_proportion, else 1.

    Two or three columns are scales of an LSTM's gates; the first two of a row are never both 0. A
    continuous mask is uniform in [1 - 2p, 1 + 2p]. In test mode the mask is its average.
    """

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        c = self.component
        proportion = c.dropout_proportion
        if proportion == 0.0 or (c.continuous and c.test_mode):
            p.tape.fill(1.0, p.y)
        elif c.test_mode:
            p.tape.fill(1.0 - proportion, p.y)
        elif c.continuous:
            p.tape.random_uniform(self.store.rng, p.y)
            p.tape.multiply(p.y, 4.0 * proportion, p.y)
            p.tape.add(p.y, 1.0 - 2.0 * proportion, p.y)
        else:
            uniform = p.tape.scratch(*p.y.shape)
            keep = p.tape.scratch(*p.y.shape, dtype=np.bool_)
            p.tape.random_uniform(self.store.rng, uniform)
            p.tape.greater(uniform, proportion, keep)
            if p.y.shape[1] in (2, 3):
                p.tape.greater(1.0 - proportion, uniform[:, 0], keep[:, 1])
            p.tape.copy(keep, p.y)

    def backprop(self, b: Backpropagation) -> None:
        """Records nothing: there is no input."""


@kernel_for(components.GeneralDropoutComponent)
class GeneralDropoutKernel(Kernel):
    """y = x times a mask that is constant over time (or over periods of it) within a sequence.

    The mask is 0 with probability p, else 1 / (1 - p); or uniform in [1 - 2p, 1 + 2p]; or, for
    SpecAugment (D. Park et al., 2019), 0 in a random band of columns, else 1. dx = dy times the
    mask. With dropout_per_frame, all columns of a mask are equal, and other values keep their size.
    """

    def _is_identity(self) -> bool:
        c = self.component
        return bool(
            c.test_mode or (c.dropout_proportion == 0.0 and c.specaugment_max_proportion == 0.0)
        )

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        if self._is_identity():
            copy_unless_same(p.tape, p.x, p.y)
            return
        indexes, tape, dim = p.indexes, p.tape, self.component.block_dim
        shape = (indexes.num_mask_rows, dim)
        mask = p.remembered("mask", *shape)
        if self.component.specaugment_max_proportion != 0.0:
            tape.copy(tape.host(self._draw_bands, *shape), mask)
        else:
            self._record_mask(tape, mask)
        self._record_product(tape, p.x, mask, indexes, p.y)

    def _record_product(
        self,
        tape: Tape,
        x: Array,
        mask: Array,
        indexes: components.GeneralDropoutPrecomputedIndexes,
        out: Array,
    ) -> None:
        dim = self.component.block_dim
        x, out = as_blocks(x, dim), as_blocks(out, dim)
        rows = np.asarray(indexes.indexes, dtype=np.int64)
        whole = tape.scratch(len(rows), dim)
        tape.take_rows(mask, rows, whole)
        tape.multiply(x, whole.reshape(x.shape), out)

    def _record_mask(self, tape: Tape, mask: Array) -> None:
        c = self.component
        if c.dropout_per_frame:
            uniform = tape.scratch(len(mask), 1)
            tape.random_uniform(self.store.rng, uniform)
        else:
            uniform = mask
            tape.random_uniform(self.store.rng, mask)
        if c.continuous:
            tape.multiply(uniform, 4.0 * c.dropout_proportion, mask)
            tape.add(mask, 1.0 - 2.0 * c.dropout_proportion, mask)
            return
        kept = tape.scratch(*uniform.shape, dtype=np.bool_)
        tape.greater(uniform, c.dropout_proportion, kept)
        scale = 1.0 if c.dropout_per_frame else 1.0 / (1.0 - c.dropout_proportion)
        tape.multiply(kept, scale, mask)

    def _draw_bands(self, mask: Array) -> None:
        """Zeroes a cyclic band of columns in each row, and scatters it over several regions.

        Each further region comes from reversing the order of the columns in a random half circle.
        """
        c, rng = self.component, self.store.rng
        bins = mask.shape[1]
        largest = int(bins * c.specaugment_max_proportion + 0.5)
        mask[...] = 1.0
        for row in mask:
            width = int(rng.integers(0, largest + 1))
            if width == 0:
                continue
            row[(int(rng.integers(bins)) + np.arange(width)) % bins] = 0.0
            for _ in range(c.specaugment_max_regions - 1):
                start = int(rng.integers(bins))
                quarter = np.arange(bins // 2 // 2)
                left, right = (start + quarter) % bins, (start + bins // 2 - quarter) % bins
                row[left], row[right] = row[right].copy(), row[left].copy()

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        if self._is_identity():
            copy_unless_same(b.tape, b.dy, out)
            return
        assert b.memo is not None
        self._record_product(b.tape, b.dy, b.memo["mask"], b.indexes, out)


@kernel_for(components.SpecAugmentTimeMaskComponent)
class SpecAugmentTimeMaskKernel(Kernel):
    """y = x, but 0 in random stretches of time of each sequence; dx = dy, but 0 there."""

    def _is_identity(self) -> bool:
        return bool(self.component.test_mode or self.component.zeroed_proportion == 0.0)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        if self._is_identity():
            copy_unless_same(p.tape, p.x, p.y)
            return
        indexes, rows = p.indexes, len(p.x)
        mask = p.remembered("mask", rows, 1)
        p.tape.copy(p.tape.host(partial(self._draw, indexes), *mask.shape), mask)
        p.tape.multiply(p.x, mask, p.y)

    def _draw(self, indexes: components.SpecAugmentTimeMaskPrecomputedIndexes, mask: Array) -> None:
        """Alternates stretches of ones and zeros of random length along each sequence."""
        c, rng = self.component, self.store.rng
        longest_zeroed = c.time_mask_max_frames
        # Kaldi computes in single precision: 10 (1 - 0.4) / 0.4 is 15 there, and less in double.
        proportion = np.float32(c.zeroed_proportion)
        longest_kept = int(np.float32(longest_zeroed) * (np.float32(1.0) - proportion) / proportion)
        for rows in indexes.sequences:
            t, zeroed = 0, not self.chance(c.zeroed_proportion)
            while t < len(rows):
                longest = longest_zeroed if zeroed else longest_kept
                length = int(rng.integers(1, longest + 1))
                mask[rows[t : t + length]] = 0.0 if zeroed else 1.0
                t, zeroed = t + length, not zeroed

    def backprop_input(self, b: Backpropagation, out: Array) -> None:
        """Records the derivative of the input."""
        if self._is_identity():
            copy_unless_same(b.tape, b.dy, out)
            return
        assert b.memo is not None
        b.tape.multiply(b.dy, b.memo["mask"], out)
