"""Dropout, element by element or row by row (N. Srivastava et al., 2014, but without scaling)."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.components import DropoutComponent, DropoutMaskComponent

from nnet3_runtime_reference.draws import Array, uniform
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula


@formula(DropoutComponent)
class Dropout(Formula):
    """y = m x, with the mask m = 1 where u > p, else 0.

    u is uniform in [0, 1), one for each element, or for each row if dropout_per_frame is set; p is
    dropout_proportion. The rest is not scaled up; in test mode y = (1 - p) x. Backward
    dx = dy y / x, and dx = dy where x is 0.
    """

    def forward(self, call: Call) -> Array:
        """Returns m x."""
        c = call.component
        if c.test_mode:
            return call.x * (1.0 - c.dropout_proportion)
        shape = (call.rows_in, 1 if c.dropout_per_frame else c.dim)
        return call.x * call.mask(shape, lambda rng: uniform(rng, shape) > c.dropout_proportion)

    def backward(self, call: Call) -> Array:
        """Returns dy y / x."""
        is_zero = call.x == 0
        ratio = np.where(is_zero, 1, call.y / np.where(is_zero, 1, call.x))
        return call.dy * ratio


@formula(DropoutMaskComponent)
class DropoutMask(Formula):
    """y = m, a mask: 1 where u > p, else 0.

    u is uniform in [0, 1), one for each element; p is dropout_proportion. A mask of two or three
    columns scales the gates of an LSTM. Its second column is 1 where u of the first column is below
    1 - p, so that for p up to 1/2 the two are never both 0 (G. Cheng et al., "An exploration of
    dropout with LSTMs", 2017). If the mask is continuous, m = 4 p u + 1 - 2 p. In test mode m is
    the average, 1 - p, or 1 if continuous. There is no input.
    """

    def forward(self, call: Call) -> Array:
        """Returns m."""
        c = call.component
        p = c.dropout_proportion
        if p == 0.0 or (c.test_mode and c.continuous):
            return call.zeros_out() + 1.0
        if c.test_mode:
            return call.zeros_out() + (1.0 - p)
        shape = (call.rows_out, c.output_dim)

        def make(rng: np.random.Generator) -> Array:
            u = uniform(rng, shape)
            if c.continuous:
                return 4.0 * p * u + 1.0 - 2.0 * p
            kept = np.array(u > p, dtype=np.float64)
            if c.output_dim in (2, 3):
                kept[:, 1] = u[:, 0] < 1.0 - p
            return kept

        return call.mask(shape, make)

    def backward(self, call: Call) -> Array:
        """Returns an empty array: there is no input."""
        return call.zeros_in()
