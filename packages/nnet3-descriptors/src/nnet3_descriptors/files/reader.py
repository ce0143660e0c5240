"""Reading the elements of Kaldi's files: the common parts of binary and text."""

import contextlib
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Final, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.errors import ModelFileError, NetworkError

F = TypeVar("F", np.float32, np.float64)

MAX_TOKEN: Final = 4096
"""Longest word that can be a token, in bytes."""
_USUAL_WORD: Final = 64
"""A window of this size is enough for nearly every word, in bytes."""
MAX_INTEGERS: Final = 1 << 20
"""Most elements of a vector of integers; such vectors number columns, phones and the like."""
MAX_TABLE_INTEGERS: Final = 1 << 24
"""Most integers of an entry of a table, such as an alignment."""
MAX_NESTING: Final = 16
"""Deepest nesting of components."""


class Reader(ABC):
    """Reads one element after the other from the bytes of a file.

    All of its errors are ModelFileError, with the offset of the element in the file. Whatever a
    header says, the reader asks for no more memory than a small multiple of the remaining bytes.

    Attributes:
        path: Name of the file, for errors.
        data: The bytes, read-only; a memory map where the file allows it.
        position: The start of the next element.
        component: Name of the component that is being read, for errors.
        binary: Whether the file is binary.
        in_place: Whether large matrices are views of the bytes, aligned or not; all else is copied.
    """

    binary: bool
    in_place: bool = False

    def __init__(self, data: memoryview, path: str, position: int = 0, origin: int = 0) -> None:
        self.data = data
        self.path = path
        self.position = position
        self.component: str | None = None
        self._origin = origin
        self._depth = 0

    @property
    def offset(self) -> int:
        """The offset of the next element in the file, which may begin before `data`."""
        return self._origin + self.position

    def offset_of(self, position: int) -> int:
        """Returns the offset in the file of a position in `data`."""
        return self._origin + position

    @property
    def remaining(self) -> int:
        """Number of bytes that have not been read."""
        return len(self.data) - self.position

    def fail(
        self,
        message: str,
        *,
        at: int | None = None,
        expected: str | None = None,
        found: str | None = None,
        missing: int = 0,
    ) -> NoReturn:
        """Raises a ModelFileError; `at` is a position, by default that of the next element."""
        raise ModelFileError(
            message,
            path=self.path,
            offset=self.offset_of(self.position if at is None else at),
            component=self.component,
            expected=expected,
            found=found,
            missing=missing,
        )

    def next_bytes(self, at: int | None = None) -> str:
        """Returns the first bytes of the next element in a readable form, for errors."""
        start = self.position if at is None else at
        if start >= len(self.data):
            return "the end of the file"
        return shown(bytes(self.data[start : start + 24]))

    def next_is(self, *starts: bytes) -> bool:
        """Tells whether the next element begins with one of these bytes."""
        return any(
            self.data[self.position : self.position + len(start)] == start for start in starts
        )

    @contextlib.contextmanager
    def nested(self) -> Iterator[None]:
        """Limits the nesting of components."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            self.fail(f"components are nested more than {MAX_NESTING} deep")
        try:
            yield
        finally:
            self._depth -= 1

    @contextlib.contextmanager
    def checking(self, start: int) -> Iterator[None]:
        """Turns the NetworkError of an invalid value into an error with a place."""
        try:
            yield
        except NetworkError as error:
            raise ModelFileError(
                str(error), path=self.path, offset=self.offset_of(start), component=self.component
            ) from error

    def count(self, what: str, *, maximum: int, least_bytes: int = 1) -> int:
        """Reads the number of elements that follow, each of at least `least_bytes` bytes."""
        start = self.position
        number = self.integer()
        most = min(maximum, self.remaining // least_bytes)
        if not 0 <= number <= most:
            missing = number * least_bytes - self.remaining if 0 <= number <= maximum else 0
            self.fail(f"impossible number of {what}", at=start, expected=f"0 to {most}",
                      found=str(number), missing=missing)  # fmt: skip
        return number

    def _check_length(self, length: int, maximum: int, at: int) -> None:
        """Bounds the length of a vector of integers, which take ten times their bytes in memory."""
        if length > maximum:
            self.fail("the vector is too long", at=at, expected=f"at most {maximum} elements",
                      found=str(length))  # fmt: skip

    def skip_blanks(self) -> None:
        """Moves to the next byte that is not a blank."""
        data, position = self.data, self.position
        end = len(data)
        while position < end and data[position] in _BLANKS:
            position += 1
        self.position = position

    def token(self) -> str:
        """Reads a word in ASCII and the blank behind it."""
        return self._word_and_blank(bytes.isascii).decode("ascii")

    def key(self) -> str:
        """Reads the key of an entry of an archive, a word in UTF-8, and the blank behind it.

        The end of a line stays, as in Kaldi: it ends the value, which is an empty one.
        """
        self.skip_blanks()
        start = self.position
        word = self._word_and_blank(lambda word: b"\0" not in word, "key")
        if self.data[self.position - 1] == ord("\n"):
            self.position -= 1
        try:
            return word.decode()
        except UnicodeDecodeError:
            self.fail("the key is not in UTF-8", at=start, expected="a key", found=shown(word[:24]))

    def _word_and_blank(self, is_fit: Callable[[bytes], bool], what: str = "token") -> bytes:
        self.skip_blanks()
        start = self.position
        for size in (_USUAL_WORD, MAX_TOKEN + 1):  # few words need the whole window
            window = bytes(self.data[start : start + size])
            word = window.split(maxsplit=1)[0] if window else b""
            if len(word) < size:
                break
        if not word:
            self.fail("the file ends too early", expected=f"a {what}", found="the end of the file")
        if len(word) > MAX_TOKEN or not is_fit(word):
            self.fail(f"this is no {what}", expected=f"a {what}", found=shown(word[:24]))
        if start + len(word) == len(self.data):
            # The word itself may be cut off.
            self.fail(
                "the file ends too early",
                at=len(self.data),
                expected="a blank",
                found="the end of the file",
            )
        self.position = start + len(word) + 1
        return word

    def expect(self, *tokens: str) -> None:
        """Reads tokens that have to be these; text may end with the last, without a blank."""
        for token in tokens:
            self.skip_blanks()
            start = self.position
            if not self.binary and self.remaining == len(token) and self.next_is(token.encode()):
                self.position = len(self.data)
            elif (found := self.token()) != token:
                self.fail("unexpected token", at=start, expected=f"'{token}'", found=f"'{found}'")

    def begins_line(self) -> bool:
        """Tells whether the next element is the first of a line."""
        return self.position > 0 and self.data[self.position - 1] == ord("\n")

    def line(self) -> str:
        """Reads the rest of the line, without its end.

        The line must be ASCII or UTF-8 text.
        """
        start = self.position
        end = find(self.data, b"\n", start)
        if end < 0:
            self.fail("the file ends too early", expected="the end of a line", found="none")
        self.position = end + 1
        text = bytes(self.data[start:end])
        try:
            return text.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError:
            self.fail("this is no text", at=start, expected="a line", found=shown(text[:24]))

    @abstractmethod
    def integer(self) -> int:
        """Reads a 32-bit integer."""

    def integer_rows(self, rows: int, columns: int) -> list[list[int]]:
        """Reads 32-bit integers one by one, row by row; returns lists of the columns."""
        found = [[self.integer() for _ in range(columns)] for _ in range(rows)]
        return [[row[column] for row in found] for column in range(columns)]

    @abstractmethod
    def real(self) -> float:
        """Reads a number of single or double precision."""

    @abstractmethod
    def boolean(self) -> bool:
        """Reads T or F."""

    @abstractmethod
    def integers(self) -> list[int]:
        """Reads a vector of 32-bit integers."""

    @abstractmethod
    def table_integers(self) -> NDArray[np.int32]:
        """Reads integers as an entry of a table has them (`BasicVectorHolder` in Kaldi).

        In text they are the rest of the line; in binary their number and each of them have a size
        in front.

        Returns:
            (size,) int32.
        """

    @abstractmethod
    def integer_pairs(self) -> list[tuple[int, int]]:
        """Reads a vector of pairs of 32-bit integers."""

    def vector(self) -> NDArray[np.float32]:
        """Reads a vector; returns (size,) float32, read-only."""
        return self._vector(np.float32)

    def double_vector(self) -> NDArray[np.float64]:
        """Reads a vector; returns (size,) float64, read-only."""
        return self._vector(np.float64)

    def matrix(self) -> NDArray[np.float32]:
        """Reads a matrix, which may be compressed; returns (rows, cols) float32, read-only."""
        return self._matrix(np.float32)

    def double_matrix(self) -> NDArray[np.float64]:
        """Reads a matrix, which may be compressed; returns (rows, cols) float64, read-only."""
        return self._matrix(np.float64)

    def symmetric_matrix(self) -> NDArray[np.float64]:
        """Reads a symmetric or triangular matrix (Kaldi's SpMatrix and TpMatrix).

        Its rows are stored up to the diagonal.

        Returns:
            (size, size) float64, symmetric.
        """
        start = self.position
        numbers = self._triangle()
        size = (math.isqrt(8 * len(numbers) + 1) - 1) // 2
        if size * (size + 1) // 2 != len(numbers):
            self.fail("this is no triangle of a matrix", at=start,
                      expected="1, 3, 6, 10, ... numbers", found=str(len(numbers)))  # fmt: skip
        lower = _triangle_of(size)
        matrix = np.zeros((size, size))
        matrix[lower] = matrix.T[lower] = numbers
        return matrix

    @abstractmethod
    def _triangle(self) -> NDArray[np.float64]:
        """Reads the rows of a matrix up to the diagonal, one after the other."""

    @abstractmethod
    def _vector(self, precision: type[F]) -> NDArray[F]:
        """Reads a vector of either precision and converts it; returns (size,), read-only."""

    @abstractmethod
    def _matrix(self, precision: type[F]) -> NDArray[F]:
        """Reads a matrix of either precision and converts it; returns (rows, cols), read-only."""


_BLANKS: Final = frozenset(b" \t\n\r\v\f")
_PRINTABLE: Final = range(ord(" "), ord("~") + 1)


@functools.lru_cache(1)  # matrices of one size follow each other
def _triangle_of(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and column of each element up to the diagonal, row by row."""
    return np.tril_indices(size)


def shown(data: bytes) -> str:
    """Returns bytes in a form that fits in an error message."""
    is_text = all(byte in _PRINTABLE or byte in _BLANKS for byte in data)
    return repr(data.decode("ascii")) if is_text else f"bytes {data.hex(' ')}"


def find(data: memoryview, wanted: bytes, start: int) -> int:
    """Returns the first position of `wanted` in `data` from `start` on, or -1."""
    step = 1 << 8
    while start < len(data):
        found = bytes(data[start : start + step]).find(wanted)
        if found >= 0:
            return start + found
        start += step - len(wanted) + 1
        step = min(2 * step, 1 << 16)
    return -1
