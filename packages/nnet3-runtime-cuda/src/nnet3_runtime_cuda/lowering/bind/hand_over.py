"""Handing matrices over, as a loop does between its rounds.

SwapMatrix exchanges the memory of two matrices. Here every matrix has a fixed place, so the content
is copied, unless both matrices have the same place. Consecutive commands take effect as if at once,
because the planner may have put the destination of one at the place of another one's source.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from nnet3_computation import commands as c
from nnet3_computation.commands import Command

from nnet3_runtime_cuda.operations import Array, Operations


@attrs.frozen(eq=False)
class Memory:
    """The place of a matrix.

    Attributes:
        begin: Its first element in the arena.
        view: (rows, columns).
    """

    begin: int
    view: Array

    def overlaps(self, other: Memory) -> bool:
        """Whether the two have memory in common."""
        return (
            self.begin < other.begin + other.view.size and other.begin < self.begin + self.view.size
        )


@attrs.frozen(eq=False)
class Move:
    """The contents of one place go to another."""

    source: Memory
    destination: Memory


def swaps_from(commands: Sequence[Command], position: int) -> list[c.SwapMatrix]:
    """The SwapMatrix commands that follow one another from a position on."""
    found = []
    for command in commands[position:]:
        if not isinstance(command, c.SwapMatrix):
            break
        found.append(command)
    return found


def record_moves(tape: Operations, moves: Sequence[Move]) -> None:
    """Records all moves as if at once.

    If an earlier move, or the move itself, writes to a source, the source is first copied to
    scratch memory.
    """
    sources = []
    for number, move in enumerate(moves):
        source = move.source.view
        if any(move.source.overlaps(other.destination) for other in moves[: number + 1]):
            source = tape.scratch(*source.shape)
            tape.copy(move.source.view, source)
        sources.append(source)
    for source, move in zip(sources, moves, strict=True):
        tape.copy(source, move.destination.view)
