"""Errors of this package; all are `Nnet3Error`s."""

from nnet3_descriptors import Nnet3Error, SourceError


class CommandError(Nnet3Error):
    """A command, or the declaration of a command class, is not valid."""


class ComputationError(Nnet3Error):
    """A computation contradicts itself; the message names the command and the operand."""


def of_another_network(what: str, number: int, count: int) -> ComputationError:
    """Returns the error for a computation that uses what a network lacks.

    Args:
        what: "node" or "component".
        number: The largest that the computation uses.
        count: How many the network has.
    """
    return ComputationError(
        f"the computation is of another network: it uses {what} {number}, this network has {count}"
    )


class ComputationSyntaxError(SourceError):
    """The text of a computation cannot be read; the message shows the line."""


class CompilationError(Nnet3Error):
    """A network and request for which no computation can be made."""
