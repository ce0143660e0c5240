"""Commands that copy and add whole submatrices, rows, and ranges of rows."""

from __future__ import annotations

import numpy as np
from nnet3_computation import commands as c

from nnet3_runtime_cuda.kernels.rows import record_row_range_sums
from nnet3_runtime_cuda.lowering.bind.binding import Binding, Flags, binds
from nnet3_runtime_cuda.lowering.bind.regular import Positions
from nnet3_runtime_cuda.lowering.bind.rows import record_fill, record_move, record_scaled


@binds(c.MatrixCopy)
def _matrix_copy(binding: Binding, command: c.MatrixCopy) -> None:
    if binding.is_sum_of_blocks():
        return
    source = binding.read(command.input)
    record_scaled(binding.tape, source, command.alpha, binding.set(command.output), add=False)


@binds(c.MatrixAdd)
def _matrix_add(binding: Binding, command: c.MatrixAdd) -> None:
    if binding.is_sum_of_blocks():
        return
    source = binding.read(command.input)
    output, add = binding.add_to(command.output)
    record_scaled(binding.tape, source, command.alpha, output, add=add)


def _bind_rows(
    binding: Binding,
    output: int,
    source: Positions,
    present: Flags,
    alpha: float,
    *,
    add: bool,
    zero_absent: bool,
) -> None:
    """Records row i of `output` (+)= alpha times the row at source[i], where present[i]."""
    target = binding.arena.row_positions(output)
    columns = binding.areas.of(output).area.columns
    if zero_absent:
        record_fill(binding.tape, binding.arena, target[~present], columns, 0.0)
    record_move(
        binding.tape, binding.arena, target[present], source[present], columns, alpha, add=add
    )


@binds(c.CopyRows)
def _copy_rows(binding: Binding, command: c.CopyRows) -> None:
    binding.read(command.input)
    binding.set(command.output)
    source, present = _indexed_rows(binding, command.input, command.indexes)
    _bind_rows(binding, command.output, source, present, command.alpha, add=False, zero_absent=True)


@binds(c.AddRows)
def _add_rows(binding: Binding, command: c.AddRows) -> None:
    binding.read(command.input)
    _, add = binding.add_to(command.output)
    source, present = _indexed_rows(binding, command.input, command.indexes)
    _bind_rows(
        binding, command.output, source, present, command.alpha, add=add, zero_absent=not add
    )


def _indexed_rows(binding: Binding, submatrix: int, indexes: int) -> tuple[Positions, Flags]:
    rows = binding.computation.indexes[indexes].astype(np.int64)
    present = rows >= 0
    return binding.arena.positions(
        np.full(len(rows), submatrix), np.where(present, rows, 0)
    ), present


@binds(c.CopyRowsMulti)
def _copy_rows_multi(binding: Binding, command: c.CopyRowsMulti) -> None:
    binding.flush_multi(command.indexes_multi)
    binding.set(command.output)
    source, present = binding.multi_positions(command.indexes_multi)
    _bind_rows(binding, command.output, source, present, command.alpha, add=False, zero_absent=True)


@binds(c.AddRowsMulti)
def _add_rows_multi(binding: Binding, command: c.AddRowsMulti) -> None:
    binding.flush_multi(command.indexes_multi)
    _, add = binding.add_to(command.output)
    source, present = binding.multi_positions(command.indexes_multi)
    _bind_rows(
        binding, command.output, source, present, command.alpha, add=add, zero_absent=not add
    )


def _bind_to_rows(
    binding: Binding, command: c.CopyToRowsMulti | c.AddToRowsMulti, *, add: bool
) -> None:
    binding.flush_multi(command.indexes_multi)
    columns = binding.read(command.input).shape[1]
    target, present = binding.multi_positions(command.indexes_multi)
    source = binding.arena.row_positions(command.input)
    record_move(
        binding.tape,
        binding.arena,
        target[present],
        source[present],
        columns,
        command.alpha,
        add=add,
    )


@binds(c.CopyToRowsMulti)
def _copy_to_rows_multi(binding: Binding, command: c.CopyToRowsMulti) -> None:
    _bind_to_rows(binding, command, add=False)


@binds(c.AddToRowsMulti)
def _add_to_rows_multi(binding: Binding, command: c.AddToRowsMulti) -> None:
    _bind_to_rows(binding, command, add=True)


@binds(c.AddRowRanges)
def _add_row_ranges(binding: Binding, command: c.AddRowRanges) -> None:
    source = binding.read(command.input)
    output, add = binding.add_to(command.output)
    ranges = binding.computation.indexes_ranges[command.indexes_ranges]
    if command.alpha == 1.0:
        record_row_range_sums(binding.tape, source, ranges, output, add=add)
        return
    sums = binding.tape.scratch(*output.shape)
    record_row_range_sums(binding.tape, source, ranges, sums, add=False)
    record_scaled(binding.tape, sums, command.alpha, output, add=add)
