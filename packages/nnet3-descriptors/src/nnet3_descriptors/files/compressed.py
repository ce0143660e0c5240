"""Kaldi's compressed matrices.

Source of the formats: `CompressedMatrix` in Kaldi's matrix library. "CM" quantises each column to
8 bits along a line through four percentiles, "CM2" and "CM3" quantise the range of the whole
matrix to 16 and 8 bits.
"""

import struct
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

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


_LAYOUT: Final = struct.Struct("<ffii")
HEADER_SIZE: Final = _LAYOUT.size


def body_size(token: str, header: Header) -> int:
    """Returns how many bytes follow the header."""
    size = header.rows * header.cols
    if token == "CM":
        return size + header.cols * _COLUMN_HEADER * 2
    return size * 2 if token == "CM2" else size


def decompress(token: str, header: Header, body: memoryview) -> NDArray[np.float32]:
    """Returns the matrix, (rows, cols) float32.

    Args:
        token: The format, one of FORMATS.
        header: The header of the matrix.
        body: What follows the header, `body_size` bytes.
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
