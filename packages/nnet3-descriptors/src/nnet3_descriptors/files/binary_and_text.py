"""Reading the elements of Kaldi's files in their two forms, binary and text."""

import re
import struct
from collections.abc import Iterator
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.files import compressed, reader
from nnet3_descriptors.indexes import INT32_MAX, INT32_MIN, is_int32
from nnet3_descriptors.text import parse_integer, parse_real

BINARY_MARK: Final = b"\0B"
"""The bytes before each object of Kaldi's binary files."""


def reader_at(data: memoryview, path: str, position: int, origin: int) -> reader.Reader:
    """Returns the reader of an object, which is binary if it begins with the mark, or else text.

    Args:
        data: The bytes.
        path: Name of the file, for errors.
        position: Where the object begins.
        origin: Number of bytes of the file before `data`.
    """
    if bytes(data[position : position + len(BINARY_MARK)]) == BINARY_MARK:
        return BinaryReader(data, path, position + len(BINARY_MARK), origin)
    return TextReader(data, path, position, origin)


# -- binary -----------------------------------------------------------------------------------

FloatType = np.dtype[np.float32] | np.dtype[np.float64]

_INT32: Final = struct.Struct("<i")
_ITEM: Final = np.dtype([("size", "u1"), ("value", "<i4")])
_FLOAT32: Final = struct.Struct("<f")
_FLOAT64: Final = struct.Struct("<d")
_VECTORS: Final[dict[str, FloatType]] = {"FV": np.dtype("<f4"), "DV": np.dtype("<f8")}
_MATRICES: Final[dict[str, FloatType]] = {"FM": np.dtype("<f4"), "DM": np.dtype("<f8")}
_TRIANGLES: Final[dict[str, FloatType]] = {"FP": np.dtype("<f4"), "DP": np.dtype("<f8")}
_LARGE: Final = 64
"""The fewest rows and columns of matrices that may stay in their file: smaller arrays take part in
operations on elements, which would be slower where they are not aligned."""


