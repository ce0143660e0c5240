"""Commands that copy and add whole submatrices, rows, and ranges of rows."""

from __future__ import annotations

import numpy as np
from nnet3_compiler import commands as c

from ...row_ranges import record_row_range_sums
from ..gathered_splices import GatheredRows
from ..lowering import Flags, Lowering, binds
from ..regular import Positions
from ..rows import record_fill, record_move, record_scaled


@binds(c.MatrixCopy)
def _matrix_copy(low: Lowering, command: c.MatrixCopy) -> None:
    if low.steps.is_deferred_copy(low) or low.is_added_derivative():
        return
    if low.position in low.splices.needless:
        return
    source = low.read(command.input)
    record_scaled(low.tape, source, command.alpha, low.set(command.output), add=False)


@binds(c.MatrixAdd)
def _matrix_add(low: Lowering, command: c.MatrixAdd) -> None:
    if low.is_added_derivative():
        return
    source = low.read(command.input)
    output, add = low.add_to(command.output)
    record_scaled(low.tape, source, command.alpha, output, add=add)


def _bind_rows(
    low: Lowering,
    output: int,
    source: Positions,
    present: Flags,
    alpha: float,
    *,
    add: bool,
    zero_absent: bool,
) -> None:
    """Records the rows of `output` as (alpha times) rows elsewhere, where there are any."""
    target = low.arena.row_positions(output)
    columns = low.area(output)[1].column_end - low.area(output)[1].column
    if zero_absent:
        record_fill(low.tape, low.arena, target[~present], columns, 0.0)
    record_move(low.tape, low.arena, target[present], source[present], columns, alpha, add=add)


@binds(c.CopyRows)
def _copy_rows(low: Lowering, command: c.CopyRows) -> None:
    low.read(command.input)
    low.set(command.output)
    source, present = _indexed_rows(low, command.input, command.indexes)
    _bind_rows(low, command.output, source, present, command.alpha, add=False, zero_absent=True)


@binds(c.AddRows)
def _add_rows(low: Lowering, command: c.AddRows) -> None:
    low.read(command.input)
    _, add = low.add_to(command.output)
    source, present = _indexed_rows(low, command.input, command.indexes)
    _bind_rows(low, command.output, source, present, command.alpha, add=add, zero_absent=not add)


def _indexed_rows(low: Lowering, submatrix: int, indexes: int) -> tuple[Positions, Flags]:
    rows = low.computation.indexes[indexes].astype(np.int64)
    present = rows >= 0
    return low.arena.positions(np.full(len(rows), submatrix), np.where(present, rows, 0)), present


@binds(c.CopyRowsMulti)
def _copy_rows_multi(low: Lowering, command: c.CopyRowsMulti) -> None:
    low.flush_multi(command.indexes_multi)
    gathered = low.splices.gathered.get(low.position)
    if gathered is not None:
        _gather(low, gathered)
        return
    low.set(command.output)
    source, present = low.multi_positions(command.indexes_multi)
    _bind_rows(low, command.output, source, present, command.alpha, add=False, zero_absent=True)


@binds(c.AddRowsMulti)
def _add_rows_multi(low: Lowering, command: c.AddRowsMulti) -> None:
    low.flush_multi(command.indexes_multi)
    _, add = low.add_to(command.output)
    source, present = low.multi_positions(command.indexes_multi)
    _bind_rows(low, command.output, source, present, command.alpha, add=add, zero_absent=not add)


def _bind_to_rows(
    low: Lowering, command: c.CopyToRowsMulti | c.AddToRowsMulti, *, add: bool
) -> None:
    low.flush_multi(command.indexes_multi)
    scattered = low.splices.scattered.get(low.position)
    if scattered is not None:
        _scatter(low, scattered)
        return
    columns = low.read(command.input).shape[1]
    target, present = low.multi_positions(command.indexes_multi)
    source = low.arena.row_positions(command.input)
    record_move(
        low.tape,
        low.arena,
        target[present],
        source[present],
        columns,
        command.alpha,
        add=add,
    )


@binds(c.CopyToRowsMulti)
def _copy_to_rows_multi(low: Lowering, command: c.CopyToRowsMulti) -> None:
    _bind_to_rows(low, command, add=False)


@binds(c.AddToRowsMulti)
def _add_to_rows_multi(low: Lowering, command: c.AddToRowsMulti) -> None:
    _bind_to_rows(low, command, add=True)


def _gather(low: Lowering, gathered: GatheredRows) -> None:
    """Records, with the last of the commands, that all rows are copied to where they are taps."""
    if low.position == gathered.moves[-1]:
        low.zeros.forget(gathered.taps.matrix)
        columns = gathered.taps.area.column_end
        packed, rows = _packed_positions(low, gathered), low.arena.positions(*gathered.rows.T)
        record_move(low.tape, low.arena, packed, rows, columns, 1.0, add=False)


def _scatter(low: Lowering, scattered: GatheredRows) -> None:
    """Records, with the last of the commands, that the sum of all blocks is added to the rows.

    The first command may set its rows; these are the first ones, as many as a block has.
    """
    if low.position == scattered.moves[-1]:
        columns, split = scattered.taps.area.column_end, scattered.taps.rows
        packed, rows = _packed_positions(low, scattered), low.arena.positions(*scattered.rows.T)
        adds = isinstance(low.computation.commands[scattered.moves[0]], c.AddToRowsMulti)
        for part, add in ((slice(0, split), adds), (slice(split, len(rows)), True)):
            record_move(low.tape, low.arena, rows[part], packed[part], columns, 1.0, add=add)


def _packed_positions(low: Lowering, gathered: GatheredRows) -> Positions:
    """Where the rows start in the memory of the splice's matrix."""
    numbers = np.arange(len(gathered.rows), dtype=np.int64)
    return numbers * gathered.taps.area.column_end + low.arena.offset(gathered.taps.matrix)


@binds(c.AddRowRanges)
def _add_row_ranges(low: Lowering, command: c.AddRowRanges) -> None:
    source = low.read(command.input)
    output, add = low.add_to(command.output)
    ranges = low.computation.indexes_ranges[command.indexes_ranges]
    if command.alpha == 1.0:
        record_row_range_sums(low.tape, source, ranges, output, add=add)
        return
    sums = low.tape.scratch(*output.shape)
    record_row_range_sums(low.tape, source, ranges, sums, add=False)
    record_scaled(low.tape, sums, command.alpha, output, add=add)
