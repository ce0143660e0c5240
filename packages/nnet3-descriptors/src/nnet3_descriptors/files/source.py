"""Files opened and read, with errors of this package."""

import io
import mmap
import os
import re
import stat
import weakref
from collections.abc import Iterable, Iterator
from typing import IO, BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.errors import ModelFileError, check_path, file_error
from nnet3_descriptors.files.binary_and_text import BINARY_MARK, reader_at
from nnet3_descriptors.files.reader import Reader


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a file for reading bytes.

    Raises:
        FileError: It cannot be opened.
    """
    check_path(path, "read")
    try:
        return open(path, "rb")
    except OSError as error:
        raise file_error(error, "read", path) from error


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Returns the bytes of a file.

    Raises:
        FileError: It cannot be opened or read.
    """
    with open_file(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise file_error(error, "read", path) from error


def mapped(file: IO[bytes]) -> memoryview | None:
    """Returns all bytes of a regular file as a map, or None if the file has to be read.

    A pipe or a device has no size. Files that the system makes during reading, such as those below
    /proc, report a size of 0 whatever they hold.

    Args:
        file: An open file that has a file descriptor.

    Raises:
        OSError: It cannot be mapped.
    """
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        return None
    return memoryview(FileMap(file))


class FileMap(mmap.mmap):
    """All bytes of a regular file.

    The system ends a process that reads from a map what has been cut off the file since.

    Attributes:
        name: The name of the file.
    """

    name: str
    _file: int
    _state: tuple[int, int]

    def __new__(cls, file: IO[bytes]) -> Self:
        """Maps an open file; the map keeps it open."""
        made = super().__new__(cls, file.fileno(), 0, access=mmap.ACCESS_READ)
        made.name = stream_name(file)
        made._file = os.dup(file.fileno())
        weakref.finalize(made, os.close, made._file)
        made._state = _state(made._file)
        return made

    def check_unchanged(self) -> None:
        """Checks that nobody has written to the file; another file may have taken its name.

        Raises:
            ModelFileError: Somebody has.
        """
        if _state(self._file) != self._state:
            raise ModelFileError(
                "the file was written to after it was read, and the memory of what was read is the "
                "file's; read it again (to replace a file in use, write another one and rename it)",
                path=self.name,
            )

    def release(self) -> None:
        """Gives the memory back to the system, which reads pages again when they are used."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.madvise(mmap.MADV_DONTNEED)


def _state(file: int) -> tuple[int, int]:
    """What changes when somebody writes to a file."""
    status = os.fstat(file)
    return status.st_size, status.st_mtime_ns


def maps_of(data: Iterable[object]) -> Iterator[FileMap]:
    """Returns the maps of files that bytes or arrays are views of, each once."""
    found = {id(origin): origin for origin in map(_origin, data)}
    return (origin for origin in found.values() if isinstance(origin, FileMap))


PathOrFile = str | os.PathLike[str] | IO[bytes]
"""A path, `path:offset` (as in Kaldi's scp files), or a file that is open for reading bytes."""

_CHUNK: Final = 1 << 20
_OFFSET: Final = re.compile(r"(.+):(\d{1,18})")


def open_reader(source: PathOrFile) -> Reader:
    """Returns a reader at the first element of a Kaldi object.

    A regular file is mapped into memory, so arrays can be views of it. A stream is read to its
    end, piece by piece.

    Args:
        source: A path, `path:offset`, or a file that is open for reading bytes.

    Raises:
        ModelFileError: the file cannot be read, or is empty.
    """
    if isinstance(source, str | os.PathLike):
        path, offset = _split_offset(os.fspath(source))
        try:
            with open(path, "rb") as file:
                data, position = _contents(file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if "\0" in path:
                reason = "no name of a file has a null character"
            raise ModelFileError(f"cannot be read: {reason}", path=path) from error
        position += offset
        return _reader(data, path, position, 0)
    path = stream_name(source)
    if not hasattr(source, "seekable"):
        found = type(source).__name__
        raise ModelFileError(
            f"expected a path or a file open for reading bytes, found {found}", path=path
        )
    try:
        start = source.tell() if source.seekable() else 0
        data, position = _contents(source)
    except (OSError, ValueError, AttributeError) as error:
        raise ModelFileError(f"cannot be read: {error}", path=path) from error
    return _reader(data, path, position, start - position)


def stream_name(stream: object) -> str:
    """Returns the name of an open file for messages."""
    name = getattr(stream, "name", None)
    return name if isinstance(name, str) else "<stream>"  # a pipe has its number for a name


def _origin(data: object) -> object:
    """What has the memory of bytes or of an array."""
    while isinstance(data, np.ndarray):
        data = data.base
    return data.obj if isinstance(data, memoryview) else data


def leave_behind(source: PathOrFile, reader: Reader) -> None:
    """Moves an open file, if it can be moved, to the byte behind the last element read."""
    for mapping in maps_of([reader.data]):
        mapping.release()
    if not isinstance(source, str | os.PathLike) and source.seekable():
        source.seek(reader.offset)


def _split_offset(path: str) -> tuple[str, int]:
    """Returns path and offset of `path:offset`; a file that has such a name comes first."""
    match = _OFFSET.fullmatch(path)
    if match is None or os.path.exists(path):
        return path, 0
    return match[1], int(match[2])


def _contents(file: IO[bytes]) -> tuple[memoryview, int]:
    """Returns the bytes of a file, as a map if it is a regular one, and the position in them."""
    raw = getattr(file, "raw", file)
    if isinstance(raw, io.FileIO):
        view = mapped(raw)
        if view is not None:
            return view, file.tell()
    pieces = []
    while piece := file.read(_CHUNK):
        if not isinstance(piece, bytes):
            raise ValueError("it is open for text; open it with mode 'rb'")
        pieces.append(piece)
        if len(pieces) == 1 and not _looks_like_an_object(piece):
            break
    return memoryview(b"".join(pieces)), 0


def _looks_like_an_object(head: bytes) -> bool:
    """Tells whether a stream may hold a Kaldi object; other streams are not read to their end."""
    return head.startswith(BINARY_MARK) or head.lstrip()[:1] in (b"<", b"[", b"")


def _reader(data: memoryview, path: str, position: int, origin: int) -> Reader:
    if position >= len(data):
        what = "the file is empty" if not len(data) else "the offset is behind the end of the file"
        raise ModelFileError(what, path=path, offset=origin + position)
    return reader_at(data, path, position, origin)


def read_matrix(source: PathOrFile) -> NDArray[np.float32]:
    """Reads a matrix, binary or text, of single or double precision, or compressed.

    Returns:
        (rows, cols) float32, read-only.

    Raises:
        ModelFileError: the file cannot be read or holds no matrix.
    """
    reader = open_reader(source)
    matrix = reader.matrix()
    leave_behind(source, reader)
    return matrix


def read_vector(source: PathOrFile) -> NDArray[np.float32]:
    """Reads a vector, binary or text, of single or double precision.

    Returns:
        (size,) float32, read-only.

    Raises:
        ModelFileError: the file cannot be read or holds no vector.
    """
    reader = open_reader(source)
    vector = reader.vector()
    leave_behind(source, reader)
    return vector
