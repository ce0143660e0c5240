"""The entries of archives, and the values of the usual kinds.

Python's own streams read the data. So other threads compute while a reader waits for a command, and
the wait can be interrupted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import ModelFileError
from nnet3_descriptors.files import Entry, Reader, SparseMatrix, read_entries

from nnet3_tables.errors import TableError

T = TypeVar("T")

FloatArray = npt.NDArray[np.float32]
"""A matrix (rows, columns) or a vector, float32."""

Value = npt.NDArray[Any] | SparseMatrix
"""A matrix or a vector, float32; integers, (size,) int32; or a sparse matrix."""

_SOUND = b"RIFF"
"""The first bytes of a WAV file."""

_VECTOR_IN_TEXT = re.compile(rb"\s*\[[ \t]*[^\s\]]")
"""In text, a vector has numbers on the line of its bracket."""

_INTEGERS_IN_TEXT = re.compile(rb"[ \t\r]*(?:[-+0-9]|\n(?!\s*\[))")
"""In text, integers have no bracket; there may be none."""

_LOOK_AHEAD = 1 << 12
"""Bytes within which a vector in text has its first number."""


def matrix(reader: Reader) -> FloatArray:
    """A matrix: full or compressed, binary or text."""
    return np.array(reader.matrix())


def vector(reader: Reader) -> FloatArray:
    """A vector, binary or text."""
    return np.array(reader.vector())


def value(reader: Reader) -> Value:
    """A matrix of any form, a vector, or integers; the bytes say which."""
    ahead = bytes(reader.data[reader.position : reader.position + _LOOK_AHEAD])
    if ahead.lstrip().startswith((b"SM ", b"rows=")):
        return SparseMatrix.read(reader)
    if ahead[:1] == b"\4" if reader.binary else _INTEGERS_IN_TEXT.match(ahead):
        start = reader.position
        try:
            return reader.table_integers()
        except ModelFileError:
            if reader.binary:
                raise
            reader.position = start
            reader.fail(
                "this is no value of a table",
                expected="a matrix or vector, which begins with '[' in text, or integers",
                found=reader.next_bytes(),
            )
    if ahead[:3] in (b"FV ", b"DV ") if reader.binary else _VECTOR_IN_TEXT.match(ahead):
        return vector(reader)
    return matrix(reader)


def decoded(reader: Reader, decode: Callable[[Reader], T]) -> T:
    """What a function takes from a reader.

    Raises:
        ModelFileError: it is sound; or the error of the function.
    """
    if not reader.binary and reader.next_is(_SOUND):
        reader.fail("this is sound, a WAV file", expected="what is computed from sound")
    return decode(reader)


def read_archive(stream: IO[bytes], path: str, decode: Callable[[Reader], T]) -> Iterator[Entry[T]]:
    """The entries of an archive, in order; only the one at hand is held in memory.

    Args:
        stream: The archive.
        path: Its name, for messages.
        decode: Takes one object from a reader.

    Raises:
        TableError: the stream is not an archive of such objects, is damaged or breaks off.
        Nnet3Error: another error of `decode`.
    """
    peek = getattr(stream, "peek", lambda size: b"")
    if peek(len(_SOUND))[: len(_SOUND)] == _SOUND:
        raise TableError(
            f"'{path}' is a sound file (WAV); expected an archive of what is computed from sound, "
            "such as features"
        )
    entries = read_entries(stream, path, lambda reader: decoded(reader, decode))
    previous = None
    while True:
        try:
            entry = next(entries, None)
        except ModelFileError as error:
            what = f"archive '{path}' is damaged or breaks off after '{previous}'"
            if previous is None:
                what = f"cannot read archive '{path}'"
            raise TableError(f"{what}, byte {error.offset}: {error.reason}") from error
        if entry is None:
            return
        previous = entry.key
        yield entry
