"""The entries of archives and script files, and the values of the usual kinds.

Python's own streams read the data. So other threads compute while a reader waits for a command, and
the wait can be interrupted. A script file is read line by line, so that a line of data cannot run a
command.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import ModelFileError
from nnet3_descriptors.files import (
    BINARY_MARK,
    Entry,
    Reader,
    SparseMatrix,
    open_reader,
    read_entries,
)

from nnet3_tables.commands import is_command
from nnet3_tables.errors import TableError
from nnet3_tables.sources import lines
from nnet3_tables.specifier import Specifier

T = TypeVar("T")

FloatArray = npt.NDArray[np.float32]
"""A matrix (rows, columns) or a vector, float32."""

Value = npt.NDArray[Any] | SparseMatrix
"""A matrix or a vector, float32; integers, (size,) int32; or a sparse matrix."""

_SOUND = b"RIFF"
"""The first bytes of a WAV file."""

_VECTOR_IN_TEXT = re.compile(rb"\s*\[[ \t]*[^\s\]]")
"""In text, a vector has numbers on the line of its bracket."""

_INTEGERS_IN_TEXT = re.compile(rb"[ \t\r]*(?:[-+0-9]|\n(?!\s*\[))")
"""In text, integers have no bracket; there may be none."""

_LOOK_AHEAD = 1 << 12
"""Bytes within which a vector in text has its first number."""


def matrix(reader: Reader) -> FloatArray:
    """A matrix: full or compressed, binary or text."""
    return np.array(reader.matrix())


def vector(reader: Reader) -> FloatArray:
    """A vector, binary or text."""
    return np.array(reader.vector())


def value(reader: Reader) -> Value:
    """A matrix of any form, a vector, or integers; the bytes say which."""
    ahead = bytes(reader.data[reader.position : reader.position + _LOOK_AHEAD])
    if ahead.lstrip().startswith((b"SM ", b"rows=")):
        return SparseMatrix.read(reader)
    if ahead[:1] == b"\4" if reader.binary else _INTEGERS_IN_TEXT.match(ahead):
        start = reader.position
        try:
            return reader.table_integers()
        except ModelFileError:
            if reader.binary:
                raise
            reader.position = start
            reader.fail(
                "this is no value of a table",
                expected="a matrix or vector, which begins with '[' in text, or integers",
                found=reader.next_bytes(),
            )
    if ahead[:3] in (b"FV ", b"DV ") if reader.binary else _VECTOR_IN_TEXT.match(ahead):
        return vector(reader)
    return matrix(reader)


def decoded(reader: Reader, decode: Callable[[Reader], T]) -> T:
    """What a function takes from a reader.

    Raises:
        ModelFileError: it is sound; or the error of the function.
    """
    if not reader.binary and reader.next_is(_SOUND):
        reader.fail("this is sound, a WAV file", expected="what is computed from sound")
    return decode(reader)


def refuse_sound(stream: IO[bytes], path: str, expected: str) -> None:
    """Raises a TableError if a stream begins as a WAV file does; it says what was expected."""
    peek = getattr(stream, "peek", lambda size: b"")
    if peek(len(_SOUND))[: len(_SOUND)] == _SOUND:
        raise TableError(f"'{path}' is a sound file (WAV); expected {expected}")


def read_archive(stream: IO[bytes], path: str, decode: Callable[[Reader], T]) -> Iterator[Entry[T]]:
    """The entries of an archive, in order; only the one at hand is held in memory.

    Args:
        stream: The archive.
        path: Its name, for messages.
        decode: Takes one object from a reader.

    Raises:
        TableError: the stream is not an archive of such objects, is damaged or breaks off.
        Nnet3Error: another error of `decode`.
    """
    refuse_sound(stream, path, "an archive of what is computed from sound, such as features")
    entries = read_entries(stream, path, lambda reader: decoded(reader, decode))
    previous = None
    while True:
        try:
            entry = next(entries, None)
        except ModelFileError as error:
            what = f"archive '{path}' is damaged or breaks off after '{previous}'"
            if previous is None:
                what = f"cannot read archive '{path}'"
            raise TableError(f"{what}, byte {error.offset}: {error.reason}") from error
        if entry is None:
            return
        previous = entry.key
        yield entry


_MISSING_ROWS = 3
"""A range must end fewer rows than this beyond the end of a matrix. Kaldi allows the same, because
segments are rounded."""


class ScriptLine(NamedTuple):
    """A line of a script file: the location of the value of a key.

    Attributes:
        key: The key.
        location: File, perhaps with a byte offset and a range of rows and columns.
        place: File and line of the script, for messages.
    """

    key: str
    location: str
    place: str

    @property
    def file(self) -> str:
        """The name of the file, without offset and range."""
        return re.sub(r":\d{1,18}$", "", self._source_and_range[0])

    @property
    def _source_and_range(self) -> tuple[str, str | None]:
        """File, perhaps with an offset; and the range that is asked for, if any."""
        if not self.location.endswith("]"):
            return self.location, None
        source, _, ranges = self.location[:-1].rpartition("[")
        return source, ranges

    def read(self, decode: Callable[[Reader], T]) -> Entry[T]:
        """Reads the value, or the range of it that the line asks for.

        Raises:
            TableError: the value cannot be read, or is of another kind.
            Nnet3Error: another error of `decode`.
        """
        source, ranges = self._source_and_range
        self._check_no_command()
        try:
            reader = open_reader(source)
            begin = reader.position
            found = decoded(reader, decode)
            if ranges is not None:
                if not isinstance(found, np.ndarray) and len(getattr(found, "shape", ())) == 2:
                    # Compressed or sparse; as in Kaldi, a range of it is a full matrix.
                    reader.position = begin
                    found = cast(T, np.asarray(value(reader)))
                found = self._part(found, ranges)
        except ModelFileError as error:
            place = f"{self.place}: '{self.key}' at {source}"
            raise TableError(f"{place}: {error.reason}") from error
        start = begin - (len(BINARY_MARK) if reader.binary else 0)
        return Entry(self.key, found, bytes(reader.data[start : reader.position]))

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The file of the value, open for reading bytes, at the offset that the line gives.

        Raises:
            TableError: the file cannot be read, or the line has a range.
        """
        self._check_no_command()
        if self.location.endswith("]") and not os.path.exists(self.location):
            raise TableError(
                f"{self.place}: '{self.key}': expected a file, found a range: {self.location[-60:]}"
            )
        path = self.location if os.path.exists(self.location) else self.file
        offset = int(self.location[len(path) + 1 :] or 0)
        try:
            with open(path, "rb") as file:
                if offset:
                    file.seek(offset)
                yield file
        except OSError as error:
            reason = error.strerror or error
            raise TableError(f"{self.place}: '{self.key}' at {path}: {reason}") from error

    def _check_no_command(self) -> None:
        source, _ = self._source_and_range
        if is_command(source):
            raise TableError(
                f"{self.place}: '{self.key}' is to come from a command ({source[:60]!r}), and data "
                "does not run commands; write it in the table's own name instead (ark:command |)"
            )

    def _part(self, value: T, ranges: str) -> T:
        """The rows and columns of a range, such as `0:9,0:12`."""
        shape = value.shape if isinstance(value, np.ndarray) else ()
        parts = ranges.split(",")
        slices = [
            _slice(part, length, axis)
            for axis, (part, length) in enumerate(zip(parts, shape, strict=False))
        ]
        if len(parts) > len(shape) or None in slices:
            size = " x ".join(map(str, shape)) if shape else "an object without rows"
            raise TableError(
                f"{self.place}: '{self.key}': expected a range like [0:9] or [0:9,0:12] within "
                f"{size}, found [{ranges}]"
            )
        part: T = value[tuple(slices)]  # type: ignore[index]
        return part


def _slice(text: str, length: int, axis: int) -> slice | None:
    """The slice for `first:last`, last included; `:` is all. None if it makes no sense."""
    if text == ":":
        return slice(None)
    found = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    end = length + (_MISSING_ROWS if axis == 0 else 0)
    return slice(first, last + 1) if first <= last < end and first < length else None


def files_of(rspecifier: str) -> list[str]:
    """The files from which a table is read, as far as its name or a script file says.

    Raises:
        TableError: the text is not the name of a table.
    """
    specifier = Specifier.to_read(rspecifier)
    files = specifier.files
    if specifier.is_script and files and os.path.isfile(files[0]):
        with contextlib.suppress(TableError):  # the reader of the table will report it
            files += sorted({line.file for line in read_script(specifier)})
    return files


def read_script(specifier: Specifier) -> Iterator[ScriptLine]:
    """The lines of a script file, in order.

    Raises:
        TableError: the file cannot be read, the command that writes it fails, or a line has no
            location.
    """
    for place, words in lines(specifier.target, 1):
        if len(words) == 2:
            yield ScriptLine(words[0], words[1], place)
        elif words:
            raise TableError(f"{place}: expected a key and a file, found '{words[0]}'")
