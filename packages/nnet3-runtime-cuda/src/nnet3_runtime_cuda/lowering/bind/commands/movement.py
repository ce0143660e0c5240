"""Commands that copy and add whole submatrices, rows, and ranges of rows."""

from __future__ import annotations

import numpy as np
from nnet3_compiler import commands as c

from nnet3_runtime_cuda.kernels.row_range_sums import record_row_range_sums
from nnet3_runtime_cuda.lowering.bind.binding import Binding, Flags, binds
from nnet3_runtime_cuda.lowering.bind.regular import Positions
from nnet3_runtime_cuda.lowering.bind.rows import record_fill, record_move, record_scaled
from nnet3_runtime_cuda.lowering.plan.gathered_splices import rows_of
from nnet3_runtime_cuda.lowering.plan.plan import GatheredRows


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
    """Records the rows of `output` as (alpha times) rows elsewhere, where there are any."""
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
    gathered = binding.changes.gathered.get(binding.position)
    if gathered is not None:
        _gather(binding, gathered)
        return
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
    scattered = binding.changes.scattered.get(binding.position)
    if scattered is not None:
        _scatter(binding, scattered)
        return
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


def _gather(binding: Binding, gathered: GatheredRows) -> None:
    """Records, with the last of the commands, that all rows are copied to where they are taps."""
    if binding.position == gathered.moves[-1]:
        binding.zeros.forget(gathered.taps.matrix)
        packed, rows = _packed_positions(binding, gathered), _row_positions(binding, gathered)
        columns = gathered.taps.area.columns
        record_move(binding.tape, binding.arena, packed, rows, columns, 1.0, add=False)


def _scatter(binding: Binding, scattered: GatheredRows) -> None:
    """Records, with the last of the commands, that the sum of all blocks is added to the rows.

    The first command may set its rows; these are the first ones, as many as a block has.
    """
    if binding.position == scattered.moves[-1]:
        columns, split = scattered.taps.area.columns, scattered.taps.rows
        packed, rows = _packed_positions(binding, scattered), _row_positions(binding, scattered)
        adds = isinstance(binding.commands[scattered.moves[0]], c.AddToRowsMulti)
        for part, add in ((slice(0, split), adds), (slice(split, len(rows)), True)):
            record_move(
                binding.tape, binding.arena, rows[part], packed[part], columns, 1.0, add=add
            )


def _row_positions(binding: Binding, gathered: GatheredRows) -> Positions:
    """Where the rows of many matrices start."""
    return binding.arena.positions(*rows_of(binding.computation, gathered).T)


def _packed_positions(binding: Binding, gathered: GatheredRows) -> Positions:
    """Where the rows start in the memory of the splice's matrix."""
    taps = gathered.taps
    numbers = np.arange(taps.area.rows, dtype=np.int64)
    return numbers * taps.area.columns + binding.arena.offset(taps.matrix)


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
