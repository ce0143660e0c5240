"""Commands whose output is a table.

They are started here and not by the library, whose readers end the program when one that was begun
and failed is given up, and which holds back what a command says on standard error.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import IO

from ..errors import TableError
from .specifier import Specifier

_NOT_READ_TO_THE_END = {-13, 128 + 13}
"""The status of a command, and of a shell, whose output nobody reads any more (SIGPIPE)."""


@contextlib.contextmanager
def output_of(specifier: Specifier) -> Iterator[IO[bytes]]:
    """The output of the command that a table comes from; within, the command may still run.

    At the end the command is waited for, or ended if the reader was interrupted.

    Raises:
        TableError: the command fails.
    """
    command = specifier.target.removesuffix("|").strip()
    with subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        except BaseException:
            process.terminate()  # nobody will read what it may yet write
            raise
    if process.returncode and process.returncode not in _NOT_READ_TO_THE_END:
        raise TableError(f"the command '{command}' failed with status {process.returncode}")


@contextlib.contextmanager
def without_command(specifier: Specifier) -> Iterator[str]:
    """The table's name for the library, with a file in place of a command.

    Raises:
        TableError: there is no such file, or the command fails.
    """
    if specifier.is_command:
        with output_of(specifier) as stream:
            yield specifier.with_target(f"/dev/fd/{stream.fileno()}")
    else:
        specifier.check_exists()
        yield specifier.text
