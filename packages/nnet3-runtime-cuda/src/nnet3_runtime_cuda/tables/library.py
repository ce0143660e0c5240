"""What kaldi_native_io leaves to be done: its log, and its ways of opening and closing."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any


class Log:
    """What the library writes to standard error, held in a file instead of being shown."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the program

    @contextlib.contextmanager
    def capture(self, *, enabled: bool = True) -> Iterator[None]:
        """Holds what is written within; forgets what was held before.

        Where a command is started it must not be enabled: the command would inherit the file.
        """
        self._file.seek(0)
        self._file.truncate()
        if not enabled:
            yield
            return
        sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(self._file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)

    @property
    def text(self) -> str:
        """What was held last."""
        self._file.seek(0)
        return self._file.read().decode(errors="replace")


LOG = Log()


def place_in(log: str) -> str:
    """The byte offset that the library's log names, if it does."""
    found = re.search(r"File position at start is (\d+)", log)
    return f", byte {found[1]}" if found else ""


def reason_of(error: BaseException, log: str) -> str:
    """The library's own words, without its source positions: the last message of the log."""
    lines = [line.strip() for line in f"{log}\n{error}".splitlines()]
    messages = [line[4:] for line in lines if line.startswith(("[E] ", "[W] "))]
    return messages[-1] if messages else str(error).strip() or type(error).__name__


class Checked:
    """Adds to the library's classes: whether closing went well; and deleting what never opened."""

    _impl: Any

    def finish(self) -> bool:
        """Closes, and returns whether everything was read or written."""
        return not self._impl.is_open or bool(self._impl.close())

    def __del__(self) -> None:
        if self._impl is not None:
            self.finish()
