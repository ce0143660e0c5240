"""Commands that copy and add, on cells."""

from __future__ import annotations

import numpy as np
from nnet3_computation import NnetComputation
from nnet3_computation import commands as c
from nnet3_computation.commands import Command

from nnet3_runtime_cuda.lowering.check.cells import Cells, Numbers

MOVES = (
    c.SetConst,
    c.MatrixCopy,
    c.MatrixAdd,
    c.CopyRows,
    c.AddRows,
    c.CopyRowsMulti,
    c.AddRowsMulti,
    c.CopyToRowsMulti,
    c.AddToRowsMulti,
    c.AddRowRanges,
)


def move(cells: Cells, computation: NnetComputation, command: Command, which: slice) -> None:
    """Runs a command of one of the classes in MOVES.

    Args:
        cells: The cells that it changes.
        computation: The computation of the command.
        command: The command.
        which: The executions that run it: BOTH or one.
    """
    alpha = _factor(command.alpha)  # type: ignore[attr-defined]
    match command:
        case c.SetConst():
            cells.of(command.output)[which] = alpha
        case c.MatrixCopy():
            cells.of(command.output)[which] = _times(cells.of(command.input)[which], alpha)
        case c.MatrixAdd():
            cells.of(command.output)[which] += _times(cells.of(command.input)[which], alpha)
        case c.CopyRows() | c.AddRows():
            rows = computation.indexes[command.indexes]
            values = cells.of(command.input)[which][:, rows]
            values[:, rows < 0] = 0
            target = cells.of(command.output)[which]
            _put(target, _times(values, alpha), adds=isinstance(command, c.AddRows))
        case c.CopyRowsMulti() | c.AddRowsMulti():
            pairs, target = (
                computation.indexes_multi[command.indexes_multi],
                cells.of(command.output)[which],
            )
            values = cells.all[which][:, cells.of_rows(pairs, target.shape[2])]
            values[:, pairs[:, 0] < 0] = 0
            _put(target, _times(values, alpha), adds=isinstance(command, c.AddRowsMulti))
        case c.CopyToRowsMulti() | c.AddToRowsMulti():
            pairs = computation.indexes_multi[command.indexes_multi]
            is_named = pairs[:, 0] >= 0
            values = _times(cells.of(command.input)[which][:, is_named], alpha)
            where = cells.of_rows(pairs[is_named], values.shape[2])
            if isinstance(command, c.AddToRowsMulti):
                values = values + cells.all[which][:, where]
            cells.all[which][:, where] = values
        case c.AddRowRanges():
            ranges = computation.indexes_ranges[command.indexes_ranges]
            values = cells.of(command.input)[which]
            sums = np.zeros((len(values), len(values[0]) + 1, values.shape[2]), np.uint64)
            np.cumsum(values, axis=1, out=sums[:, 1:])
            total = sums[:, ranges[:, 1]] - sums[:, ranges[:, 0]]
            total[:, ranges[:, 0] < 0] = 0
            cells.of(command.output)[which] += _times(total, alpha)


def _put(target: Numbers, values: Numbers, *, adds: bool) -> None:
    if adds:
        target += values
    else:
        target[...] = values


def _times(values: Numbers, factor: np.uint64) -> Numbers:
    return values if factor == 1 else values * factor


def _factor(alpha: float) -> np.uint64:
    """An element of the ring for a factor: 0 and 1 for 0 and 1, else an odd number."""
    if alpha in (0.0, 1.0):
        return np.uint64(alpha)
    bits = int(np.float32(alpha).view(np.uint32))
    return np.uint64((2 * bits + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
