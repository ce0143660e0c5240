"""Sparse matrices in Kaldi's files, such as posteriors in examples.

Source of the format: `SparseMatrix` in Kaldi's matrix library. In binary and in text,

    SM rows { SV dim count { column value } }        rows=N { dim=D [ { column value } ] }
"""

import itertools
import struct
from typing import Any, Final, Self

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3_descriptors import indexes, limits, text
from nnet3_descriptors.files.binary_and_text import BinaryReader, TextReader
from nnet3_descriptors.files.reader import Reader
from nnet3_descriptors.files.writer import Writer

_MAX_ROWS: Final = 1 << 24

_ROW: Final = struct.Struct("<3sbibi")
"""The beginning of a row in binary: "SV ", and two integers."""
_ELEMENT: Final = np.dtype([("four", "u1"), ("column", "<i4"), ("size", "u1"), ("value", "<f4")])
"""A column and a value of single precision, as they lie in binary."""


@attrs.frozen(eq=False)
class SparseMatrix:
    """A matrix of which only some elements are stored; the others are 0.

    `numpy.asarray(matrix)` gives all of them.

    Attributes:
        dim: Number of columns.
        splits: (rows + 1,) int64; elements splits[i] to splits[i+1] belong to row i.
        columns: (elements,) int64, each below dim.
        values: (elements,) float32.
    """

    dim: int
    splits: NDArray[np.int64] = attrs.field(repr=lambda splits: f"<{len(splits) - 1} rows>")
    columns: NDArray[np.int64] = attrs.field(repr=lambda columns: f"<{len(columns)} elements>")
    values: NDArray[np.float32] = attrs.field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.splits) - 1, self.dim

    def dense(self) -> NDArray[np.float32]:
        """Returns the matrix with its zeros, (rows, dim) float32.

        Raises:
            LimitError: There are more values than `Limits.rows`.
        """
        rows, dim = self.shape
        limits.check_limit("rows", rows * dim, f"the values of a sparse matrix of {rows} by {dim}")
        values = np.zeros(self.shape, dtype=np.float32)
        row = np.repeat(np.arange(rows), np.diff(self.splits))
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(values, (row, self.columns), self.values)
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.dense(), dtype=dtype)

    @classmethod
    def is_next(cls, reader: Reader) -> bool:
        """Tells whether a sparse matrix is the next element."""
        if reader.binary:
            return reader.next_is(b"SM ")
        reader.skip_blanks()
        return reader.next_is(b"rows=")

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Reads a sparse matrix.

        Raises:
            ModelFileError: There is none, its rows differ in their dimension, or an element is
                beyond it.
        """
        start = reader.position
        if isinstance(reader, BinaryReader):
            dims, splits, columns, values = _read_binary(reader)
        else:
            assert isinstance(reader, TextReader)
            dims, splits, columns, values = _read_text(reader)
        if len(dims) > 2:  # rows without elements may have 0
            reader.fail("the rows of a sparse matrix differ in their dimension", at=start)
        dim = max(dims)
        if len(columns) and not 0 <= columns.min() <= columns.max() < dim:
            reader.fail(
                "a sparse matrix has an element beyond its dimension",
                at=start,
                expected=f"columns of 0 to {dim - 1}",
                found=f"{columns.min()} to {columns.max()}",
            )
        return cls(dim, splits, columns, values)

    def write(self, writer: Writer) -> None:
        """Writes the matrix, in single precision."""
        if writer.binary:
            self._write_binary(writer)
        else:
            self._write_text(writer)

    def _write_binary(self, writer: Writer) -> None:
        elements = np.empty(len(self.columns), dtype=_ELEMENT)
        elements["four"] = elements["size"] = 4
        elements["column"], elements["value"] = self.columns, self.values
        data = elements.tobytes()
        writer.token("SM")
        writer.integer(self.shape[0])
        for begin, end in itertools.pairwise(self.splits.tolist()):
            writer.raw(_ROW.pack(b"SV ", 4, self.dim, 4, end - begin))
            writer.raw(data[begin * _ELEMENT.itemsize : end * _ELEMENT.itemsize])

    def _write_text(self, writer: Writer) -> None:
        writer.token(f"rows={self.shape[0]}")
        pairs = list(zip(self.columns.tolist(), self.values.tolist(), strict=True))
        for begin, end in itertools.pairwise(self.splits.tolist()):
            writer.token(f"dim={self.dim}")
            writer.token("[")
            for column, value in pairs[begin:end]:
                writer.integer(column)
                writer.real(value)
            writer.token("]")
        writer.newline()


_Parts = tuple[set[int], NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""The dimensions of all rows and 0, splits, columns, and values."""


