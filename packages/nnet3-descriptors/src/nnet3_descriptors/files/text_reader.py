"""Reading the elements of Kaldi's text files."""

import re
from collections.abc import Iterator
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.files import reader
from nnet3_descriptors.indexes import INT32_MAX, INT32_MIN, is_int32
from nnet3_descriptors.text import parse_integer, parse_real

_PIECE: Final = 1 << 16
"""Bytes of text that are split into words at a time, which bounds the memory that takes."""
_BLANKS: Final = (b" ", b"\n", b"\t", b"\r", b"\v", b"\f")
_INTEGERS: Final = re.compile(rb"[0-9+\-\s]*")

_ENDS_ROW: Final = np.zeros(256, dtype=np.bool_)
"""Whether a byte ends a row of a matrix."""
_ENDS_ROW[[ord("\n"), ord(";")]] = True
_IN_WORD: Final = ~_ENDS_ROW
"""Whether a byte belongs to a number of a matrix, or else separates them."""
_IN_WORD[[ord(blank) for blank in _BLANKS]] = False


class TextReader(reader.Reader):
    """Reads elements of a text file: words between blanks."""

    binary = False

    def _word(self, what: str) -> tuple[str, int]:
        """Reads a word; returns it and its position."""
        self.skip_blanks()
        start = self.position
        if self.remaining == 0:
            self.fail("the file ends too early", expected=what, found="the end of the file")
        return self.token(), start

    def _no(self, what: str, word: str, start: int) -> NoReturn:
        self.fail(
            f"this is no {what}", at=start, expected=what, found=reader.shown(word[:24].encode())
        )

    def _parse_integer(self, word: str, start: int) -> int:
        try:
            value = parse_integer(word)
        except ValueError:
            self._no("integer", word, start)
        if not is_int32(value):
            self._no("32-bit integer", word, start)
        return value

    def integer(self) -> int:
        """Reads a 32-bit integer."""
        return self._parse_integer(*self._word("an integer"))

    def real(self) -> float:
        """Reads a number."""
        word, start = self._word("a number")
        try:
            return parse_real(word)
        except ValueError:
            self._no("number", word, start)

    def boolean(self) -> bool:
        """Reads T or F."""
        word, start = self._word("T or F")
        if word not in ("T", "F"):
            self._no("truth value", word, start)
        return word == "T"

    def _bracketed(self, what: str) -> tuple[int, int]:
        """Reads `[ ... ]`; returns start and end of the text between the brackets."""
        self.skip_blanks()
        start = self.position
        if self.remaining == 0 or self.data[start] != ord("["):
            self.fail(
                f"this is no {what}",
                expected=f"a {what}, which begins with '[' in text",
                found=self.next_bytes(),
            )
        end = reader.find(self.data, b"]", start)
        if end < 0:
            self.fail(f"the {what} has no end", expected="']'", found="the end of the file")
        self.position = end + 1
        return start + 1, end

    def _pieces(self, start: int, end: int, what: str) -> Iterator[tuple[int, bytes]]:
        """Yields the text of a range in pieces that end at blanks, each with its offset."""
        while start < end:
            piece = bytes(self.data[start : start + min(_PIECE, end - start)])
            stop = start + len(piece)
            if stop < end:
                stop = start + 1 + max(piece.rfind(blank) for blank in _BLANKS)
                if stop == start:
                    self._no(what, piece.decode("latin-1"), start)
                piece = piece[: stop - start]
            yield start, piece
            start = stop

    def _numbers(self, piece: bytes, start: int, what: str = "number") -> NDArray[np.float64]:
        """Returns the numbers of a piece."""
        try:
            return _parse_numbers(piece, what)
        except ValueError:
            is_one = _is_integer if what == "integer" else _is_number
            words = re.finditer(rb"\S+", piece)
            wrong = next(match for match in words if not is_one(match[0]))
            self._no(what, wrong[0].decode("latin-1"), start + wrong.start())

    def integers(self) -> list[int]:
        """Reads a vector of 32-bit integers."""
        start, end = self._bracketed("vector of integers")
        values: list[int] = self._integers(start, end, reader.MAX_INTEGERS).tolist()
        return values

    def table_integers(self) -> NDArray[np.int32]:
        """Reads the integers on the rest of the line; returns (size,) int32."""
        start = self.position
        end = reader.find(self.data, b"\n", start)
        self.position = len(self.data) if end < 0 else end + 1
        return self._integers(start, self.position, reader.MAX_TABLE_INTEGERS)

    def _integers(self, start: int, end: int, maximum: int) -> NDArray[np.int32]:
        """Returns the integers in a range of the text."""
        parts, length = [np.empty(0, dtype=np.int32)], 0
        for at, piece in self._pieces(start, end, "integer"):
            numbers = self._numbers(piece, at, "integer")
            if np.any((numbers < INT32_MIN) | (numbers > INT32_MAX)):
                self.fail("an integer has more than 32 bits", at=at)
            parts.append(numbers.astype(np.int32))
            length += len(numbers)
            self._check_length(length, maximum, at)
        return np.concatenate(parts)

    def integer_pairs(self) -> list[tuple[int, int]]:
        """Reads a vector of pairs of 32-bit integers."""
        pairs = []
        for start, piece in self._pieces(*self._bracketed("vector of pairs"), "pair of integers"):
            for match in re.finditer(rb"\S+", piece):
                word, at = match[0].decode("latin-1"), start + match.start()
                parts = word.split(",")
                if len(parts) != 2:
                    self._no("pair of integers", word, at)
                first, second = (self._parse_integer(part, at) for part in parts)
                pairs.append((first, second))
            self._check_length(len(pairs), reader.MAX_INTEGERS // 4, start)
        return pairs

    def _vector(self, precision: type[reader.F]) -> NDArray[reader.F]:
        start, end = self._bracketed("vector")
        if (newline := reader.find(self.data[:end], b"\n", start)) >= 0:
            self.fail("a vector has only one line", at=newline)
        pieces = [
            _rounded(self._numbers(piece, at), precision)
            for at, piece in self._pieces(start, end, "number")
        ]
        return _joined(pieces, precision)

    def numbers(self, what: str) -> NDArray[np.float64]:
        """Reads `[ ... ]`, on one line or several; returns the numbers, (size,)."""
        pieces = self._pieces(*self._bracketed(what), "number")
        return _joined([self._numbers(piece, at) for at, piece in pieces], np.float64)

    def _triangle(self) -> NDArray[np.float64]:
        return self.numbers("triangle of a matrix")

    def _matrix(self, precision: type[reader.F]) -> NDArray[reader.F]:
        cols = 0
        begun = 0  # numbers of the row that the piece before has begun
        pieces = []
        for start, piece in self._pieces(*self._bracketed("matrix"), "number"):
            text = np.frombuffer(piece, dtype=np.uint8)
            in_word = _IN_WORD[text]
            begins = in_word.copy()
            begins[1:] &= ~in_word[:-1]
            ends = np.flatnonzero(_ENDS_ROW[text])
            sizes = np.diff(np.cumsum(begins)[ends], prepend=0)
            sizes[:1] += begun
            begun = int(begins.sum() + begun - sizes.sum())
            cols = self._check_rows(sizes, cols, start, ends)
            numbers = self._numbers(piece.replace(b";", b" "), start)
            pieces.append(_rounded(numbers, precision))
        if begun:
            bracket = np.array([self.position - 1])
            cols = self._check_rows(np.array([begun]), cols, 0, bracket)
        return _joined(pieces, precision).reshape(-1, cols) if cols else np.empty((0, 0), precision)

    def _check_rows(
        self, sizes: NDArray[np.int64], cols: int, start: int, ends: NDArray[np.int64]
    ) -> int:
        """Checks that rows have as many numbers as rows before, unless they have none.

        Args:
            sizes: Numbers of each row.
            cols: Numbers of the rows before; 0 if there are none.
            start: Where the piece starts that the rows end in.
            ends: Where in it each row ends.

        Returns:
            Numbers of each row.
        """
        cols = cols or int(next(iter(sizes[sizes > 0]), 0))
        for row in np.flatnonzero((sizes != cols) & (sizes != 0)):
            self.fail(
                "the rows of a matrix differ in length",
                at=start + int(ends[row]),
                expected=f"{cols} numbers",
                found=str(sizes[row]),
            )
        return cols


def _parse_numbers(piece: bytes, what: str) -> NDArray[np.float64]:
    # NumPy takes "1_000" for a number, as Python does.
    if b"_" in piece or (what == "integer" and not _INTEGERS.fullmatch(piece)):
        raise ValueError
    return np.array(piece.split(), dtype=np.float64)


def _is_integer(word: bytes) -> bool:
    return re.fullmatch(rb"[+-]?[0-9]+", word) is not None


def _is_number(word: bytes) -> bool:
    try:
        parse_real(word.decode("latin-1"))
    except ValueError:
        return False
    return True


def _rounded(numbers: NDArray[np.float64], precision: type[reader.F]) -> NDArray[reader.F]:
    with np.errstate(over="ignore"):
        return numbers.astype(precision)


def _joined(pieces: list[NDArray[reader.F]], precision: type[reader.F]) -> NDArray[reader.F]:
    """Returns the values of all pieces as one read-only array."""
    values = np.concatenate(pieces) if pieces else np.empty(0, precision)
    values.flags.writeable = False
    return values
