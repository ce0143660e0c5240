"""Archives of matrices, read one after the other as they come.

Format (`Table` and `Matrix` in Kaldi): a key, a blank, and a matrix. A binary one begins with the
bytes 0 and "B"; then "FM " or "DM " (single or double precision), rows and columns (each a byte 4
and four bytes), and the values; or "CM ", "CM2 " or "CM3 ", a header, and the compressed values. A
text one is "[", lines of numbers, and "]".

Reading is done by Python's own streams: while it waits for a command, other threads compute, and it
can be interrupted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO

from nnet3_descriptors.errors import ModelFileError
from nnet3_descriptors.files import compressed
from nnet3_descriptors.files.binary_reader import BinaryReader
from nnet3_descriptors.files.reader import Reader
from nnet3_descriptors.files.text_reader import TextReader

from ..arrays import FloatArray
from ..errors import TableError

_BINARY = b"\0B"
_BLANKS = b" \t\r\n"
_LONGEST_KEY = 4096
_LONGEST_TOKEN = 4
_BLANKS_BEFORE = 64
"""Blanks before the bracket of a matrix in text: one, as Kaldi writes them."""
_PIECE = 1 << 24
"""Bytes that are read at a time, as a damaged header may name any number."""

_VALUE_SIZES = {b"FM": 4, b"DM": 8}
_SHAPE = struct.Struct("<bibi")


def read_archive(stream: IO[bytes], path: str) -> Iterator[tuple[str, Callable[[], FloatArray]]]:
    """The matrices of an archive, in order: for each its key and a function that decodes it.

    Args:
        stream: The archive.
        path: Its name, for messages.

    Raises:
        TableError: it is no archive of matrices, is damaged or breaks off; a key is not UTF-8. (The
            numbers of a matrix in text raise from its function instead.)
    """
    archive = _Archive(stream)
    previous = None
    while True:
        try:
            key = archive.key()
            if key is None:
                return
            start = archive.offset
            decode = archive.matrix(path)
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
        yield key, partial(_decoded, decode, f"archive '{path}', byte {start}, key '{key}'")


def _decoded(reader: Reader, place: str) -> FloatArray:
    """The matrix that is next in a reader.

    Raises:
        TableError: it makes no sense.
    """
    try:
        return reader.matrix()
    except ModelFileError as error:
        raise TableError(f"{place}: {error.message}") from error


class _DamageError(Exception):
    """Something else is found than what an archive should have at an offset."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class _Archive:
    """Takes elements from a stream.

    Attributes:
        offset: Bytes that were taken.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
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

    def matrix(self, path: str) -> Reader:
        """A reader of the matrix that is next, whose bytes are taken.

        Raises:
            _DamageError: it is no matrix, or breaks off.
        """
        start = self.offset
        mark = self._take(len(_BINARY))
        if mark == _BINARY:
            return BinaryReader(memoryview(self._binary()), path, origin=start + len(_BINARY))
        return TextReader(memoryview(self._text(mark)), path, origin=start)

    def _binary(self) -> bytearray:
        """A matrix behind the mark of binary data."""
        start = self.offset
        token = self._word(_LONGEST_TOKEN, "a matrix")
        if bytes(token) in _VALUE_SIZES:
            header = self._exactly(_SHAPE.size, "a number of rows and columns")
            _, rows, _, columns = _SHAPE.unpack(header)
            size = rows * columns * _VALUE_SIZES[bytes(token)]
        elif token.decode(errors="replace") in compressed.FORMATS:
            header = self._exactly(compressed.HEADER_SIZE, "a header")
            unpacked = compressed.Header.unpack(memoryview(header))
            rows, columns = unpacked.rows, unpacked.cols
            size = compressed.body_size(token.decode(), unpacked)
        else:
            raise _DamageError(f"expected a matrix, found {bytes(token)!r}", start)
        if rows < 0 or columns < 0:
            raise _DamageError(f"expected a matrix, found one of {rows} by {columns}", start)
        return token + b" " + header + self._exactly(size, "values")

    def _text(self, beginning: bytearray) -> bytearray:
        """A matrix in text that begins so, up to the end of the line of its bracket."""
        start, text = self.offset - len(beginning), beginning
        line = bytes(beginning)
        while b"]" not in line:
            if bytes(text[:_BLANKS_BEFORE]).strip()[:1] not in (b"", b"["):
                raise _DamageError(f"expected a matrix, found {bytes(text[:24])!r}", start)
            line = self._stream.readline(_PIECE)
            if not line:
                raise _DamageError("expected ']', found the end", self.offset)
            self.offset += len(line)
            text += line
        return text
