"""Constants: outputs that no input changes."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors import ComponentProperties
from nnet3_descriptors.components import ConstantComponent, ConstantFunctionComponent

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula


@formula(ConstantComponent, ConstantFunctionComponent)
class Constant(Formula):
    """y = b, in each row.

    b is output. Backward dx = 0, db = the sum of the rows of dy, if the component is updatable.
    """

    def forward(self, call: Call) -> Array:
        """Returns b for each row."""
        return np.tile(call.parameter("output"), (call.rows_out, 1))

    def backward(self, call: Call) -> Array:
        """Returns zeros."""
        return call.zeros_in()

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns db."""
        if not call.has(ComponentProperties.UPDATABLE):
            return {}
        return {"output": call.dy.sum(axis=0)}
