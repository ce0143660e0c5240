"""Symbolic execution of a computation: what the user gets, in terms of how it was computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from nnet3_compiler.commands import (
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
)
from nnet3_compiler.declaration import FIRST_OPERAND_COLUMN, OPCODE_COLUMN, alpha_value

from nnet3_optimizer.compression import keeps_sign_only
from nnet3_optimizer.equivalence.behaviour import Behaviour, Provided
from nnet3_optimizer.equivalence.components import COMPONENT_CALLS
from nnet3_optimizer.equivalence.copies import COPIES, Command
from nnet3_optimizer.equivalence.matrices import SIGN
from nnet3_optimizer.equivalence.state import State

_Action = Callable[[State, Command], None]


def execute(state: State, segments: int | None) -> Behaviour:
    """Runs a computation on symbols and returns what was seen from outside.

    Args:
        state: A state made for the computation.
        segments: How many segments to run, which a loop may do any number of times; None to run all
            commands once.

    Raises:
        EquivalenceError: A command uses a matrix or memo that is not there.
        IrregularError: It treats the sequences differently.
    """
    table = state.computation.command_table
    opcodes: list[int] = table[:, OPCODE_COLUMN].tolist()
    actions = [_ACTIONS[opcode] for opcode in opcodes]
    # Tuples that are made one at a time: thousands of them keep the garbage collector busy.
    columns: list[list[int]] = table.T.tolist()
    begin: int | None = 0
    while begin is not None:
        rest = [column[begin:] for column in columns] if begin else columns
        commands = zip(*rest, strict=True)
        begin = _run(state, segments, zip(count(begin), actions[begin:], commands, strict=False))
    return state.behaviour


def _run(
    state: State, segments: int | None, commands: Iterable[tuple[int, _Action, Command]]
) -> int | None:
    """Runs commands, each given with its position, and returns where to go on; None if nowhere."""
    for position, action, command in commands:
        state.command = position
        action(state, command)
        if segments is not None and command[OPCODE_COLUMN] in _ENDS:
            if state.segment == segments:
                return None
            if command[OPCODE_COLUMN] == GotoLabel.OPCODE:
                return command[FIRST_OPERAND_COLUMN]
    return None


def _nothing(state: State, command: Command) -> None:
    pass


def _alloc_zeroed(state: State, command: Command) -> None:
    state.allocate_zeroed(command[2])


def _alloc_undefined(state: State, command: Command) -> None:
    state.allocate(command[2], [])


def _dealloc(state: State, command: Command) -> None:
    state.free(command[2])


def _swap(state: State, command: Command) -> None:
    state.hand_over(*command[2:4])


def _accept(state: State, command: Command) -> None:
    submatrix, node = command[2:4]
    block = state.pattern.blocks[submatrix]
    name = "input", state.segment, node, block
    state.allocate(submatrix, state.unknowns.block(name, state.size(submatrix)))


def _provide(state: State, command: Command) -> None:
    submatrix, node = command[2:4]
    state.behaviour.provided[state.segment, node] = Provided(
        command=state.command,
        content=state.provided(submatrix),
        block=state.pattern.blocks[submatrix],
    )


def _next_segment(state: State, command: Command) -> None:
    state.segment += 1


def _compress(state: State, command: Command) -> None:
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
"""What each command does; the others do nothing that matters here."""
