"""Files that gzip has packed, with a bound on how much a little of them unpacks to."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import IO, Any, cast

_MOST_AT_ONCE = 1 << 22
"""Bytes that any file may unpack to."""
_RATIO = 100
"""Bytes that each further byte of a file may unpack to, on average: tables take 2 to 10."""


class _Counted:
    """A stream that counts the bytes that were read from it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.count += len(data)
        return data


class Unpacked(io.RawIOBase):
    """The content of a file that gzip has packed.

    A reader holds one value of a table in memory; with this bound, a value is not much larger than
    the file that it comes from.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        """Takes the stream of the packed bytes."""
        self._packed = _Counted(stream)
        self._content = gzip.GzipFile(fileobj=cast(IO[bytes], self._packed), mode="rb")
        self._count = 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer; see `io.RawIOBase`.

        Raises:
            OSError: the packed data is damaged, or unpacks to more than the bound.
        """
        view = memoryview(buffer)
        try:
            piece = self._content.read1(len(view))
        except (EOFError, zlib.error) as error:
            raise OSError(f"the packed data is damaged: {error}") from error
        self._count += len(piece)
        most = _MOST_AT_ONCE + _RATIO * self._packed.count
        if self._count > most:
            raise OSError(
                f"its first {self._packed.count} bytes, which gzip has packed, unpack to "
                f"{self._count}; expected at most {most}"
            )
        view[: len(piece)] = piece
        return len(piece)
