"""The formula of the type, for the reference runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
from nnet3_runtime_reference import Call, Formula, formula
from numpy.typing import NDArray

from nnet3_delta.component import DeltaComponent

Array = NDArray[np.floating[Any]]


@formula(DeltaComponent)
class Delta(Formula):
    """y(t) = scale (x(t + offset) - x(t - offset)); dx sums the derivatives of all reads."""

    def forward(self, call: Call) -> Array:
        """Returns the differences."""
        difference = call.x[call.indexes.later] - call.x[call.indexes.earlier]
        return call.component.scale * difference

    def backward(self, call: Call) -> Array:
        """Returns for each row of x: scale dy where it is the later row, -scale dy the earlier."""
        dx = call.zeros_in()
        dx[call.indexes.later] += call.component.scale * call.dy
        dx[call.indexes.earlier] -= call.component.scale * call.dy
        return dx
