"""Writing the elements of Kaldi's files, binary and text."""

import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.errors import NetworkError, file_error
from nnet3_descriptors.files import atomic_write, compressed, source
from nnet3_descriptors.files.binary_and_text import BINARY_MARK
from nnet3_descriptors.files.reader import MAX_TOKEN

_INT32: Final = struct.Struct("<bi")
_FLOAT32: Final = struct.Struct("<bf")
_FLOAT64: Final = struct.Struct("<bd")
_NUMBER: Final = "%.7g "
"""A number in a text file, with its significant digits, and the blank behind it."""


class Writer(ABC):
    """Collects the elements of a file.

    Attributes:
        chunks: The bytes so far. Large arrays are views of the parameters, not copies.
        binary: Whether the file is binary.
    """

    binary: bool

    def __init__(self) -> None:
        self.chunks: list[bytes | memoryview] = []

    @property
    def data(self) -> bytes:
        """The bytes so far, in one piece."""
        return b"".join(self.chunks)

    def store(self, target: source.PathOrFile) -> None:
        """Makes a file of what was written.

        Args:
            target: A path, or a file that is open for writing bytes.

        Raises:
            FileError: it cannot be written; an old file stays.
        """
        if isinstance(target, str | os.PathLike):
            atomic_write.write_atomically(target, self.chunks)
            return
        try:
            target.writelines(self.chunks)
        except (AttributeError, TypeError, ValueError) as error:  # no file, for text, or closed
            raise file_error(error, "write", source.stream_name(target)) from error

    def raw(self, data: bytes) -> None:
        """Writes bytes as they are."""
        self.chunks.append(data)

    def token(self, token: str) -> None:
        """Writes a token and a space.

        Raises:
            NetworkError: the token is too long to be read.
        """
        if len(token) > MAX_TOKEN:
            raise NetworkError(
                f"files have words of at most {MAX_TOKEN} letters, found {len(token)}: "
                f"'{token[:24]}...'"
            )
        self.chunks.append(f"{token} ".encode())

    @abstractmethod
    def newline(self) -> None:
        """Ends a line, where the file is text."""

    @abstractmethod
    def integer(self, value: int) -> None:
        """Writes a 32-bit integer."""

    @abstractmethod
    def real(self, value: float) -> None:
        """Writes a number of single precision."""

    @abstractmethod
    def double(self, value: float) -> None:
        """Writes a number of double precision."""

    @abstractmethod
    def boolean(self, value: bool) -> None:
        """Writes T or F."""

    @abstractmethod
    def integers(self, values: Sequence[int]) -> None:
        """Writes a vector of 32-bit integers."""

    @abstractmethod
    def integer_pairs(self, values: Sequence[tuple[int, int]]) -> None:
        """Writes a vector of pairs of 32-bit integers."""

    def vector(self, values: NDArray[Any]) -> None:
        """Writes a vector, (size,), in single precision."""
        self._array("FV", values)

    def matrix(self, values: NDArray[Any]) -> None:
        """Writes a matrix, (rows, cols), in single precision."""
        self._array("FM", values)

    def compressed_matrix(self, matrix: compressed.CompressedMatrix) -> None:
        """Writes a compressed matrix; as text its values, since text has no compressed form."""
        self.matrix(matrix.decompressed())

    def double_vector(self, values: NDArray[np.float64]) -> None:
        """Writes a vector, (size,), in double precision."""
        self._array("DV", values)

    def double_matrix(self, values: NDArray[np.float64]) -> None:
        """Writes a matrix, (rows, cols), in double precision."""
        self._array("DM", values)

    def symmetric_matrix(self, values: NDArray[Any]) -> None:
        """Writes the rows of a matrix, (size, size), up to the diagonal, in single precision."""
        self._triangle("FP", values)

    def double_symmetric_matrix(self, values: NDArray[np.float64]) -> None:
        """Writes the rows of a matrix, (size, size), up to the diagonal, in double precision."""
        self._triangle("DP", values)

    def _array(self, token: str, values: NDArray[Any]) -> None:
        """Writes a vector or a matrix; the token, of binary files, has its precision and rank."""
        what, rank = ("vector", 1) if token[1] == "V" else ("matrix", 2)
        if values.ndim != rank:
            raise TypeError(f"expected a {what}, found an array of the shape {values.shape}")
        self._values(token, values)

    @abstractmethod
    def _values(self, token: str, values: NDArray[Any]) -> None:
        """Writes an array of the rank of the token."""

    @abstractmethod
    def _triangle(self, token: str, values: NDArray[Any]) -> None:
        """Writes the rows of a matrix up to the diagonal."""


