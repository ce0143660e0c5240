"""Commands for the world outside, and for the order of commands."""

from __future__ import annotations

from nnet3_computation import commands as c

from nnet3_runtime_cuda.lowering.bind.binding import Binding, binds


@binds(c.AcceptInput)
def _accept_input(binding: Binding, command: c.AcceptInput) -> None:
    binding.zeros.forget(binding.areas.of(command.matrix)[0])
    binding.accept(command.matrix, command.node)


@binds(c.ProvideOutput)
def _provide_output(binding: Binding, command: c.ProvideOutput) -> None:
    binding.read(command.matrix)
    binding.provide(command.matrix, command.node)


@binds(c.NoOperation)
def _no_operation(binding: Binding, command: c.NoOperation) -> None:
    """Does nothing."""


@binds(c.NoOperationMarker)
def _marker(binding: Binding, command: c.NoOperationMarker) -> None:
    binding.end_segment()


@binds(c.NoOperationLabel)
def _label(binding: Binding, command: c.NoOperationLabel) -> None:
    binding.label()


@binds(c.GotoLabel)
def _goto(binding: Binding, command: c.GotoLabel) -> None:
    binding.loop(command.label)
