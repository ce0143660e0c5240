"""The values of a table as files, for what has a format of its own, such as sound."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import IO

from nnet3_descriptors.files import key_fault

from nnet3_tables.errors import TableError
from nnet3_tables.script import read_script
from nnet3_tables.sources import opened
from nnet3_tables.specifier import Specifier

_LONGEST_KEY = 4096

OpenValue = Callable[[], AbstractContextManager[IO[bytes]]]
"""Opens a value, as a context with a file that is open for reading bytes."""


def read_files(rspecifier: str) -> Iterator[tuple[str, OpenValue]]:
    """The values of a table as files: for each its key, and a function that opens it.

    For a table such as `scp:wav.scp`, or `ark:wav-copy scp:wav.scp ark:- |`. The file of a value in
    an archive is the archive itself: whoever opens it reads the value to its end and no further,
    before the next key is asked for.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, ...

    Raises:
        TableError: the table cannot be opened, a key is no word, or a value of an archive was not
            read. (If the file of a line of a script file cannot be opened, or is a command, the
            function raises the error.)
    """
    specifier = Specifier.to_read(rspecifier)
    if not specifier.is_script:
        yield from _of_archive(specifier.target)
        return
    for line in read_script(specifier):
        yield line.key, line.opened


def _of_archive(path: str) -> Iterator[tuple[str, OpenValue]]:
    with opened(path) as stream:
        while key := _key(stream, path):
            value = _Value(stream, path, key)
            yield key, value.opened
            if not value.is_read:
                raise TableError(f"archive '{path}': what follows '{key}' was not read to its end")


class _Value:
    """A value in an archive.

    Attributes:
        is_read: Whether it was opened, and read without an error.
    """

    def __init__(self, stream: IO[bytes], path: str, key: str) -> None:
        self._stream = stream
        self._place = f"archive '{path}': '{key}'"
        self._is_opened = False
        self.is_read = False

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        if self._is_opened:
            raise TableError(f"{self._place} can be read only once")
        self._is_opened = True
        yield self._stream
        self.is_read = True


def _key(stream: IO[bytes], path: str) -> str:
    """The next key of an archive, without the blank behind it; "" at the end."""
    text = bytearray()
    while len(text) <= _LONGEST_KEY:
        byte = stream.read(1)
        if byte and not byte.isspace():
            text += byte
        elif text or not byte:
            break
    key = text.decode(errors="surrogateescape")
    if text and (fault := key_fault(key)):
        raise TableError(f"archive '{path}': {fault}")
    return key
