"""Errors of this package; all are `Nnet3Error`s."""

from nnet3_descriptors.errors import Nnet3Error, SourceError


class CommandError(Nnet3Error):
    """A command, or the declaration of a command class, is not valid."""


class ComputationError(Nnet3Error):
    """A computation contradicts itself; the message names the command and the operand."""


class ComputationSyntaxError(SourceError):
    """The text of a computation cannot be read; the message shows the line."""


class CompilationError(Nnet3Error):
    """A network and request for which no computation can be made."""