_DTYPES: Final = {"F": "<f4", "D": "<f8"}
"""The types of numbers of single and of double precision."""


class BinaryWriter(Writer):
    """Writes binary elements: numbers are preceded by their size in bytes."""

    binary = True

    def newline(self) -> None:
        """Does nothing."""

    def integer(self, value: int) -> None:
        """Writes a 32-bit integer."""
        self.raw(_INT32.pack(4, value))

    def real(self, value: float) -> None:
        """Writes a number of single precision."""
        self.raw(_FLOAT32.pack(4, value))

    def double(self, value: float) -> None:
        """Writes a number of double precision."""
        self.raw(_FLOAT64.pack(8, value))

    def boolean(self, value: bool) -> None:
        """Writes T or F."""
        self.raw(b"T" if value else b"F")

    def integers(self, values: Sequence[Any]) -> None:
        """Writes a vector of 32-bit integers, or of pairs of them."""
        self.integer(len(values))
        self.raw(np.asarray(values, dtype="<i4").tobytes())

    integer_pairs = integers

    def _values(self, token: str, values: NDArray[Any]) -> None:
        self.token(token)
        for size in values.shape:
            self.integer(size)
        contiguous = np.ascontiguousarray(values, dtype=_DTYPES[token[0]])
        if contiguous.size:
            self.chunks.append(contiguous.data.cast("B"))

    def compressed_matrix(self, matrix: compressed.CompressedMatrix) -> None:
        """Writes a compressed matrix as it is stored."""
        self.token(matrix.token)
        self.raw(matrix.header.pack())
        self.raw(matrix.body)

    def _triangle(self, token: str, values: NDArray[Any]) -> None:
        self.token(token)
        self.integer(len(values))
        self.raw(values[np.tril_indices(len(values))].astype(_DTYPES[token[0]]).tobytes())


class TextWriter(Writer):
    """Writes elements as words, each with a space behind it."""

    binary = False

    def newline(self) -> None:
        """Ends a line."""
        self.raw(b"\n")

    def integer(self, value: int) -> None:
        """Writes a 32-bit integer."""
        self.token(str(value))

    def real(self, value: float) -> None:
        """Writes a number in seven digits."""
        self.raw(_text([value]))

    double = real

    def boolean(self, value: bool) -> None:
        """Writes T or F."""
        self.token("T" if value else "F")

    def integers(self, values: Sequence[int]) -> None:
        """Writes a vector of 32-bit integers."""
        self.raw(f"[ {''.join(f'{value} ' for value in values)}]\n".encode())

    def integer_pairs(self, values: Sequence[tuple[int, int]]) -> None:
        """Writes a vector of pairs of 32-bit integers."""
        self.raw(f"[ {''.join(f'{first},{second} ' for first, second in values)}]\n".encode())

    def _values(self, token: str, values: NDArray[Any]) -> None:
        """Writes a vector on one line, or a matrix with a row on each line."""
        if values.ndim == 1:
            self.raw(b" [ " + _text(values.tolist()) + b"]\n")
            return
        if values.size == 0:
            self.raw(b" [ ]\n")
            return
        self.raw(b" [")
        for row in values:
            self.raw(b"\n  " + _text(row.tolist()))
        self.raw(b"]\n")

    def _triangle(self, token: str, values: NDArray[Any]) -> None:
        rows = [_text(row[: number + 1].tolist()) for number, row in enumerate(values)]
        self.raw(b"[\n" + b"\n".join(rows) + b"]\n" if rows else b"[ ]\n")


def new_writer(*, binary: bool = True) -> Writer:
    """A writer for an object that has a file of its own, or stands behind a key in an archive.

    Args:
        binary: Whether it is binary, with the mark of such objects in front, or else text.
    """
    if not binary:
        return TextWriter()
    writer = BinaryWriter()
    writer.raw(BINARY_MARK)
    return writer


def _text(values: Sequence[float]) -> bytes:
    return (_NUMBER * len(values) % tuple(values)).encode()
