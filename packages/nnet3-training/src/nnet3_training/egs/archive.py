"""Archives of training examples in files and streams, whatever kind of examples they hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import IO, TypeVar

from nnet3_descriptors import ModelFileError
from nnet3_descriptors.files import (
    Entry,
    Reader,
    file_error,
    key_fault,
    open_file,
    read_entries,
    stream_name,
)

from nnet3_training.errors import ExampleError

T = TypeVar("T")

ExampleSource = str | os.PathLike[str] | IO[bytes]
"""A path, or a file that is open for reading bytes."""


def key_bytes(key: object) -> bytes:
    """The key of an entry as an archive has it, with the blank behind it.

    Raises:
        ExampleError: it is not a key that a reader takes.
    """
    if fault := key_fault(key):
        raise ExampleError(fault)
    return f"{key} ".encode()


def check_readable(source: object) -> None:
    """Raises a ModelFileError if this is no file that is open for reading."""
    if not hasattr(source, "read"):
        found = type(source).__name__
        message = f"expected a path or a file open for reading bytes, found {found}"
        raise ModelFileError(message, path=stream_name(source))


def entries_of(source: ExampleSource, decode: Callable[[Reader], T]) -> Iterator[Entry[T]]:
    """The entries of an archive, in its order; only the one at hand is held in memory.

    Args:
        source: A path, or a file that is open for reading bytes, such as a pipe.
        decode: Takes one object from a reader.

    Raises:
        FileError: the file cannot be read; if it does not exist, the error is a FileNotFoundError.
        ModelFileError: it is not an archive of such objects; the error says where.
    """
    if not isinstance(source, str | os.PathLike):
        check_readable(source)
        yield from _entries(source, stream_name(source), decode)
        return
    with open_file(source) as file:
        yield from _entries(file, os.fspath(source), decode)


def _entries(stream: IO[bytes], path: str, decode: Callable[[Reader], T]) -> Iterator[Entry[T]]:
    entries = read_entries(stream, path, decode)
    while True:
        try:
            entry = next(entries, None)
        except OSError as error:
            raise file_error(error, "read", path) from error
        if entry is None:
            return
        yield entry
