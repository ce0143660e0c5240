"""Kaldi's compressed matrices.

Source of the formats: `CompressedMatrix` in Kaldi's matrix library. "CM" quantises each column to 8
bits, along a line through four percentiles. "CM2" and "CM3" quantise the range of the whole matrix
to 16 and 8 bits.
"""

import struct
from typing import Final, NamedTuple, Self

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.errors import NetworkError

FORMATS: Final = ("CM", "CM2", "CM3")

_COLUMN_HEADER: Final = 4
"""16-bit values in the header of a column: percentiles 0, 25, 75 and 100."""
_KNOTS: Final = (0, 64, 192, 255)
"""The 8-bit values that stand for those percentiles."""
_BLOCK: Final = 1 << 16
"""Values that are decompressed at a time."""


class Header(NamedTuple):
    """The range of the values and the shape of the matrix."""

    minimum: float
    range: float
    rows: int
    cols: int

    @classmethod
    def unpack(cls, data: memoryview) -> Self:
        """Reads a header."""
        return cls(*_LAYOUT.unpack(data))

    def pack(self) -> bytes:
        """Returns the bytes of the header."""
        return _LAYOUT.pack(*self)


_LAYOUT: Final = struct.Struct("<ffii")
HEADER_SIZE: Final = _LAYOUT.size


def body_size(token: str, header: Header) -> int:
    """Returns the number of bytes after the header."""
    size = header.rows * header.cols
    if token == "CM":
        return size + header.cols * _COLUMN_HEADER * 2
    return size * 2 if token == "CM2" else size


def decompress(token: str, header: Header, body: memoryview) -> NDArray[np.float32]:
    """Returns the matrix, (rows, cols) float32.

    Args:
        token: The format, one of FORMATS.
        header: The header of the matrix.
        body: The bytes after the header, `body_size` of them.
    """
    shape = header.rows, header.cols
    minimum = np.float32(header.minimum)
    with np.errstate(over="ignore", invalid="ignore"):
        if token == "CM":
            return _decompress_columns(header, body)
        stored = np.frombuffer(body, dtype="<u2" if token == "CM2" else "u1").reshape(shape)
        values = stored.astype(np.float32)
        values *= np.float32(header.range) / np.float32(65535 if token == "CM2" else 255)
        values += minimum
    return values


