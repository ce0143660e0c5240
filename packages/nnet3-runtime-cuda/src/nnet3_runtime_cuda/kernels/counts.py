"""Totals that kernels sum up over minibatches, in double precision, on the device of the values."""

from __future__ import annotations

import numpy as np

from nnet3_runtime_cuda.operations import Array, Operations


def add_total(tape: Operations, values: Array, total: Array) -> None:
    """Records total += sum of the values; values: (rows,), total: (1, 1) float64."""
    part = tape.scratch(1, 1, dtype=np.float64)
    tape.row_sum(values.reshape(1, -1), part)
    tape.add(total, part, total)


def add_count_above(tape: Operations, values: Array, limit: float, total: Array) -> None:
    """Records total += number of values above a limit; values: (rows,), total: (1, 1) float64."""
    above = tape.scratch(len(values), dtype=np.bool_)
    tape.greater(values, limit, above)
    add_total(tape, above, total)
