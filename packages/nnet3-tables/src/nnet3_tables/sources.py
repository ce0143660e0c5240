"""What tables are read from and written to: files (also of gzip), standard streams, commands."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import IO, Any, cast

from nnet3_descriptors.files import new_file

from nnet3_tables.commands import input_of, is_command, output_of
from nnet3_tables.errors import TableError
from nnet3_tables.specifier import Specifier

_MOST_AT_ONCE = 1 << 22
"""Bytes that any file may unpack to."""
_RATIO = 100
"""Bytes that each further byte of a file may unpack to, on average: tables take 2 to 10."""


class _Counted:
    """A stream that counts the bytes that were read from it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.count += len(data)
        return data


class Unpacked(io.RawIOBase):
    """The content of a file that gzip has packed.

    A reader holds one value of a table in memory; with this bound, a value is not much larger than
    the file that it comes from.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        """Takes the stream of the packed bytes."""
        self._packed = _Counted(stream)
        self._content = gzip.GzipFile(fileobj=cast(IO[bytes], self._packed), mode="rb")
        self._count = 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer; see `io.RawIOBase`.

        Raises:
            OSError: the packed data is damaged, or unpacks to more than the bound.
        """
        view = memoryview(buffer)
        try:
            piece = self._content.read1(len(view))
        except (EOFError, zlib.error) as error:
            raise OSError(f"the packed data is damaged: {error}") from error
        self._count += len(piece)
        most = _MOST_AT_ONCE + _RATIO * self._packed.count
        if self._count > most:
            raise OSError(
                f"its first {self._packed.count} bytes, which gzip has packed, unpack to "
                f"{self._count}; expected at most {most}"
            )
        view[: len(piece)] = piece
        return len(piece)


_GZIP = b"\x1f\x8b"
"""The first bytes of a file that gzip has packed; no archive begins so."""


@contextlib.contextmanager
def opened(name: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream to read: a file, "-" for standard input, or `command |`.

    Raises:
        TableError: it cannot be read, or the command fails.
    """
    if is_command(name):
        with output_of(os.fspath(name)) as stream:
            yield stream
    elif name in ("", "-"):
        if sys.stdin is None:
            raise TableError("cannot read '-': standard input is closed")
        yield sys.stdin.buffer
    else:
        with _blamed("read", name, _unpacked(name)) as contents:
            yield contents


@contextlib.contextmanager
def opened_to_write(
    name: str | os.PathLike[str], *, keep_part: bool = False
) -> Iterator[IO[bytes]]:
    """A stream to write: a new file, "-" for standard output, or "| command".

    A file gets its name at the end of the context, and does not get it after an error.

    Args:
        name: The name.
        keep_part: Whether a part of a file stays after an error, under another name.

    Raises:
        TableError: it cannot be written, or the command fails.
    """
    if is_command(name):
        stream = input_of(os.fspath(name))
    elif name in ("", "-"):
        stream = _standard_output()
    else:
        stream = new_file(name, keep_part=keep_part)
    with _blamed("write", name, stream) as contents:
        yield contents


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    if sys.stdout is None:
        raise TableError("cannot write '-': standard output is closed")
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def _blamed(
    verb: str, name: str | os.PathLike[str], opening: AbstractContextManager[IO[bytes]]
) -> Iterator[IO[bytes]]:
    """A stream whose errors are TableErrors with its name; errors of the caller's stay."""
    of_caller: OSError | None = None
    try:
        with opening as stream:
            try:
                yield stream
            except OSError as error:
                if error.filename is not None:
                    of_caller = error  # one of the stream has no name
                raise
    except OSError as error:
        if error is of_caller:
            raise
        folder, reason = os.path.dirname(name), error.strerror or error
        if isinstance(error, FileNotFoundError):
            if verb == "read":
                reason = "there is no such file"
            elif not os.path.isdir(folder or os.curdir):
                reason = f"there is no folder '{folder}'"
        raise TableError(f"cannot {verb} '{name}': {reason}") from error


@contextlib.contextmanager
def _unpacked(name: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file, or its content if its first bytes show that gzip has packed it.

    Raises:
        OSError: it cannot be read, is damaged, or unpacks to far more than tables do.
    """
    with open(name, "rb") as stream:
        # A pipe may hold fewer bytes than asked for; `peek` leaves the bytes in it.
        if stream.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
            yield stream
            return
        with io.BufferedReader(Unpacked(stream)) as contents:
            yield cast(IO[bytes], contents)


def archive_size(rspecifier: str) -> int | None:
    """The size of an archive in a regular file, in bytes.

    None if it is not known: for standard input, the output of a command, a file that gzip has
    packed, a script file, and a file that cannot be read.

    Raises:
        TableError: the text is not the name of a table to read.
    """
    specifier = Specifier.to_read(rspecifier)
    if specifier.is_script or not all(map(os.path.isfile, specifier.files)):
        return None
    try:
        for name in specifier.files:
            with open(name, "rb") as stream:
                is_packed = stream.read(len(_GZIP)) == _GZIP
                return None if is_packed else os.fstat(stream.fileno()).st_size
    except OSError:
        pass  # the reader of the table will report it
    return None


def lines(name: str, most: int = -1) -> Iterator[tuple[str, list[str]]]:
    """The lines of a text, each as its place, for messages, and its words.

    Args:
        name: The file.
        most: Number of blanks at which a line is split; -1 for all. Blanks are those of ASCII, as
            in Kaldi.

    Raises:
        TableError: it cannot be read, or is not UTF-8.
    """
    with opened(name) as stream:
        for number, line in enumerate(stream, 1):
            place = f"{name}, line {number}"
            try:
                yield place, [word.decode() for word in line.strip().split(None, most)]
            except UnicodeDecodeError as error:
                raise TableError(f"{place}: this is not UTF-8") from error
