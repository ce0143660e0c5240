"""Commands for the world outside, and for the order of commands."""

from __future__ import annotations

from nnet3_compiler import commands as c

from ..lowering import Lowering, binds


@binds(c.AcceptInput)
def _accept_input(low: Lowering, command: c.AcceptInput) -> None:
    low.zeros.forget(low.area(command.matrix)[0])
    low.accept(command.matrix, command.node)


@binds(c.ProvideOutput)
def _provide_output(low: Lowering, command: c.ProvideOutput) -> None:
    low.read(command.matrix)
    low.provide(command.matrix, command.node)


@binds(c.NoOperation)
def _no_operation(low: Lowering, command: c.NoOperation) -> None:
    """Nothing."""


@binds(c.NoOperationMarker)
def _marker(low: Lowering, command: c.NoOperationMarker) -> None:
    low.end_segment()


@binds(c.NoOperationLabel)
def _label(low: Lowering, command: c.NoOperationLabel) -> None:
    low.label()


@binds(c.GotoLabel)
def _goto(low: Lowering, command: c.GotoLabel) -> None:
    low.loop(command.label)
