"""Matrices of which the backward part must see the very same numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from nnet3_compiler.commands import Backprop, BackpropNoModelUpdate
from nnet3_descriptors.remembering import remembered
from nnet3_optimizer.analysis.csr import Bools
from nnet3_optimizer.operands import operand
from nnet3_optimizer.program import Program

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

SENSITIVE = (
    "RectifiedLinearComponent",  # is the output 0, or not
    "MaxpoolingComponent",  # which elements are the largest one
    "PnormComponent",  # 0 divided by 0 is taken as 0
    "NormalizeComponent",  # a row of zeros is divided by the floor of its norm
    "StatisticsPoolingComponent",  # and so is a variance of 0
    "CompositeComponent",  # which may hold one of these
)
"""Types whose backward pass is another one where what it looks at is nearly 0, or nearly equal,
instead of being so. Outputs of rectifiers are 0 half of the time."""


def is_looked_at_closely(program: Program) -> Bools:
    """Which matrices, (matrices,), the backward pass of a component of these types looks at."""
    at = program.positions(Backprop.OPCODE, BackpropNoModelUpdate.OPCODE)
    at = at[_are_sensitive(program.nnet)[operand(program.table, at, Backprop, "component")]]
    found = np.zeros(len(program.matrices), dtype=np.bool_)
    for value in ("input_value", "output_value"):
        found[program.layout.matrix_of[operand(program.table, at, Backprop, value)]] = True
    return found


@remembered
def _are_sensitive(nnet: Nnet) -> Bools:
    """Which components, (components,), are of these types."""
    return np.array([each.type in SENSITIVE for each in nnet.components], dtype=np.bool_)