def _decompress_columns(header: Header, body: memoryview) -> NDArray[np.float32]:
    split = header.cols * _COLUMN_HEADER * 2
    points = np.frombuffer(body[:split], dtype="<u2").reshape(header.cols, _COLUMN_HEADER)
    stored = np.frombuffer(body[split:], dtype="u1").reshape(header.cols, header.rows)
    unit = np.float32(header.range) * np.float32(1.0 / 65535)
    matrix = np.empty((header.rows, header.cols), dtype=np.float32)
    block = max(1, _BLOCK // max(1, header.rows))
    for first in range(0, header.cols, block):
        columns = slice(first, first + block)
        percentiles = np.float32(header.minimum) + points[columns].astype(np.float32) * unit
        codes = stored[columns]
        piece = np.digitize(codes, _KNOTS[1:3], right=True)
        low = np.take_along_axis(percentiles, piece, axis=1)
        rise = np.take_along_axis(percentiles, piece + 1, axis=1) - low
        past_knot = codes - np.asarray(_KNOTS, dtype=np.float32)[piece]
        # Kaldi multiplies by the reciprocal, in double precision.
        matrix[:, columns] = ((rise * past_knot) * (1.0 / np.diff(_KNOTS))[piece] + low).T
    return matrix


_FEWEST_ROWS_OF_COLUMNS: Final = 8
"""A matrix with more rows is quantised column by column, others as a whole to 16 bits."""


@attrs.frozen(eq=False)
class CompressedMatrix:
    """A matrix in its stored form, so that it can be written again byte for byte.

    Attributes:
        token: The format, one of FORMATS.
        header: Its header.
        body: The bytes after the header.
    """

    token: str
    header: Header
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.header.rows, self.header.cols

    def decompressed(self) -> NDArray[np.float32]:
        """Returns the values, (rows, cols) float32."""
        return decompress(self.token, self.header, memoryview(self.body))

    def scaled(self, factor: float) -> Self:
        """Returns the matrix multiplied by a number, with the same codes."""
        h = self.header
        minimum, extent = (float(np.float32(x) * np.float32(factor)) for x in (h.minimum, h.range))
        return attrs.evolve(self, header=h._replace(minimum=minimum, range=extent))

    def with_rows(self, first: int, count: int) -> "CompressedMatrix":
        """Returns consecutive rows; the first or last row stands for each missing one.

        The codes do not change, with one exception: fewer than eight rows of the form "CM" are
        compressed again, to 16 bits, because the headers of columns would take more room than they
        save.

        Args:
            first: Number of the first row; can be negative.
            count: Number of rows, at least one.
        """
        rows, cols = self.shape
        taken = np.clip(np.arange(first, first + count), 0, rows - 1)
        header = self.header._replace(rows=count)
        if self.token != "CM":
            dtype = "<u2" if self.token == "CM2" else "u1"
            codes = np.frombuffer(self.body, dtype=dtype).reshape(rows, cols)[taken]
            return attrs.evolve(self, header=header, body=codes.tobytes())
        split = cols * _COLUMN_HEADER * 2
        codes = np.frombuffer(self.body, dtype="u1", offset=split).reshape(cols, rows)[:, taken]
        matrix = attrs.evolve(self, header=header, body=self.body[:split] + codes.tobytes())
        return matrix if count >= _FEWEST_ROWS_OF_COLUMNS else compress(matrix.decompressed())


def compress(values: NDArray[np.float32]) -> CompressedMatrix:
    """Returns a matrix compressed as Kaldi does by default.

    A matrix of more than eight rows gets the form "CM", which suits features; others get "CM2".

    Args:
        values: (rows, cols) float32, with at least one element.

    Raises:
        NetworkError: a value is not finite, or there is none.
    """
    if not values.size or not np.isfinite(values).all():
        raise NetworkError("only a matrix of finite numbers can be compressed")
    low, high = np.float32(values.min()), np.float32(values.max())
    if high == low:
        high = np.float32(low + np.float32(1.0 + abs(float(low))))
    rows, cols = values.shape
    with np.errstate(over="ignore"):
        extent = np.float32(high - low)
    if not np.isfinite(extent):
        raise NetworkError(
            f"a matrix with values from {low:g} to {high:g} cannot be compressed: float32 cannot "
            "hold their difference"
        )
    header = Header(float(low), float(extent), rows, cols)
    if rows <= _FEWEST_ROWS_OF_COLUMNS:
        return CompressedMatrix("CM2", header, _to_16_bits(values, header).tobytes())
    points = _percentiles(values, header)
    return CompressedMatrix("CM", header, points.tobytes() + _codes(values, header, points))


def _to_16_bits(values: NDArray[np.float32], header: Header) -> NDArray[np.uint16]:
    share = (values - np.float32(header.minimum)) / np.float32(header.range)
    # Truncated, as Kaldi does; 0.499 is added in double precision.
    whole = np.clip(share, 0.0, 1.0) * np.float32(65535)
    codes: NDArray[np.uint16] = (whole.astype(np.float64) + 0.499).astype("<u2")
    return codes


def _percentiles(values: NDArray[np.float32], header: Header) -> NDArray[np.uint16]:
    """The 16-bit values of each column: (cols, 4), strictly rising."""
    quarter = len(values) // 4
    ordered = np.sort(values, axis=0)[[0, quarter, 3 * quarter, -1]]
    points = _to_16_bits(ordered, header).astype(np.int64)
    points[0] = np.minimum(points[0], 65532)
    for number in (1, 2, 3):
        points[number] = np.minimum(
            np.maximum(points[number], points[number - 1] + 1), 65532 + number
        )
    return points.T.astype("<u2")


def _codes(values: NDArray[np.float32], header: Header, points: NDArray[np.uint16]) -> bytes:
    """The 8-bit values, column by column."""
    unit = np.float32(header.range) * np.float32(1.0 / 65535)
    knots = np.float32(header.minimum) + points.astype(np.float32) * unit
    columns = values.T
    piece = (columns >= knots[:, 1:2]).astype(np.int64) + (columns >= knots[:, 2:3])
    low = np.take_along_axis(knots, piece, axis=1)
    width = np.take_along_axis(knots, piece + 1, axis=1) - low
    # Percentiles are the same number where the range is tiny beside the minimum.
    share = np.divide(columns - low, width, out=np.zeros_like(width), where=width > 0.0)
    steps, starts = np.diff(_KNOTS), np.asarray(_KNOTS)
    past = share * steps[piece].astype(np.float32)
    found = starts[piece] + np.trunc(past.astype(np.float64) + 0.5).astype(np.int64)
    codes: NDArray[np.uint8] = np.clip(found, starts[piece], starts[piece + 1]).astype(np.uint8)
    return codes.tobytes()
