"""Symbolic execution of copies and sums."""

from __future__ import annotations

from nnet3_computation.commands import (
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    MatrixAdd,
    MatrixCopy,
    SetConst,
    alpha_value,
)

from nnet3_optimizer.equivalence.execution.symbolic_state import SymbolicState
from nnet3_optimizer.equivalence.symbols.prime_field import element_of
from nnet3_optimizer.equivalence.symbols.single_row import row_of, row_scaled, stretches_of
from nnet3_optimizer.equivalence.symbols.stretches import Stretches

Command = tuple[int, ...]
"""A row of the table of commands."""

_ONE = 1065353216
"""The bits of alpha 1.0."""


def _scaled(given: Stretches, alpha: int) -> Stretches:
    """Returns elements times a scale, given as in the table."""
    return given if alpha == _ONE else given.scaled(element_of(alpha_value(alpha)))


def _set_const(state: SymbolicState, command: Command) -> None:
    alpha, output = alpha_value(command[1]), command[2]
    column = [0] * state.rows_of(output)
    constants = [[element_of(alpha)] * len(column)] if alpha else None
    state.write(output, Stretches([0], [column], constants), adds=False)


def _matrix_copy(state: SymbolicState, command: Command) -> None:
    factor = 1 if command[1] == _ONE else element_of(alpha_value(command[1]))
    transfer(state, command[2], command[3], factor, adds=False)


def _matrix_add(state: SymbolicState, command: Command) -> None:
    factor = 1 if command[1] == _ONE else element_of(alpha_value(command[1]))
    transfer(state, command[2], command[3], factor, adds=True)


def transfer(state: SymbolicState, output: int, given: int, factor: int, *, adds: bool) -> None:
    """Writes the elements of a submatrix, times a factor, to another one."""
    if 0 < state.row_blocks[output] == state.row_blocks[given]:
        row = state.read_row(given)
        if row is not None:
            state.write_row(output, row if factor == 1 else row_scaled(row, factor), adds=adds)
            return
    state.write(output, state.read_for(output, given).scaled(factor), adds=adds)


def _copy_rows(state: SymbolicState, command: Command) -> None:
    state.write_listed(command[2], _rows(state, command), adds=False)


def _add_rows(state: SymbolicState, command: Command) -> None:
    state.write_listed(command[2], _rows(state, command), adds=True)


def _rows(state: SymbolicState, command: Command) -> Stretches:
    """Returns the rows that a list names, one for each row of the output."""
    alpha, output, given, indexes = command[1:5]
    rows = state.pattern.rows(indexes, output, given)
    return _scaled(state.read(given).taken(rows), alpha)


def _copy_rows_multi(state: SymbolicState, command: Command) -> None:
    # All sources are read before anything is written.
    parts = _sources(state, command)
    zeros = Stretches([0], [[0] * state.height(command[2])])
    state.write_listed(command[2], zeros, adds=False)
    for part, places in parts:
        state.write_listed(command[2], part, adds=True, places=places)


def _add_rows_multi(state: SymbolicState, command: Command) -> None:
    for part, places in _sources(state, command):
        state.write_listed(command[2], part, adds=True, places=places)


def _sources(state: SymbolicState, command: Command) -> list[tuple[Stretches, list[int]]]:
    """Returns the rows that are taken from submatrices, and the places where they go."""
    alpha, output, indexes = command[1:4]
    parts: list[tuple[Stretches, list[int]]] = []
    # Sources that are split at the same columns are joined: there may be hundreds of them.
    rows_by_starts: dict[tuple[int, ...], tuple[list[tuple[int, ...]], list[int]]] = {}
    for submatrix, rows, places in state.pattern.gathers(indexes, output):
        is_row = state.row_blocks[submatrix] and not any(rows)
        row = state.read_row(submatrix) if is_row else None
        if row is None:
            parts.append((state.read(submatrix).taken(rows), places))
            continue
        starts, values = stretches_of(row)
        if starts not in rows_by_starts:
            rows_by_starts[starts] = [], []
        found_rows, found_places = rows_by_starts[starts]
        found_rows += [values] * len(rows)
        found_places += places
    for starts, (found_rows, found_places) in rows_by_starts.items():
        columns = [list(column) for column in zip(*found_rows, strict=True)]
        parts.append((Stretches(list(starts), columns), found_places))
    return [(_scaled(part, alpha), places) for part, places in parts]


def _copy_to_rows(state: SymbolicState, command: Command) -> None:
    _scatter(state, command, adds=False)


def _add_to_rows(state: SymbolicState, command: Command) -> None:
    _scatter(state, command, adds=True)


def _scatter(state: SymbolicState, command: Command, *, adds: bool) -> None:
    alpha, given, indexes = command[1:4]
    source = _scaled(state.read(given, padded=True), alpha)
    for submatrix, places, rows in state.pattern.scatters(indexes, given):
        if state.row_blocks[submatrix] and source.constants is None and rows == [0]:
            values = [column[places[0]] for column in source.columns]
            state.write_row(submatrix, row_of(source.starts, values), adds=adds)
        else:
            state.write(submatrix, source.taken(places), adds=adds, places=rows)


def _add_ranges(state: SymbolicState, command: Command) -> None:
    alpha, output, given, indexes = command[1:5]
    ranges = state.pattern.ranges(indexes, output, given)
    sums = _scaled(state.read(given).range_sums(ranges), alpha)
    state.write_listed(output, sums, adds=True)


COPIES = {
    SetConst.OPCODE: _set_const,
    MatrixCopy.OPCODE: _matrix_copy,
    MatrixAdd.OPCODE: _matrix_add,
    CopyRows.OPCODE: _copy_rows,
    AddRows.OPCODE: _add_rows,
    CopyRowsMulti.OPCODE: _copy_rows_multi,
    AddRowsMulti.OPCODE: _add_rows_multi,
    CopyToRowsMulti.OPCODE: _copy_to_rows,
    AddToRowsMulti.OPCODE: _add_to_rows,
    AddRowRanges.OPCODE: _add_ranges,
}
"""The function that executes each of these commands, by opcode."""
