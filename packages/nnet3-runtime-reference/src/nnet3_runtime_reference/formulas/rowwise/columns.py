"""Maps of the columns without parameters."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.components import (
    PermuteComponent,
    PnormComponent,
    SumBlockComponent,
    SumGroupComponent,
)

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula
from nnet3_runtime_reference.formulas.rowwise.affine import blocks


@formula(PnormComponent)
class Pnorm(Formula):
    """y_g = |x_g|, the Euclidean norm, for each group g of neighbouring columns.

    X. Zhang et al., "Improving deep neural network acoustic models using generalized maxout
    networks" (2014), with p = 2. Backward dx_g = dy_g x_g / y_g, and 0 where y_g is 0.
    """

    def _groups(self, call: Call) -> Array:
        """Returns x as (rows, groups, columns of a group)."""
        return call.x.reshape(call.rows_in, call.component.output_dim, -1)

    def forward(self, call: Call) -> Array:
        """Returns the norms."""
        groups = self._groups(call).astype(np.float64)  # squares may overflow
        return np.sqrt((groups**2).sum(axis=2))

    def backward(self, call: Call) -> Array:
        """Returns the dy_g x_g / y_g."""
        slope = np.where(call.y == 0, 0, call.dy / np.where(call.y == 0, 1, call.y))
        return (slope[:, :, None] * self._groups(call)).reshape(call.rows_in, -1)


@formula(SumGroupComponent)
class SumGroup(Formula):
    """y_g = the sum of the columns of group g.

    sizes are the numbers of columns of the groups. Backward dx = dy_g in each column of the group.
    """

    def forward(self, call: Call) -> Array:
        """Returns the sums."""
        ends = np.cumsum(call.component.sizes)
        groups = np.split(call.x, ends[:-1], axis=1)
        return np.stack([group.sum(axis=1) for group in groups], axis=1)

    def backward(self, call: Call) -> Array:
        """Returns dy_g for each column."""
        return np.repeat(call.dy, call.component.sizes, axis=1)


@formula(SumBlockComponent)
class SumBlock(Formula):
    """y = scale (x_1 + ... + x_k), for the blocks of the columns.

    Backward dx_j = scale dy.
    """

    def forward(self, call: Call) -> Array:
        """Returns the scaled sum."""
        c = call.component
        return c.scale * blocks(call.x, c.input_dim // c.output_dim).sum(axis=0)

    def backward(self, call: Call) -> Array:
        """Returns the scaled dy for each block."""
        c = call.component
        return np.tile(c.scale * call.dy, (1, c.input_dim // c.output_dim))


@formula(PermuteComponent)
class Permute(Formula):
    """y_i = x_m(i) for each column i.

    m is column_map. Backward dx_m(i) = dy_i.
    """

    def forward(self, call: Call) -> Array:
        """Returns the columns of x in their new order."""
        return call.x[:, call.component.column_map]

    def backward(self, call: Call) -> Array:
        """Returns the columns of dy in their old order."""
        dx = call.zeros_in()
        dx[:, call.component.column_map] = call.dy
        return dx
