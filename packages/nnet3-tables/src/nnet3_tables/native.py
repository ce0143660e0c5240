"""Additions to kaldi_native_io: log lines become errors, and closing reports failures."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

_STANDARD_ERROR = 2


class Held:
    """What was held in a context of `Log.capture`."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._text: str | None = None

    @property
    def text(self) -> str:
        """The text; within the context, what there is so far."""
        return self._read() if self._text is None else self._text

    def end(self) -> None:
        """Keeps the text of now, before another context holds its own."""
        self._text = self._read()


class Log:
    """The library's writes to standard error, held in a file instead of being shown.

    The process has one standard error, so threads take turns.
    """

    def __init__(self) -> None:
        self._turn = threading.RLock()  # a table that is deleted within a context closes, too

    @functools.cached_property
    def _file(self) -> int:
        """The file: in memory if the system has such, so that no folder has to be writable.

        It stays open until the process ends, for tables that are closed only then; a file object
        would be closed at a time of its own, with a ResourceWarning.
        """
        if hasattr(os, "memfd_create"):
            file: int = os.memfd_create("log")
            return file
        with tempfile.TemporaryFile() as other:
            return os.dup(other.fileno())

    @contextlib.contextmanager
    def capture(self, *, enabled: bool = True) -> Iterator[Held]:
        """Holds the writes within the context.

        Do not enable it while a command starts: the command would inherit the file.
        """
        held = Held(self._read)
        with self._turn:
            os.lseek(self._file, 0, os.SEEK_SET)
            os.ftruncate(self._file, 0)
            try:
                with _standard_error_to(self._file) if enabled else contextlib.nullcontext():
                    yield held
            finally:
                held.end()

    def _read(self) -> str:
        with open(self._file, "rb", closefd=False) as file:
            file.seek(0)
            return file.read().decode(errors="replace")


@contextlib.contextmanager
def _standard_error_to(file: int) -> Iterator[None]:
    """Within, what is written to standard error, if that is open or not, goes to a file."""
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        saved = os.dup(_STANDARD_ERROR)
    except OSError:
        saved = None
    try:
        os.dup2(file, _STANDARD_ERROR)  # within, as Ctrl-C may come right behind it
        yield
    finally:
        if saved is None:
            os.close(_STANDARD_ERROR)
        else:
            os.dup2(saved, _STANDARD_ERROR)
            os.close(saved)


LOG = Log()

FAILURES = (RuntimeError, UnicodeDecodeError)
"""The library's exceptions; UnicodeDecodeError if a message has a name that is not UTF-8."""


def message_of(error: BaseException) -> str:
    """The library's message about a failure."""
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode(errors="replace")
    return str(error).strip() or type(error).__name__


def reason_of(error: BaseException, log: str) -> str:
    """The first failure in the library's own words, without its places in source and file."""
    message = message_of(error)
    lines = [line.strip() for line in f"{log}\n{message}".splitlines()]
    for mark in ("[E] ", "[W] "):
        for line in lines:
            if line.startswith(mark):
                words = re.sub(r"[ :]*(File position at start .*)?$", "", line[len(mark) :])
                return words.replace(".  : ", ": ")
    return message


class Checked:
    """Adds to the library's classes a method that reports failures of closing."""

    _impl: Any

    def finish(self) -> bool:
        """Closes, and returns whether everything was written."""
        return not self._impl.is_open or bool(self._impl.close())

    def __del__(self) -> None:
        if self._impl is not None and self._impl.is_open:
            with LOG.capture():
                self.finish()
