"""Sources of tables: files, standard input, and commands."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, cast

from nnet3_tables.commands import is_cut_off, shell
from nnet3_tables.errors import TableError
from nnet3_tables.packed import Unpacked
from nnet3_tables.specifier import Specifier

_GZIP = b"\x1f\x8b"
"""The first bytes of a file that gzip has packed; no archive begins so."""


@contextlib.contextmanager
def opened(specifier: Specifier) -> Iterator[IO[bytes]]:
    """The stream from which a table is read.

    Raises:
        TableError: the file cannot be read, or the command fails.
    """
    specifier.check_exists()
    if specifier.is_command:
        with output_of(specifier) as stream:
            yield stream
    elif specifier.target == "-":
        yield sys.stdin.buffer
    else:
        try:
            with open(specifier.target, "rb") as stream, _unpacked(stream) as contents:
                yield contents
        except OSError as error:
            reason = error.strerror or error
            raise TableError(f"cannot read '{specifier.target}': {reason}") from error


@contextlib.contextmanager
def _unpacked(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """A file, or its content if its first bytes show that gzip has packed it.

    Raises:
        OSError: it is damaged, or unpacks to far more than tables do.
    """
    # A pipe may hold fewer bytes than asked for; `peek` leaves the bytes in it.
    head = stream.peek(len(_GZIP))[: len(_GZIP)] if isinstance(stream, io.BufferedReader) else b""
    if head != _GZIP:
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


def file_and_offset(location: str) -> tuple[str, int]:
    """The name of a file, and the offset in bytes that follows it (`a.ark:11`), or 0."""
    found = re.fullmatch(r"(.*):(\d{1,18})", location)
    return (location, 0) if found is None else (found[1], int(found[2]))


@contextlib.contextmanager
def opened_at(location: str, place: str) -> Iterator[IO[bytes]]:
    """The stream that a line of a script file refers to, from its offset on.

    Args:
        location: A file, perhaps with an offset in bytes (`a.ark:11`); or "-", standard input.
        place: The beginning of messages.

    Raises:
        TableError: it cannot be read there.
    """
    if location == "-" and sys.stdin is not None:
        yield sys.stdin.buffer
        return
    name, offset = file_and_offset(location)
    if "\0" in name:
        raise TableError(f"{place}: no name of a file has a null character")
    try:
        with open(name, "rb") as stream:
            if offset:
                stream.seek(offset)
            yield stream
    except FileNotFoundError as error:
        raise TableError(f"{place}: there is no such file") from error
    except OSError as error:
        raise TableError(f"{place}: {error.strerror or error}") from error


def lines(specifier: Specifier) -> Iterator[tuple[str, str]]:
    """The lines of a text, each with its place, for messages.

    Raises:
        TableError: it cannot be read, or is not UTF-8.
    """
    with opened(specifier) as stream:
        for number, line in enumerate(stream, 1):
            place = f"{specifier.target}, line {number}"
            try:
                yield place, line.decode()
            except UnicodeDecodeError as error:
                raise TableError(f"{place}: this is not UTF-8") from error


@contextlib.contextmanager
def output_of(specifier: Specifier) -> Iterator[IO[bytes]]:
    """The output of the command of a table; within, the command may still run.

    At the end this waits for the command, or ends it if the reader was interrupted.

    Raises:
        TableError: the command fails.
    """
    command = specifier.target.removesuffix("|").strip()
    with subprocess.Popen(shell(command), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        except BaseException:
            process.terminate()  # nobody will read its further output
            raise
    if process.returncode and not is_cut_off(process.returncode):
        raise TableError(f"the command '{command}' failed with status {process.returncode}")
