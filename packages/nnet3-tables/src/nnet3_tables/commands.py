"""Commands of the shell that tables and models are read from and written to."""

import signal


def shell(command: str) -> list[str]:
    """Returns the program, with its arguments, that runs a command of the shell."""
    return ["/bin/sh", "-c", command]


def is_cut_off(status: int) -> bool:
    """Returns whether a command, or its shell, ended because nobody reads its output any more."""
    # Looked up here, as there are systems without this signal (and without commands).
    return status in (-signal.SIGPIPE, 128 + signal.SIGPIPE)
