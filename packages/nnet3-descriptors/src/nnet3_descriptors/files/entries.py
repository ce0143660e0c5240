"""Archives of objects of any kind, of any length, read entry by entry.

An archive has for each entry a key, a blank, and an object, binary (behind the bytes 0 and "B") or
text. It does not say how long an object is. So the reader decodes the bytes that have come, and
tries again with more, until the object is whole: of a stream only the entry at hand is held. What
follows an entry is waited for only behind large objects that do not say how many bytes they lack.
"""

from collections.abc import Callable, Iterator
from typing import IO, Final, Generic, TypeVar

import attrs

from nnet3_descriptors.errors import ModelFileError, Nnet3Error
from nnet3_descriptors.files.binary_and_text import BINARY_MARK, BinaryReader, reader_at
from nnet3_descriptors.files.reader import MAX_TOKEN, Reader

T = TypeVar("T")

_PIECE: Final = 1 << 18
"""Bytes that are asked for at a time."""
_LARGE: Final = 1 << 20
"""Bytes from which on an object that is not whole is tried again with twice as many."""


@attrs.frozen
class Entry(Generic[T]):
    """An entry of an archive.

    Attributes:
        key: Its name.
        value: The decoded object.
        data: The bytes after the key and its blank, so that it can be written unchanged.
        end: The offset of the byte behind it in the file.
    """

    key: str
    value: T
    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")
    end: int = 0

    @property
    def is_binary(self) -> bool:
        """Whether it is in Kaldi's binary form."""
        return self.data.startswith(BINARY_MARK)


def key_fault(key: object) -> str:
    """Returns what is wrong with the key of an entry; "" for one that `read_entries` takes."""
    try:
        data = key.encode() if isinstance(key, str) else b""
    except UnicodeEncodeError:
        return f"expected a key in UTF-8, found {key!r}"
    if not isinstance(key, str) or data.split() != [data]:  # at ASCII blanks, as Kaldi does
        return f"expected a key without blanks, found {key!r}"
    if "\0" in key:
        return f"expected a key without null characters, found {key!r}"
    if len(data) > MAX_TOKEN:
        return f"expected a key of at most {MAX_TOKEN} bytes, found {len(data)}: {key[:24]!r}..."
    return ""


def read_entries(stream: IO[bytes], path: str, decode: Callable[[Reader], T]) -> Iterator[Entry[T]]:
    """Yields the entries of an archive, each as soon as all its bytes have come.

    Args:
        stream: The archive.
        path: Its name, for messages.
        decode: Takes one object from a reader. If it fails because bytes are missing, it is called
            again with more bytes. If no token ends an object, the next bytes must not look like a
            part of it.

    Raises:
        ModelFileError: The stream is not an archive of such objects; the error says where.
        Nnet3Error: The error of `decode`.
        OSError: The stream cannot be read.
    """
    window = _Window(stream)
    window.fill(1)
    while True:
        found = _next_entry(window, path, decode)
        if found is None:
            return
        entry, size = found
        window.drop(size)
        yield entry


class _Window:
    """The part of a stream that is held.

    Attributes:
        data: Its bytes.
        origin: Number of bytes before it.
        is_last: Whether the stream ends with it.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        # What a pipe has at the moment, instead of waiting for all the bytes asked for.
        self._read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        self.data = b""
        self.origin = 0
        self.is_last = False
        self._start = 0

    @property
    def view(self) -> memoryview:
        """The bytes that are held and were not dropped."""
        return memoryview(self.data)[self._start :]

    def fill(self, size: int) -> None:
        """Reads until `size` bytes are held, or to the end."""
        pieces = [bytes(self.view)]
        held = len(pieces[0])
        while held < size and not self.is_last:
            piece = self._read(_PIECE)
            self.is_last = not piece
            pieces.append(piece)
            held += len(piece)
        self.data, self._start = b"".join(pieces), 0

    def drop(self, size: int) -> None:
        """Forgets bytes at the beginning."""
        self._start += size
        self.origin += size


def _next_entry(
    window: _Window, path: str, decode: Callable[[Reader], T]
) -> tuple[Entry[T], int] | None:
    """Returns an entry and how many bytes it takes; None at the end."""
    earlier: tuple[object, ...] | None = None
    while True:
        data = window.view
        wanted = len(data) + 1 if len(data) < _LARGE else 2 * len(data)
        try:
            found = _entry(data, path, window.origin, decode)
        except Nnet3Error as error:
            fault = _fault(error)
            if window.is_last or (fault is not None and fault == earlier):
                raise
            earlier = fault
            missing = error.missing if isinstance(error, ModelFileError) else 0
            if missing > len(data) // 8:  # the rest of a large array
                wanted = len(data) + missing
        else:
            if window.is_last or (found is not None and _is_whole(*found, data)):
                return found
        window.fill(wanted)


def _is_whole(entry: Entry[T], size: int, data: memoryview) -> bool:
    """Tells whether an entry cannot go on behind the bytes that are held."""
    return size < len(data) or entry.is_binary or data[size - 1] == ord("\n")


def _fault(error: Nnet3Error) -> tuple[object, ...] | None:
    """Returns a key that a fault keeps if more bytes do not mend it; None if they may."""
    if not isinstance(error, ModelFileError):
        return type(error), str(error)
    if (
        error.missing
        or error.found == "the end of the file"
        or error.message == "the file ends too early"
    ):
        return None
    return error.message, error.offset, error.expected, error.found


def _entry(
    data: memoryview, path: str, origin: int, decode: Callable[[Reader], T]
) -> tuple[Entry[T], int] | None:
    reader: Reader = BinaryReader(data, path, origin=origin)
    reader.skip_blanks()
    if not reader.remaining:
        return None
    key = reader.key()
    start = reader.position
    reader = reader_at(data, path, start, origin)
    value = decode(reader)
    entry = Entry(key, value, bytes(data[start : reader.position]), reader.offset)
    return entry, reader.position
