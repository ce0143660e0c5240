"""Reads archives of matrices or vectors, one value after the other.

An entry (`Table`, `Matrix` and `Vector` in Kaldi) is a key, a blank, and a value. A binary value
begins with the bytes 0 and "B". A matrix then has "FM " or "DM " (single or double precision), rows
and columns (each a byte 4 and four bytes), and the numbers. A compressed matrix has "CM ", "CM2 "
or "CM3 ", a header, and the compressed numbers. A vector has "FV " or "DV ", its size, and the
numbers. In text, a value is "[", numbers, and "]"; a matrix has a line for each row.

Python's own streams read the data. So other threads compute while a reader waits for a command, and
the wait can be interrupted.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import ModelFileError
from nnet3_descriptors.files import BinaryReader, Reader, TextReader, compressed, key_fault

from nnet3_tables.errors import TableError

FloatArray = npt.NDArray[np.float32]
"""A matrix (rows, columns) or a vector, float32."""

_BINARY = b"\0B"
_BLANKS = b" \t\r\n"
_LONGEST_KEY = 4096
_LONGEST_TOKEN = 4
_BLANKS_BEFORE = 64
"""Blanks before the bracket of a value in text: one, as Kaldi writes them."""
_PIECE = 1 << 24
"""Bytes that are read at a time, because a damaged header may name any number."""


def check_key(key: object) -> None:
    """Raises a TableError if readers would refuse a key."""
    if fault := key_fault(key):
        raise TableError(fault)


_SHAPES = {
    b"M": (struct.Struct("<bibi"), "a number of rows and columns"),
    b"V": (struct.Struct("<bi"), "a size"),
}
"""By the last letter of a token: the layout of the shape (for each axis the byte 4, and the
length), and the name of the kind of value in messages."""


_NAMES = {b"M": ", a matrix", b"V": ", a vector"}
"""The additions of messages to a token, by its letter."""


@attrs.frozen(eq=False)
class Kind:
    """The kind of the values of a table.

    Attributes:
        name: The name of one value, for messages.
        value_sizes: By the first token of a binary value, the bytes of a number.
        decode: Takes a value from a reader.
        is_compressible: Whether values may be compressed.
    """

    name: str
    value_sizes: Mapping[bytes, int]
    decode: Callable[[Reader], FloatArray]
    is_compressible: bool


MATRIX = Kind(
    name="matrix",
    value_sizes={b"FM": 4, b"DM": 8},
    decode=Reader.matrix,
    is_compressible=True,
)
VECTOR = Kind(
    name="vector",
    value_sizes={b"FV": 4, b"DV": 8},
    decode=Reader.vector,
    is_compressible=False,
)


def _matrix_or_vector(reader: Reader) -> FloatArray:
    """The value of a reader; in text, a vector has numbers on the line of its bracket."""
    beginning = bytes(reader.data[:_LONGEST_KEY])
    is_vector = beginning[:2] in VECTOR.value_sizes or _VECTOR_IN_TEXT.match(beginning)
    return reader.vector() if is_vector else reader.matrix()


_VECTOR_IN_TEXT = re.compile(rb"\s*\[[ \t]*[^\s\]]")

MATRIX_OR_VECTOR = Kind(
    name="matrix or vector",
    value_sizes={**MATRIX.value_sizes, **VECTOR.value_sizes},
    decode=_matrix_or_vector,
    is_compressible=True,
)


def read_archive(
    stream: IO[bytes],
    path: str,
    kind: Kind = MATRIX,
    passed: Callable[[int], object] | None = None,
) -> Iterator[tuple[str, Callable[[], FloatArray]]]:
    """The values of an archive, in order: for each its key and a function that decodes it.

    Args:
        stream: The archive.
        path: Its name, for messages.
        kind: The kind of the values.
        passed: Called before each value is given, with the bytes up to its end.

    Raises:
        TableError: the stream is not an archive of such values, is damaged or breaks off; or a key
            is not UTF-8. (If the numbers of a value in text are wrong, its function raises the
            error.)
    """
    archive = _Archive(stream, kind)
    previous = None
    while True:
        try:
            key = archive.key()
            if key is None:
                return
            start = archive.offset
            reader = archive.value(path)
        except _DamageError as error:
            if previous is None:
                message = f"cannot read archive '{path}', byte {error.offset}: {error}"
            else:
                message = (
                    f"archive '{path}' is damaged or breaks off after '{previous}', byte "
                    f"{error.offset}: {error}"
                )
            raise TableError(message) from error
        previous = key
        if passed is not None:
            passed(archive.offset)
        yield key, partial(_decoded, reader, f"archive '{path}', byte {start}, key '{key}'", kind)


def read_value(stream: IO[bytes], place: str, kind: Kind) -> FloatArray:
    """Reads the next value of a stream.

    Args:
        stream: The stream.
        place: The beginning of messages.
        kind: The kind of the value.

    Raises:
        TableError: there is no such value, or it is damaged or breaks off.
    """
    try:
        reader = _Archive(stream, kind).value(place)
    except _DamageError as error:
        raise TableError(f"{place}: {error}") from error
    return _decoded(reader, place, kind)


def _decoded(reader: Reader, place: str, kind: Kind) -> FloatArray:
    """The value that a reader holds.

    Raises:
        TableError: it makes no sense.
    """
    reader.position = 0
    try:
        value = kind.decode(reader)
    except ModelFileError as error:
        raise TableError(f"{place}: {error.message}") from error
    rest = bytes(reader.data[reader.position :]).strip()
    if rest:  # in text, what else is on the last line
        raise TableError(f"{place}: expected the end of the line behind ']', found {rest[:24]!r}")
    return value


class _DamageError(Exception):
    """An archive has something unexpected at an offset."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class _Archive:
    """Takes elements from a stream.

    Attributes:
        offset: Bytes that were taken.
    """

    def __init__(self, stream: IO[bytes], kind: Kind) -> None:
        self._stream = stream
        self._kind = kind
        self.offset = 0

    def _take(self, size: int) -> bytearray:
        """The next bytes; fewer at the end."""
        taken = bytearray()
        while len(taken) < size:
            piece = self._stream.read(min(_PIECE, size - len(taken)))
            if not piece:
                break
            taken += piece
        self.offset += len(taken)
        return taken

    def _exactly(self, size: int, what: str) -> bytearray:
        start = self.offset
        taken = self._take(size)
        if len(taken) < size:
            raise _DamageError(f"expected {what} of {size} bytes, found {len(taken)}", start)
        return taken

    def _word(self, longest: int, what: str) -> bytearray:
        """The bytes up to the next blank, which is taken, too."""
        start, word = self.offset, bytearray()
        while (byte := self._take(1)) and byte not in _BLANKS:
            word += byte
            if len(word) > longest:
                raise _DamageError(f"expected {what}, found {bytes(word[:24])!r}", start)
        return word

    def key(self) -> str | None:
        """The key that is next, or None at the end.

        Raises:
            _DamageError: there is none, or it is not UTF-8.
        """
        word = bytearray()
        while not word:
            start = self.offset
            word = self._word(_LONGEST_KEY, "a key")
            if self.offset == start:
                return None
        try:
            return word.decode()
        except UnicodeDecodeError as error:
            raise _DamageError(f"the key {bytes(word)!r} is not UTF-8", start) from error

    def value(self, path: str) -> Reader:
        """A reader of the value that is next, whose bytes are taken.

        Raises:
            _DamageError: it is of another kind, or breaks off.
        """
        start = self.offset
        mark = self._take(len(_BINARY))
        if not mark:
            raise _DamageError(f"expected a {self._kind.name}, found the end", start)
        if mark == _BINARY:
            return BinaryReader(memoryview(self._binary()), path, origin=start + len(_BINARY))
        return TextReader(memoryview(self._text(mark)), path, origin=start)

    def _binary(self) -> bytearray:
        """A value behind the mark of binary data."""
        kind, start = self._kind, self.offset
        token = self._word(_LONGEST_TOKEN, f"a {kind.name}")
        if bytes(token) in kind.value_sizes:
            layout, what = _SHAPES[bytes(token[1:])]
            header = self._exactly(layout.size, what)
            lengths = layout.unpack(header)[1::2]
            size = math.prod(lengths) * kind.value_sizes[bytes(token)]
        elif kind.is_compressible and token.decode(errors="replace") in compressed.FORMATS:
            header = self._exactly(compressed.HEADER_SIZE, "a header")
            unpacked = compressed.Header.unpack(memoryview(header))
            lengths = unpacked.rows, unpacked.cols
            size = compressed.body_size(token.decode(), unpacked)
        else:
            other = _NAMES.get(bytes(token[-1:])) or _NAMES.get(bytes(token[1:2]), "")
            found = f"{bytes(token)!r}{other}"
            raise _DamageError(f"expected a {kind.name}, found {found}", start)
        if min(lengths) < 0:
            found = " by ".join(map(str, lengths))
            raise _DamageError(f"expected a {kind.name}, found one of {found}", start)
        return token + b" " + header + self._exactly(size, "values")

    def _text(self, beginning: bytearray) -> bytearray:
        """A value in text that begins so, up to the end of the line of its bracket."""
        start, text = self.offset - len(beginning), beginning
        line = bytes(beginning)
        while b"]" not in line:
            if bytes(text[:_BLANKS_BEFORE]).strip()[:1] not in (b"", b"["):
                found = bytes(text[:24] + self._stream.readline(24)).partition(b"\n")[0]
                expected = f"expected a {self._kind.name}, which begins with '[' in text"
                raise _DamageError(f"{expected}, found {found[:24]!r}", start)
            line = self._stream.readline(_PIECE)
            if not line:
                raise _DamageError("expected ']', found the end", self.offset)
            self.offset += len(line)
            text += line
        return text
