"""Where tables are written to: files, standard output, and commands.

Writing is done by Python's own streams: while the system copies the bytes of an entry, other
threads compute. Large entries go to the system as they lie in memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Self

from nnet3_tables.commands import shell
from nnet3_tables.errors import TableError
from nnet3_tables.script import read_script
from nnet3_tables.specifier import Specifier

_SUFFIX = ".incomplete"
_LONGEST_NAME = 255
"""Bytes of the name of a file, on the usual systems."""

_STANDARD_OUTPUT = 1

Piece = bytes | memoryview


class TableOutput:
    """A table to which entries are written as bytes; use it as a context manager.

    An archive that is a file has the name that the wspecifier says as soon as it is complete, and
    until then that name with ".incomplete" behind it. So an unfinished archive remains, and nobody
    takes it for a complete one. With the option `f`, for readers that wait for entries, and where
    there is a script file as well, the archive has its name from the beginning. If the wspecifier
    names a script file only, each value goes to the file that its line names.

    Attributes:
        is_prompt: Whether each entry is written through at once (the option `f`).
        is_text: Whether entries are to be text (the option `t`).
    """

    def __init__(self, wspecifier: str) -> None:
        """Opens the table.

        Args:
            wspecifier: `ark:FILE`, `ark,t:-`, `ark,scp:ARCHIVE,SCRIPT`, `ark:| COMMAND`, ...

        Raises:
            TableError: this is no name of a table to write, or the table cannot be opened.
        """
        self._process: subprocess.Popen[bytes] | None = None
        self._stream: IO[bytes] | None = None
        self._script: IO[bytes] | None = None
        self._specifier = specifier = Specifier.to_write(wspecifier)
        self.is_prompt = "f" in specifier.options
        self.is_text = "t" in specifier.options
        self._incomplete_path = _incomplete_path(specifier)
        self._places: dict[str, str] = {}
        self._is_complete = False
        try:
            self._open()
        except OSError as error:
            self._abandon()
            reason = _missing_folder(specifier) or error.strerror or error
            raise TableError(f"cannot write '{specifier.target}': {reason}") from error

    def _open(self) -> None:
        specifier = self._specifier
        if specifier.is_script:
            self._places = {entry.key: entry.location for entry in read_script(specifier)}
        elif specifier.is_command:
            self._process = subprocess.Popen(shell(self._command), stdin=subprocess.PIPE)
            self._stream = self._process.stdin
        elif specifier.files:
            self._stream = _opened(self._incomplete_path or specifier.files[0])
            if specifier.writes_both:
                self._script = _opened(specifier.files[1])
        else:
            if sys.stdout is None:
                raise TableError("cannot write '-': standard output is closed")
            sys.stdout.flush()
            self._stream = _opened(_STANDARD_OUTPUT)

    @property
    def _command(self) -> str:
        return self._specifier.target.removeprefix("|").strip()

    @property
    def unfinished(self) -> str | None:
        """The file with a part of the table; None if the table is complete, or is no file."""
        if self._is_complete or self._specifier.is_script or not self._specifier.files:
            return None
        return self._incomplete_path or self._specifier.files[0]

    def write_bytes(self, key: str, pieces: Sequence[Piece]) -> None:
        """Writes one entry.

        Args:
            key: A word.
            pieces: The value, cut up; in binary it begins with the bytes 0 and "B".

        Raises:
            TableError: the key is no word, or the entry cannot be written; or a script file is to
                say where it goes, and does not.
        """
        if not key or key.split() != [key]:
            raise TableError(f"expected a key without blanks, found {key!r}")
        try:
            if self._specifier.is_script:
                self._write_to_its_file(key, pieces)
            else:
                self._write_to_archive(key, pieces)
        except OSError as error:
            self.close()  # it raises if a command has failed
            raise self._failure(error) from error

    def _write_to_archive(self, key: str, pieces: Sequence[Piece]) -> None:
        stream = self._stream
        assert stream is not None
        stream.write(f"{key} ".encode())
        if self._script is not None:
            place = os.fsencode(f"{self._specifier.files[0]}:{stream.tell()}")
            self._script.write(f"{key} ".encode() + place + b"\n")
        for piece in pieces:
            stream.write(piece)
        if self.is_prompt:
            for each in filter(None, (stream, self._script)):
                each.flush()

    def _write_to_its_file(self, key: str, pieces: Sequence[Piece]) -> None:
        place = self._places.get(key)
        if place is None:
            if self._specifier.is_permissive:
                return
            raise TableError(f"'{self._specifier.target}' has no line for '{key}'")
        if place.startswith("|"):
            raise TableError(f"'{self._specifier.target}': '{key}': expected a file, found {place}")
        with open(place, "wb") as stream:
            for piece in pieces:
                stream.write(piece)

    def _failure(self, error: OSError) -> TableError:
        reason = error.strerror or error
        return TableError(
            f"cannot write '{self._specifier.target}': not everything could be written: {reason}"
        )

    def close(self) -> None:
        """Closes the table; a second time does nothing.

        Raises:
            TableError: not everything could be written, or the command failed.
        """
        failure = self._abandon()
        if self._process is not None:
            status, self._process = self._process.wait(), None
            if status:
                raise TableError(f"the command '{self._command}' failed")
        if failure is not None:
            raise self._failure(failure) from failure

    def _abandon(self) -> OSError | None:
        """Closes what is open; returns the first failure."""
        failure = None
        for stream in filter(None, (self._stream, self._script)):
            try:
                stream.close()
            except OSError as error:
                failure = failure or error
        self._stream = self._script = None
        return failure

    def _finish(self) -> None:
        """Closes the table, and gives a file its name.

        Raises:
            TableError: not everything could be written, or the file cannot be renamed; or the
                command failed.
        """
        self.close()
        if self._incomplete_path is not None:
            final = os.path.realpath(self._specifier.target)
            try:
                if os.path.exists(final):
                    shutil.copymode(final, self._incomplete_path)
                os.replace(self._incomplete_path, final)
            except OSError as error:
                raise TableError(
                    f"cannot write '{self._specifier.target}': {error.strerror}; all is in "
                    f"'{self._incomplete_path}'"
                ) from error
        self._is_complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self._finish()
        else:
            with contextlib.suppress(TableError):
                self.close()

    def __del__(self) -> None:
        """Closes a table that nobody closed."""
        with contextlib.suppress(TableError):
            self.close()


def _opened(file: str | int) -> IO[bytes]:
    """A file by its name, or by the number of a descriptor that stays open."""
    return open(file, "wb", closefd=isinstance(file, str))


def _missing_folder(specifier: Specifier) -> str:
    """What to say about a folder that a table needs and that does not exist; "" if all exist."""
    folders = {os.path.dirname(name) or "." for name in specifier.files}
    return next((f"there is no folder '{each}'" for each in folders if not os.path.isdir(each)), "")


def _incomplete_path(specifier: Specifier) -> str | None:
    """The name that a table has until it is complete; None for its own."""
    if specifier.kinds != {"ark"} or "f" in specifier.options or not specifier.files:
        return None
    # A link stays; the file that it refers to is replaced.
    final = os.path.realpath(specifier.target)
    if os.path.exists(final) and not os.path.isfile(final):
        return None
    if os.path.isfile(final) and not os.access(os.path.dirname(final), os.W_OK):
        return None
    name = f"{final}{_SUFFIX}"
    return None if len(os.fsencode(os.path.basename(name))) > _LONGEST_NAME else name