class BinaryReader(reader.Reader):
    """Reads elements of a binary file: numbers are preceded by their size in bytes."""

    binary = True

    def _take(self, size: int, what: str, at: int | None = None) -> memoryview:
        """Returns the next `size` bytes; an error names `what` they should have been."""
        if size > self.remaining:
            self.fail(
                "the file ends too early",
                at=at,
                expected=f"{what} of {size} bytes",
                found=f"{self.remaining} bytes",
                missing=size - self.remaining,
            )
        start = self.position
        self.position = start + size
        return self.data[start : start + size]

    def integer(self) -> int:
        """Reads a 32-bit integer."""
        start = self.position
        if self.remaining == 0 or self.data[start] != _INT32.size:
            self.fail("this is no integer", expected="an integer", found=self.next_bytes())
        self.position += 1
        value: int = _INT32.unpack(self._take(_INT32.size, "an integer", start))[0]
        return value

    def real(self) -> float:
        """Reads a number of single or double precision."""
        start = self.position
        size = self.data[start] if self.remaining else 0
        if size not in (_FLOAT32.size, _FLOAT64.size):
            self.fail("this is no number", expected="a number", found=self.next_bytes())
        self.position += 1
        layout = _FLOAT32 if size == _FLOAT32.size else _FLOAT64
        value: float = layout.unpack(self._take(size, "a number", start))[0]
        return value

    def boolean(self) -> bool:
        """Reads T or F."""
        if self.remaining == 0 or self.data[self.position] not in b"TF":
            self.fail("this is no truth value", expected="T or F", found=self.next_bytes())
        self.position += 1
        return self.data[self.position - 1] == ord("T")

    def _integer_array(self, width: int) -> NDArray[np.int32]:
        start = self.position
        if self.remaining == 0 or self.data[start] != _INT32.size:
            self.fail("these are no integers", expected="a vector of 32-bit integers",
                      found=self.next_bytes())  # fmt: skip
        self.position += 1
        count: int = _INT32.unpack(self._take(_INT32.size, "a size", start))[0]
        if count < 0:
            self.fail("impossible size", at=start, expected="a size >= 0", found=str(count))
        values = self._take(count * width * _INT32.size, "integers", start)
        self._check_length(count, reader.MAX_INTEGERS // width**2, start)
        return np.frombuffer(values, dtype="<i4").reshape(count, width)

    def integers(self) -> list[int]:
        """Reads a vector of 32-bit integers."""
        values: list[int] = self._integer_array(1).ravel().tolist()
        return values

    def table_integers(self) -> NDArray[np.int32]:
        """Reads integers as an entry of a table has them; returns (size,) int32."""
        size = self.count("integers", maximum=reader.MAX_TABLE_INTEGERS, least_bytes=_ITEM.itemsize)
        return self._items(size)

    def integer_rows(self, rows: int, columns: int) -> list[list[int]]:
        """Reads 32-bit integers one by one, row by row; returns lists of the columns."""
        values: list[list[int]] = self._items(rows * columns).reshape(rows, columns).T.tolist()
        return values

    def _items(self, count: int) -> NDArray[np.int32]:
        """Reads integers, each with its size in front; returns (count,) int32."""
        start = self.position
        items = np.frombuffer(self._take(count * _ITEM.itemsize, "integers"), dtype=_ITEM)
        for wrong in np.flatnonzero(items["size"] != _INT32.size):
            self.position = start + int(wrong) * _ITEM.itemsize
            self.fail("this is no integer", expected="an integer", found=self.next_bytes())
        return items["value"].astype(np.int32)

    def integer_pairs(self) -> list[tuple[int, int]]:
        """Reads a vector of pairs of 32-bit integers."""
        return [(first, second) for first, second in self._integer_array(2).tolist()]

    def _floats(
        self, shape: tuple[int, ...], dtype: FloatType, precision: type[reader.F], start: int
    ) -> NDArray[reader.F]:
        """Reads the values of an array, as a copy but for large matrices that stay `in_place`."""
        if min(shape) < 0 or (0 in shape and max(shape) > 0):
            self.fail("impossible size", at=start, expected="a size >= 0",
                      found=" by ".join(map(str, shape)))  # fmt: skip
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        what = f"an array of {' by '.join(map(str, shape))} numbers,"
        raw = np.frombuffer(self._take(size, what, start), dtype=dtype)
        stays = self.in_place and len(shape) == 2 and min(shape) >= _LARGE
        if dtype == precision and stays:
            values: NDArray[reader.F] = raw.view(precision)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                values = raw.astype(precision)
            values.flags.writeable = False
        return values.reshape(shape)

    def _vector(self, precision: type[reader.F]) -> NDArray[reader.F]:
        start = self.position
        dtype = _VECTORS.get(token := self.token())
        if dtype is None:
            self.fail("this is no vector", at=start, expected="'FV' or 'DV'", found=_named(token))
        return self._floats((self.integer(),), dtype, precision, start)

    def _matrix(self, precision: type[reader.F]) -> NDArray[reader.F]:
        start = self.position
        token = self.token()
        if token in compressed.FORMATS:
            stored = self._compressed(token, start)
            matrix = compressed.decompress(*stored).astype(precision, copy=False)
            matrix.flags.writeable = False
            return matrix
        dtype = _MATRICES.get(token)
        if dtype is None:
            self.fail("this is no matrix", at=start, expected="'FM', 'DM', 'CM', 'CM2' or 'CM3'",
                      found=_named(token))  # fmt: skip
        rows = self.integer()
        return self._floats((rows, self.integer()), dtype, precision, start)

    def _triangle(self) -> NDArray[np.float64]:
        start = self.position
        dtype = _TRIANGLES.get(token := self.token())
        if dtype is None:
            self.fail("this is no triangle of a matrix", at=start, expected="'FP' or 'DP'",
                      found=_named(token))  # fmt: skip
        size = self.integer()
        if size < 0:
            self.fail("impossible size", at=start, expected="a size >= 0", found=str(size))
        return self._floats((size * (size + 1) // 2,), dtype, np.float64, start)

    def compressed_matrix(self) -> compressed.CompressedMatrix:
        """Reads a compressed matrix as it is stored."""
        start = self.position
        token = self.token()
        if token not in compressed.FORMATS:
            self.fail("this is no compressed matrix", at=start, expected="'CM', 'CM2' or 'CM3'",
                      found=f"'{token}'")  # fmt: skip
        token, header, body = self._compressed(token, start)
        return compressed.CompressedMatrix(token, header, bytes(body))

    def _compressed(self, token: str, start: int) -> tuple[str, compressed.Header, memoryview]:
        """Reads the rest of a compressed matrix, after its token."""
        header = compressed.Header.unpack(self._take(compressed.HEADER_SIZE, "a header", start))
        if min(header.rows, header.cols) < 0 or (header.rows == 0) != (header.cols == 0):
            self.fail("impossible size", at=start, expected="a size >= 0",
                      found=f"{header.rows} by {header.cols}")  # fmt: skip
        size = compressed.body_size(token, header)
        return token, header, self._take(size, "a compressed matrix", start)


def _named(token: str) -> str:
    """Returns the token of an array in quotes, with its kind, for errors."""
    if token in _VECTORS:
        return f"'{token}', a vector"
    return f"'{token}', a matrix" if token in (*_MATRICES, *compressed.FORMATS) else f"'{token}'"


# -- text -------------------------------------------------------------------------------------

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
