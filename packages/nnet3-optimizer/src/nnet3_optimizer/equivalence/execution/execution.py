"""Symbolic execution of a computation: it finds the way in which each result was computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    SCHEMA,
    AcceptInput,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    CompressMatrix,
    DeallocMatrix,
    GotoLabel,
    NoOperationMarker,
    ProvideOutput,
    SwapMatrix,
    alpha_value,
    keeps_sign_only,
)

from nnet3_optimizer.equivalence.behaviour import Behaviour, Provided
from nnet3_optimizer.equivalence.execution.components import COMPONENT_CALLS
from nnet3_optimizer.equivalence.execution.copies import COPIES, Command
from nnet3_optimizer.equivalence.execution.symbolic_state import SymbolicState
from nnet3_optimizer.equivalence.symbols.matrices import SIGN

if TYPE_CHECKING:
    from nnet3_computation.arrays import IntArray

_Action = Callable[[SymbolicState, Command], None]
_ActionAtOnce = Callable[[SymbolicState, int, list[int]], None]
"""Executes a run of commands, given the position of the first and their operands."""

_PIECE = 1024
"""The largest number of commands of different kinds in a piece."""

_LONG = 16
"""The least number of commands of one kind that make a run; some runs have thousands."""


def execute(state: SymbolicState, segments: int | None) -> Behaviour:
    """Runs a computation on symbols and returns its behaviour.

    Args:
        state: A state made for the computation.
        segments: The number of segments to run; a loop can run any number. None runs all commands
            once.

    Raises:
        EquivalenceError: A command uses a matrix or memo that does not exist.
        IrregularError: The computation treats the sequences differently.
    """
    begin: int | None = 0
    while begin is not None:
        begin = _run(state, segments, begin)
    return state.behaviour


def _run(state: SymbolicState, segments: int | None, begin: int) -> int | None:
    """Runs commands from a position on; returns the position to go on from, None at the end."""
    table = state.computation.command_table
    for first, last, at_once in _pieces(table[:, OPCODE_COLUMN], begin):
        # Lists live for one piece, tuples for one command: many of them keep the garbage collector
        # busy.
        columns: list[list[int]] = table[first:last].T.tolist()
        if at_once is not None:
            at_once(state, first, columns[FIRST_OPERAND_COLUMN])
            continue
        actions = map(_ACTIONS.__getitem__, columns[OPCODE_COLUMN])
        commands: Iterator[Command] = zip(*columns, strict=True)
        for state.command, action, command in zip(count(first), actions, commands, strict=False):
            action(state, command)
            if segments is not None and command[OPCODE_COLUMN] in _ENDS:
                if state.segment == segments:
                    return None
                if command[OPCODE_COLUMN] == GotoLabel.OPCODE:
                    return command[FIRST_OPERAND_COLUMN]
    return None


def _pieces(opcodes: IntArray, begin: int) -> Iterator[tuple[int, int, _ActionAtOnce | None]]:
    """Yields begin and end of each piece, and the function that executes the piece."""
    if begin == len(opcodes):
        return
    ends = np.append(np.flatnonzero(np.diff(opcodes[begin:])) + begin + 1, len(opcodes))
    starts = np.append(begin, ends[:-1])
    is_long = (ends - starts >= _LONG) & np.isin(opcodes[starts], list(_AT_ONCE))
    runs = zip(starts[is_long].tolist(), ends[is_long].tolist(), strict=True)
    for first, last in (*runs, (len(opcodes), len(opcodes))):
        for piece in range(begin, first, _PIECE):
            yield piece, min(piece + _PIECE, first), None
        if first < last:
            yield first, last, _AT_ONCE[int(opcodes[first])]
        begin = last


def _nothing(state: SymbolicState, command: Command) -> None:
    pass


def _alloc_zeroed(state: SymbolicState, command: Command) -> None:
    state.allocate_zeroed(command[2])


def _alloc_all_zeroed(state: SymbolicState, first: int, submatrices: list[int]) -> None:
    for state.command, submatrix in enumerate(submatrices, first):
        state.allocate_zeroed(submatrix)


def _alloc_undefined(state: SymbolicState, command: Command) -> None:
    state.allocate(command[2], [])


def _dealloc(state: SymbolicState, command: Command) -> None:
    state.free(command[2])


def _dealloc_all(state: SymbolicState, first: int, submatrices: list[int]) -> None:
    for state.command, submatrix in enumerate(submatrices, first):
        state.free(submatrix)


def _swap(state: SymbolicState, command: Command) -> None:
    state.hand_over(*command[2:4])


def _accept(state: SymbolicState, command: Command) -> None:
    submatrix, node = command[2:4]
    block = state.pattern.blocks[submatrix]
    name = "input", state.segment, node, block
    state.allocate(submatrix, state.unknowns.block(name, state.size(submatrix)))


def _provide(state: SymbolicState, command: Command) -> None:
    submatrix, node = command[2:4]
    state.behaviour.provided[state.segment, node] = Provided(
        command=state.command,
        content=state.provided(submatrix),
        block=state.pattern.blocks[submatrix],
    )


def _next_segment(state: SymbolicState, command: Command) -> None:
    state.segment += 1


def _compress(state: SymbolicState, command: Command) -> None:
    alpha, submatrix, kind, truncate = command[1:5]
    content = state.content(submatrix)
    if not keeps_sign_only(kind, alpha_value(alpha)):
        content.rounding = (kind, truncate, alpha, content.rounding)
    elif content.rounding not in (None, SIGN):
        content.rounding = (SIGN, content.rounding)
    else:
        content.rounding = SIGN


_ENDS = NoOperationMarker.OPCODE, GotoLabel.OPCODE

_ACTIONS: dict[int, _Action] = {
    **dict.fromkeys(range(len(SCHEMA.types)), _nothing),
    AllocMatrixZeroed.OPCODE: _alloc_zeroed,
    AllocMatrixUndefined.OPCODE: _alloc_undefined,
    DeallocMatrix.OPCODE: _dealloc,
    SwapMatrix.OPCODE: _swap,
    CompressMatrix.OPCODE: _compress,
    AcceptInput.OPCODE: _accept,
    ProvideOutput.OPCODE: _provide,
    NoOperationMarker.OPCODE: _next_segment,
    **COPIES,
    **COMPONENT_CALLS,
}
"""The function that executes each command; the other commands do nothing that matters here."""

_AT_ONCE: dict[int, _ActionAtOnce] = {
    AllocMatrixZeroed.OPCODE: _alloc_all_zeroed,
    DeallocMatrix.OPCODE: _dealloc_all,
}
"""The function that executes many commands of a kind, one after the other."""
