"""Tables of objects of any kind, such as training examples: read, and written as bytes."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from typing import IO, Generic, TypeVar

import attrs
from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.files import BinaryReader, Reader, TextReader, read_entries

from nnet3_tables.errors import TableError
from nnet3_tables.output import TableOutput
from nnet3_tables.script import read_script
from nnet3_tables.sources import file_and_offset, opened, opened_at
from nnet3_tables.specifier import Specifier

T = TypeVar("T")

_BINARY = b"\0B"


@attrs.frozen
class ObjectEntry(Generic[T]):
    """An entry of a table.

    Attributes:
        key: Its key.
        value: The object.
        data: The bytes that it was read from, so that it can be written as it was.
    """

    key: str
    value: T
    data: bytes

    @property
    def is_binary(self) -> bool:
        """Whether it is in Kaldi's binary form."""
        return self.data.startswith(_BINARY)


def read_objects(rspecifier: str, decode: Callable[[Reader], T]) -> Iterator[ObjectEntry[T]]:
    """The entries of a table, in order.

    Of an archive only the entry at hand is held in memory.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, `scp,p:FILE`, ...
        decode: Takes one object from a reader; it must leave nothing that points into its data.

    Raises:
        TableError: the table cannot be opened, or is no archive.
        Nnet3Error: `decode` has raised it. With the option `p`, unreadable entries are left out.
    """
    specifier = Specifier.to_read(rspecifier)
    read = _script(specifier, decode) if specifier.is_script else _archive(specifier, decode)
    if not specifier.is_permissive:
        yield from read
        return
    first = next(read, None)  # a table that cannot be opened is always an error
    if first is not None:
        yield first
        with contextlib.suppress(Nnet3Error):
            yield from read


def _archive(specifier: Specifier, decode: Callable[[Reader], T]) -> Iterator[ObjectEntry[T]]:
    with opened(specifier) as stream:
        try:
            for entry in read_entries(stream, specifier.target, decode):
                yield ObjectEntry(entry.key, entry.value, entry.data)
        except OSError as error:
            reason = error.strerror or error
            raise TableError(f"cannot read '{specifier.target}': {reason}") from error


def _script(specifier: Specifier, decode: Callable[[Reader], T]) -> Iterator[ObjectEntry[T]]:
    for entry in read_script(specifier):
        name, offset = file_and_offset(entry.location)
        if name.endswith(("|", "]")):
            raise TableError(f"{entry.place}: '{entry.key}': expected a file, found {name}")
        place = f"{entry.place}: '{entry.key}' at {name}"
        with opened_at(name, place) as stream, _contents(stream) as data:
            reader = _reader_at(data, name, offset)
            try:
                value = decode(reader)
                yield ObjectEntry(entry.key, value, bytes(data[offset : reader.position]))
            finally:
                reader.data = memoryview(b"")


def _reader_at(data: memoryview, path: str, start: int) -> Reader:
    if bytes(data[start : start + len(_BINARY)]) == _BINARY:
        return BinaryReader(data, path, start + len(_BINARY))
    return TextReader(data, path, start)


@contextlib.contextmanager
def _contents(stream: IO[bytes]) -> Iterator[memoryview]:
    """All bytes of a stream; of a regular file that is at its beginning, as a map."""
    try:
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size and stream.tell() == 0:
            contents: memoryview | mmap.mmap = mmap.mmap(
                stream.fileno(), 0, access=mmap.ACCESS_READ
            )
        else:
            contents = memoryview(stream.read())
    except OSError as error:
        raise TableError(f"cannot read '{stream.name}': {error.strerror}") from error
    with contents, memoryview(contents) as view:
        yield view


class ObjectWriter(TableOutput):
    """Writes a table of bytes."""

    def write(self, key: str, data: bytes) -> None:
        """Writes one entry.

        Args:
            key: A word.
            data: The value; in binary with the bytes 0 and "B" in front.

        Raises:
            TableError: the key is no word, or the entry cannot be written.
        """
        self.write_bytes(key, [data])
