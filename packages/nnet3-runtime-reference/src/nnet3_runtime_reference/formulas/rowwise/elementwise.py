"""The identity, and products of blocks of columns."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.components import ElementwiseProductComponent, NoOpComponent

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula
from nnet3_runtime_reference.formulas.rowwise.affine import blocks, side_by_side


@formula(NoOpComponent)
class NoOp(Formula):
    """y = x.

    Backward dx = backprop_scale dy.
    """

    def forward(self, call: Call) -> Array:
        """Returns x."""
        return call.x

    def backward(self, call: Call) -> Array:
        """Returns the scaled dy."""
        return call.dy * call.component.backprop_scale


@formula(ElementwiseProductComponent)
class ElementwiseProduct(Formula):
    """y = x_1 x_2 ... x_k, element by element, of the blocks of the columns.

    Backward dx_j = dy times the product of the other blocks.
    """

    def _parts(self, call: Call) -> Array:
        return blocks(call.x, call.component.input_dim // call.component.output_dim)

    def forward(self, call: Call) -> Array:
        """Returns the product."""
        return self._parts(call).prod(axis=0)

    def backward(self, call: Call) -> Array:
        """Returns the dx_j side by side."""
        parts = self._parts(call)
        others = [np.delete(parts, j, axis=0).prod(axis=0) for j in range(len(parts))]
        return side_by_side(call.dy * np.stack(others))
