"""Reading the elements of Kaldi's binary files."""

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.files import compressed, reader

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
