"""Reading the elements of Kaldi's text files."""

import re
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.files.reader import F, Reader, find, shown

_PIECE: Final = 1 << 16
"""Bytes of text that are split into words at a time, which bounds the memory that takes."""
_INT32: Final = np.iinfo(np.int32)


class TextReader(Reader):
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
        self.fail(f"this is no {what}", at=start, expected=what, found=shown(word[:24].encode()))

    def _parse_integer(self, word: str, start: int) -> int:
        try:
            value = int(word)
        except ValueError:
            self._no("integer", word, start)
        if not _INT32.min <= value <= _INT32.max:
            self._no("32-bit integer", word, start)
        return value

    def integer(self) -> int:
        """Reads a 32-bit integer."""
        return self._parse_integer(*self._word("an integer"))

    def real(self) -> float:
        """Reads a number."""
        word, start = self._word("a number")
        try:
            return float(word)
        except ValueError:
            self._no("number", word, start)

    def boolean(self) -> bool:
        """Reads T or F."""
        word, start = self._word("T or F")
        if word not in ("T", "F"):
            self._no("truth value", word, start)
        return word == "T"

    def _bracketed(self, what: str) -> tuple[int, int]:
        """Reads `[ ... ]`; returns start and end of what stands between the brackets."""
        self.skip_blanks()
        start = self.position
        if self.remaining == 0 or self.data[start] != ord("["):
            self.fail(f"this is no {what}", expected=f"a {what}", found=self.next_bytes())
        end = find(self.data, b"]", start)
        if end < 0:
            self.fail(f"the {what} has no end", expected="']'", found="the end of the file")
        self.position = end + 1
        return start + 1, end

    def _words(self, what: str) -> list[tuple[str, int]]:
        start, end = self._bracketed(what)
        text = bytes(self.data[start:end])
        return [
            (match[0].decode("latin-1"), start + match.start())
            for match in re.finditer(rb"\S+", text)
        ]

    def integers(self) -> list[int]:
        """Reads a vector of 32-bit integers."""
        return [self._parse_integer(*word) for word in self._words("vector of integers")]

    def integer_pairs(self) -> list[tuple[int, int]]:
        """Reads a vector of pairs of 32-bit integers."""
        pairs = []
        for word, start in self._words("vector of pairs"):
            parts = word.split(",")
            if len(parts) != 2:
                self._no("pair of integers", word, start)
            first, second = (self._parse_integer(part, start) for part in parts)
            pairs.append((first, second))
        return pairs

    def _numbers(self, start: int, end: int, precision: type[F]) -> NDArray[F]:
        """Returns the numbers in a range of the file."""
        pieces = []
        while start < end:
            stop = min(start + _PIECE, end)
            while stop < end and not self.data[stop : stop + 1].tobytes().isspace():
                stop += 1
            words = bytes(self.data[start:stop]).split()
            try:
                with np.errstate(over="ignore"):
                    pieces.append(np.array(words, dtype=np.float64).astype(precision))
            except ValueError:
                self._find_no_number(words, start)
            start = stop
        return np.concatenate(pieces) if pieces else np.empty(0, precision)

    def _find_no_number(self, words: list[bytes], start: int) -> NoReturn:
        for word in words:
            try:
                float(word)
            except ValueError:
                at = find(self.data, word, start)
                self._no("number", word.decode("latin-1"), at)
        self.fail("this is no number", at=start)

    def _vector(self, precision: type[F]) -> NDArray[F]:
        start, end = self._bracketed("vector")
        if (newline := find(self.data[:end], b"\n", start)) >= 0:
            self.fail("a vector has only one line", at=newline)
        values = self._numbers(start, end, precision)
        values.flags.writeable = False
        return values

    def _matrix(self, precision: type[F]) -> NDArray[F]:
        start, end = self._bracketed("matrix")
        rows: list[NDArray[F]] = []
        while start < end:
            stop = find(self.data[:end], b"\n", start)
            stop = end if stop < 0 else stop
            for part in re.finditer(rb"[^;]+", bytes(self.data[start:stop])):
                row = self._numbers(start + part.start(), start + part.end(), precision)
                if rows and row.size not in (0, rows[0].size):
                    self.fail(
                        "the rows of a matrix differ in length",
                        at=start,
                        expected=f"{rows[0].size} numbers",
                        found=str(row.size),
                    )
                if row.size:
                    rows.append(row)
            start = stop + 1
        values = np.array(rows, dtype=precision) if rows else np.empty((0, 0), precision)
        values.flags.writeable = False
        return values
