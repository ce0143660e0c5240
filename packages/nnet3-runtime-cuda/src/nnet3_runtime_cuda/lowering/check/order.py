"""The order in which commands run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnet3_computation import commands as c
from nnet3_computation.commands import Command

ROUNDS = 3
"""The rounds of a loop to run: the third one gets its state from a round like itself."""


def running_order(commands: Sequence[Command]) -> Iterator[int]:
    """Yields the positions of commands in the order in which they run; a few rounds of a loop."""
    position, round_ = 0, 1
    while position < len(commands):
        yield position
        command = commands[position]
        if isinstance(command, c.GotoLabel) and round_ < ROUNDS:
            position, round_ = command.label, round_ + 1
        else:
            position += 1
