"""Sets of commands that several checks use."""

from __future__ import annotations

from nnet3_computation.analysis.kinds import CommandKinds
from nnet3_computation.commands import (
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    Backprop,
    BackpropNoModelUpdate,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    MatrixAdd,
    MatrixCopy,
    Propagate,
)

SUMS = CommandKinds.of(
    MatrixCopy,
    MatrixAdd,
    CopyRows,
    AddRows,
    CopyRowsMulti,
    AddRowsMulti,
    CopyToRowsMulti,
    AddToRowsMulti,
    AddRowRanges,
)
"""Copies and sums, with a scale."""

COMPUTING = CommandKinds(SUMS.has | CommandKinds.of(Propagate, Backprop, BackpropNoModelUpdate).has)
"""Everything that computes elements from others."""
