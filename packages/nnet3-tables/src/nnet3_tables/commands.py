"""Commands of the shell from which tables and models are read, and to which they are written."""

import os
import shutil
import signal
import sys

from nnet3_tables.errors import TableError

_SHELL = "/bin/sh"


def shell(command: str) -> list[str]:
    """Returns the program, with its arguments, that runs a command of the shell.

    Raises:
        TableError: There is no such shell, as on most machines with Windows.
    """
    program = _SHELL if os.path.exists(_SHELL) else shutil.which("sh")
    if program is None:
        raise TableError(
            f"the command '{command.strip()}' needs the shell 'sh', and there is no {_SHELL} and "
            "no 'sh' in the folders of PATH"
        )
    return [program, "-c", command]


def is_cut_off(status: int) -> bool:
    """Returns whether a command, or its shell, ended because its output lost its reader."""
    if sys.platform == "win32":  # which has no such signal
        return False
    return status in (-signal.SIGPIPE, 128 + signal.SIGPIPE)
