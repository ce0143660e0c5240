"""Commands of the shell from which tables and models are read, and to which they are written.

No other module starts a program. Callers name commands: in a command line, or in an argument of a
function. What stands in a file (a line of a script file, an option in a file of options) is never
run: `is_command` tells what to refuse there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import IO

from nnet3_descriptors import Nnet3Error

from nnet3_tables.errors import TableError

_SHELL = "/bin/sh"

_PATIENCE = 0.5
"""Seconds in which a command whose output makes no sense may turn out to have failed."""


def is_command(name: str | os.PathLike[str]) -> bool:
    """Whether a name stands for a command to read from, `command |`, or to write to, `| command`.

    A name of a table has such a name behind its colon. A path object is always a file.

    Raises:
        TableError: it is no name.
    """
    if isinstance(name, os.PathLike):
        return False
    if not isinstance(name, str):
        raise TableError(f"expected the name of a file, found {type(name).__name__}")
    return name.rstrip().endswith("|") or name.lstrip().startswith("|")


@contextlib.contextmanager
def output_of(name: str) -> Iterator[IO[bytes]]:
    """The output of a command; within, it may still run.

    At the end this waits for the command, or ends it if the reader was interrupted.

    Args:
        name: The command, with "|" behind it.

    Raises:
        TableError: the command fails, or there is no shell.
    """
    import subprocess  # few tables come from commands

    command = name.strip().removesuffix("|").strip()
    with subprocess.Popen(_shell(command), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        except BaseException as error:
            if isinstance(error, Nnet3Error):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    _check(command, process.wait(_PATIENCE), error)
            process.terminate()  # nobody will read its further output
            raise
    _check(command, process.returncode)


@contextlib.contextmanager
def input_of(name: str) -> Iterator[IO[bytes]]:
    """The input of a command; waits for it at the end.

    Args:
        name: The command, with "|" in front of it.

    Raises:
        TableError: the command fails, or ends before it has read everything; or there is no shell.
    """
    import subprocess

    command = name.strip().removeprefix("|").strip()
    broken: BrokenPipeError | None = None
    with subprocess.Popen(_shell(command), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            yield process.stdin
            process.stdin.close()
        except BrokenPipeError as error:
            broken = error
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        except BaseException:
            process.terminate()  # what it has read is not everything
            raise
    _check(command, process.returncode, broken)
    if broken is not None:
        raise TableError(f"the command '{command}' ended before it had read everything") from broken


def _shell(command: str) -> list[str]:
    """Returns the program, with its arguments, that runs a command of the shell.

    Raises:
        TableError: There is no such shell, as on most machines with Windows.
    """
    import shutil

    program = _SHELL if os.path.exists(_SHELL) else shutil.which("sh")
    if program is None:
        raise TableError(
            f"the command '{command}' needs the shell 'sh', and there is no {_SHELL} and no 'sh' "
            "in the folders of PATH"
        )
    return [program, "-c", command]


def _check(command: str, status: int, reason: Exception | None = None) -> None:
    """Raises a TableError if a command failed; not if nobody read its output to the end."""
    cut_off = () if sys.platform == "win32" else (-signal.SIGPIPE, 128 + signal.SIGPIPE)
    if status and status not in cut_off:
        raise TableError(f"the command '{command}' failed with status {status}") from reason
