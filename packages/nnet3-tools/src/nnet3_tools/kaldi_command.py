"""The names of `cli` for tools that name themselves in each line."""

from contextlib import AbstractContextManager
from typing import NoReturn

import click

from nnet3_tools import cli, flags
from nnet3_tools.cli import FATAL as FATAL
from nnet3_tools.cli import NOTHING_DONE as NOTHING_DONE
from nnet3_tools.cli import ArgumentCountError as ArgumentCountError
from nnet3_tools.cli import KaldiCommand as KaldiCommand
from nnet3_tools.cli import NothingDoneError as NothingDoneError
from nnet3_tools.cli import boolean_option as boolean_option
from nnet3_tools.cli import one_line as one_line
from nnet3_tools.cli import say as say
from nnet3_tools.flags import PRINT_ARGS as PRINT_ARGS


def gpu_option() -> cli.Parameter:
    """The option --use-gpu."""
    return flags.GPU


def print_arguments(tool: str) -> None:
    """Writes the command line."""
    cli.print_arguments()


chosen_device = flags.device


def logged(tool: str, logger: str) -> AbstractContextManager[None]:
    """See `cli.logged`."""
    return cli.logged(logger)


def log(tool: str, message: str) -> None:
    """See `cli.log`."""
    cli.say(f"LOG ({tool}) {message}")


def warn(tool: str, message: str) -> None:
    """See `cli.warn`."""
    cli.say(f"WARNING ({tool}) {message}")


def run_tool(command: click.Command, name: str) -> NoReturn:
    """See `KaldiCommand.run`."""
    assert isinstance(command, KaldiCommand)
    command.name = name
    command.run()
