"""What rules about inputs of several blocks of columns have in common."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from nnet3_compiler import commands as c

from nnet3_runtime_cuda.lowering.areas import Area
from nnet3_runtime_cuda.lowering.plan.known_inputs import MOST_ROWS

FEWEST_ROWS = MOST_ROWS + 1
"""Inputs with fewer rows are left alone: they may be steps of a recurrence."""

GainsByTaps = Callable[[int, int, tuple[int, ...]], bool]
"""See `Capabilities.gains_by_taps`."""


def input_of(command: c.Propagate | c.Backprop | c.BackpropNoModelUpdate) -> int:
    """The submatrix that a command multiplies by parameters, or by a derivative."""
    return command.input if isinstance(command, c.Propagate) else command.input_value


def blocks_of(area: Area, width: int) -> list[Area]:
    """The blocks of so many columns that an area is made of; none if a part would be left."""
    columns = range(area.column, area.column_end, width)
    if area.columns % width:
        return []
    return [attrs.evolve(area, column=column, column_end=column + width) for column in columns]
