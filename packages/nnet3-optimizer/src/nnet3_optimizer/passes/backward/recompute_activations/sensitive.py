"""Matrices that the backward part must read without any rounding error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from nnet3_computation.arrays import Bools
from nnet3_computation.commands import Backprop, BackpropNoModelUpdate, operand
from nnet3_descriptors.values import remembered

from nnet3_optimizer.draft import Draft

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


def is_looked_at_closely(draft: Draft) -> Bools:
    """Which matrices, (matrices,), are read by backward passes that need exact values."""
    at = draft.positions(Backprop.OPCODE, BackpropNoModelUpdate.OPCODE)
    at = at[_need_exact_values(draft.nnet)[operand(draft.table, at, Backprop, "component")]]
    found = np.zeros(len(draft.matrices), dtype=np.bool_)
    for value in ("input_value", "output_value"):
        found[draft.layout.matrix_of[operand(draft.table, at, Backprop, value)]] = True
    return found


@remembered
def _need_exact_values(nnet: Nnet) -> Bools:
    """Which components, (components,), need exact values in their backward pass."""
    return np.array([each.BACKPROP_NEEDS_EXACT_VALUES for each in nnet.components], dtype=np.bool_)
