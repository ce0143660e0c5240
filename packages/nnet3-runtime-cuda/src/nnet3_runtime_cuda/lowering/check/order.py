"""The order in which commands run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnet3_compiler import commands as c
from nnet3_compiler.commands import Command

ROUNDS = 3
"""In the third round of a loop all that is handed over comes from a round like it."""


def running_order(commands: Sequence[Command]) -> Iterator[int]:
    """Yields the positions of commands in the order in which they run, of a loop a few rounds."""
    position, round_ = 0, 1
    while position < len(commands):
        yield position
        command = commands[position]
        if isinstance(command, c.GotoLabel) and round_ < ROUNDS:
            position, round_ = command.label, round_ + 1
        else:
            position += 1
