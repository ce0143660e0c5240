"""Tables of objects of any kind, such as training examples; they are written as bytes."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO, Generic, Self, TypeVar

import attrs
from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.files import BinaryReader, Reader, TextReader, read_entries

from nnet3_tables.archive import check_key
from nnet3_tables.commands import shell
from nnet3_tables.errors import TableError
from nnet3_tables.incomplete import give_name, incomplete_path
from nnet3_tables.script import read_script
from nnet3_tables.sources import file_and_offset, opened, opened_at
from nnet3_tables.specifier import Specifier

T = TypeVar("T")

_BINARY = b"\0B"


@attrs.frozen
class ObjectEntry(Generic[T]):
    """An entry of a table.

    Attributes:
        key: Its key.
        value: The object.
        data: The bytes from which it was read, so that it can be written unchanged.
    """

    key: str
    value: T
    data: bytes

    @property
    def is_binary(self) -> bool:
        """Whether it is in Kaldi's binary form."""
        return self.data.startswith(_BINARY)


def read_objects(rspecifier: str, decode: Callable[[Reader], T]) -> Iterator[ObjectEntry[T]]:
    """The entries of a table, in order.

    Of an archive only the entry at hand is held in memory.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, `scp,p:FILE`, ...
        decode: Takes one object from a reader; the object must not refer to the reader's data.

    Raises:
        TableError: the table cannot be opened, or is not an archive.
        Nnet3Error: the error of `decode`. With the option `p`, unreadable entries are left out.
    """
    specifier = Specifier.to_read(rspecifier)
    read = _script(specifier, decode) if specifier.is_script else _archive(specifier, decode)
    if not specifier.is_permissive:
        yield from read
        return
    first = next(read, None)  # a table that cannot be opened is always an error
    if first is not None:
        yield first
        with contextlib.suppress(Nnet3Error):
            yield from read


def _archive(specifier: Specifier, decode: Callable[[Reader], T]) -> Iterator[ObjectEntry[T]]:
    with opened(specifier) as stream:
        try:
            for entry in read_entries(stream, specifier.target, decode):
                yield ObjectEntry(entry.key, entry.value, entry.data)
        except OSError as error:
            reason = error.strerror or error
            raise TableError(f"cannot read '{specifier.target}': {reason}") from error


def _script(specifier: Specifier, decode: Callable[[Reader], T]) -> Iterator[ObjectEntry[T]]:
    for entry in read_script(specifier):
        name, offset = file_and_offset(entry.location)
        if name.endswith(("|", "]")):
            raise TableError(f"{entry.place}: '{entry.key}': expected a file, found {name}")
        place = f"{entry.place}: '{entry.key}' at {name}"
        with opened_at(name, place) as stream, _contents(stream) as data:
            reader = _reader_at(data, name, offset)
            try:
                value = decode(reader)
                yield ObjectEntry(entry.key, value, bytes(data[offset : reader.position]))
            finally:
                reader.data = memoryview(b"")


def _reader_at(data: memoryview, path: str, start: int) -> Reader:
    if bytes(data[start : start + len(_BINARY)]) == _BINARY:
        return BinaryReader(data, path, start + len(_BINARY))
    return TextReader(data, path, start)


@contextlib.contextmanager
def _contents(stream: IO[bytes]) -> Iterator[memoryview]:
    """All bytes of a stream; of a regular file that is at its beginning, as a map."""
    try:
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size and stream.tell() == 0:
            contents: memoryview | mmap.mmap = mmap.mmap(
                stream.fileno(), 0, access=mmap.ACCESS_READ
            )
        else:
            contents = memoryview(stream.read())
    except OSError as error:
        raise TableError(f"cannot read '{stream.name}': {error.strerror}") from error
    with contents, memoryview(contents) as view:
        yield view


class ObjectWriter:
    """Writes a table of bytes; use as a context manager.

    An archive in a file has the name `FILE.incomplete` until it is complete. With a script file
    beside it, or the option `f`, it has its name from the beginning.

    Attributes:
        is_text: Whether entries are written as text (the option `t`).
    """

    def __init__(self, wspecifier: str) -> None:
        """Opens the table.

        Raises:
            TableError: the name is not that of a table to write, or the table cannot be opened.
        """
        self._specifier = Specifier.to_write(wspecifier)
        if self._specifier.is_script:
            raise TableError(f"'{wspecifier}': expected an archive to write, 'ark:FILE'")
        self.is_text = "t" in self._specifier.options
        self._process: subprocess.Popen[bytes] | None = None
        self._script: list[str] = []
        self._incomplete_path = incomplete_path(self._specifier)
        files = self._specifier.files
        self._path = self._incomplete_path or (files[0] if files else None)
        self._is_closed = False
        self._stream = self._open()

    def __repr__(self) -> str:
        """The table."""
        return f"<ObjectWriter to '{self._specifier.target}'>"

    def _open(self) -> IO[bytes]:
        if self._specifier.is_command:
            command = self._specifier.target.removeprefix("|").strip()
            self._process = subprocess.Popen(shell(command), stdin=subprocess.PIPE)
            assert self._process.stdin is not None
            return self._process.stdin
        if self._path is None:
            if sys.stdout is None:
                raise TableError("cannot write '-': standard output is closed")
            return sys.stdout.buffer
        try:
            return open(self._path, "wb")
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> TableError:
        """The error of a table that cannot be written; of a command, if it failed."""
        if self._process is not None and (failed := self._end_of_command()) is not None:
            return failed
        return TableError(f"cannot write '{self._specifier.target}': {error.strerror or error}")

    def write(self, key: str, data: bytes) -> None:
        """Writes one entry.

        Args:
            key: A word.
            data: The value; in binary with the bytes 0 and "B" in front.

        Raises:
            TableError: the key is not a word, the value is no bytes, the table is closed, or the
                entry cannot be written.
        """
        check_key(key)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TableError(f"'{key}': expected bytes, found {type(data).__name__}")
        if self._is_closed:
            raise TableError(f"cannot write '{self._specifier.target}': the table is closed")
        try:
            if self._specifier.writes_both:
                self._stream.write(f"{key} ".encode())
                self._script.append(f"{key} {self._path}:{self._stream.tell()}\n")
                self._stream.write(data)
            else:
                self._stream.write(f"{key} ".encode() + data)
            if "f" in self._specifier.options:
                self._stream.flush()
        except OSError as error:
            raise self._failure(error) from error

    def _finish(self) -> None:
        """Closes the table, and gives a file its name.

        Raises:
            TableError: not everything could be written, or the command failed.
        """
        self._is_closed = True
        try:
            if self._path is None and self._process is None:
                self._stream.flush()
            else:
                self._stream.close()
            if self._incomplete_path is not None:
                give_name(self._incomplete_path, self._specifier.target)
            if self._specifier.writes_both:
                with open(self._specifier.files[1], "w", encoding="utf-8", newline="\n") as script:
                    script.writelines(self._script)
        except OSError as error:
            raise self._failure(error) from error
        if self._process is not None and (failed := self._end_of_command()) is not None:
            raise failed

    def _end_of_command(self) -> TableError | None:
        """Waits for the command to end; returns the error if it failed."""
        assert self._process is not None
        with contextlib.suppress(OSError):
            self._stream.close()
        if not self._process.wait():
            return None
        command = self._specifier.target.removeprefix("|").strip()
        return TableError(f"the command '{command}' failed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self._finish()
            return
        self._is_closed = True
        with contextlib.suppress(OSError):
            if self._path is not None or self._process is not None:
                self._stream.close()
        if self._process is not None:
            self._process.wait()