def _read_binary(reader: BinaryReader) -> _Parts:
    reader.expect("SM")
    rows = reader.count("rows", maximum=_MAX_ROWS, least_bytes=_ROW.size)
    begin, dims, counts, pieces = reader.position, {0}, [], []
    for _ in range(rows):
        if reader.remaining < _ROW.size:
            reader.fail("the file ends too early", expected="a row of a sparse matrix")
        token, four, dim, four_again, count = _ROW.unpack_from(reader.data, reader.position)
        size = count * _ELEMENT.itemsize
        if (token, four, four_again) != (b"SV ", 4, 4) or size < 0:
            break
        if (missing := size - (reader.remaining - _ROW.size)) > 0:
            reader.fail(
                "the file ends too early", expected=f"a row of {count} elements", missing=missing
            )
        dims.add(dim)
        counts.append(count)
        reader.position += _ROW.size
        pieces.append(reader.data[reader.position : reader.position + size])
        reader.position += size
    elements = np.frombuffer(b"".join(pieces), dtype=_ELEMENT)
    is_single = bool((elements["four"] == 4).all() and (elements["size"] == 4).all())
    if len(counts) < rows or not is_single:  # double precision, or damaged
        reader.position = begin
        return _read_elements(reader, rows)
    splits = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return dims, splits, elements["column"].astype(np.int64), elements["value"].copy()


def _read_elements(reader: BinaryReader, rows: int) -> _Parts:
    """Reads the rows of a sparse matrix number by number, so that errors can say where."""
    dims, splits = {0}, [0]
    elements: list[tuple[int, float]] = []
    for _ in range(rows):
        reader.expect("SV")
        dims.add(reader.integer())
        for _ in range(reader.count("elements", maximum=_MAX_ROWS)):
            elements.append((reader.integer(), reader.real()))
        splits.append(len(elements))
    columns = np.array([column for column, _ in elements], dtype=np.int64)
    values = _single([value for _, value in elements])
    return dims, np.array(splits, dtype=np.int64), columns, values


def _single(values: ArrayLike) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float64).astype(np.float32)


def _read_text(reader: TextReader) -> _Parts:
    rows, dims, splits = _assigned(reader, "rows"), {0}, [0]
    parts = [np.zeros(0)]
    for _ in range(rows):
        dims.add(_assigned(reader, "dim"))
        start = reader.position
        numbers = reader.numbers("row of a sparse matrix")
        columns = numbers[::2]
        is_column = (columns == np.rint(columns)) & (np.abs(columns) <= indexes.INT32_MAX)
        if len(numbers) % 2 or not is_column.all():
            reader.fail("this is no row of a sparse matrix", at=start,
                        expected="columns, which are integers, with a number behind each",
                        found=f"{len(numbers)} numbers")  # fmt: skip
        parts.append(numbers)
        splits.append(splits[-1] + len(columns))
    numbers = np.concatenate(parts)
    splits_of = np.array(splits, dtype=np.int64)
    return dims, splits_of, numbers[::2].astype(np.int64), _single(numbers[1::2])


def _assigned(reader: Reader, name: str) -> int:
    """Reads `NAME=number`."""
    reader.skip_blanks()
    start = reader.position
    word = reader.token()
    found, equals, number = word.partition("=")
    try:
        value = text.parse_integer(number)
    except ValueError:
        value = -1
    if found != name or not equals or not 0 <= value <= _MAX_ROWS or not indexes.is_int32(value):
        reader.fail("this is no sparse matrix", at=start, expected=f"'{name}=' and a number",
                    found=f"'{word}'")  # fmt: skip
    return value
