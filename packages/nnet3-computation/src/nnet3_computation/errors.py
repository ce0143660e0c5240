"""Errors of this package; all are `Nnet3Error`s."""

from nnet3_descriptors import Nnet3Error, SourceError


class CommandError(Nnet3Error):
    """A command, or the declaration of a command class, is not valid."""


class ComputationError(Nnet3Error):
    """A computation contradicts itself; the message names the command and the operand."""


def of_another_network(what: str, number: int, count: int) -> ComputationError:
    """Returns the error for a computation that uses a node or component that a network lacks.

    Args:
        what: "node" or "component".
        number: The largest that the computation uses.
        count: The number that the network has.
    """
    return ComputationError(
        f"the computation is of another network: it uses {what} {number}, this network has {count}"
    )


class ComputationSyntaxError(SourceError):
    """The text of a computation cannot be read; the message shows the line."""


class RequestError(Nnet3Error):
    """A computation request is malformed, or does not fit the network it is made for."""


class CheckError(ComputationError):
    """A computation that is not well formed; raised by the checks.

    Attributes:
        check: The name of the check that failed.
        command: The position of the command at fault, or None if there is none.
        message: The fault, without the place.
        listing: The command and its neighbours, or "".
    """

    def __init__(
        self, message: str, *, check: str, command: int | None = None, listing: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.check = check
        self.command = command
        self.listing = listing

    def _full_message(self) -> str:
        place = f"{self.check}: " if self.command is None else f"{self.check}: c{self.command}: "
        return place + self.message + (f"\n{self.listing}" if self.listing else "")


class OptionError(Nnet3Error):
    """An option has a value that it cannot have."""
