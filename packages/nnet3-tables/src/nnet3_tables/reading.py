"""Tables read in their order, and files that hold one matrix or vector."""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, TypeVar

from nnet3_descriptors import ModelFileError, Nnet3Error
from nnet3_descriptors.files import Entry, Reader, key_fault, open_reader

from nnet3_tables.commands import is_command
from nnet3_tables.entries import (
    FloatArray,
    Value,
    decoded,
    matrix,
    read_archive,
    read_script,
    refuse_sound,
    value,
    vector,
)
from nnet3_tables.errors import TableError, TableWarning
from nnet3_tables.sources import lines, opened
from nnet3_tables.specifier import Specifier

T = TypeVar("T")


def read_table(rspecifier: str) -> Iterator[tuple[str, Value]]:
    """The entries of a table, in order: for each its key and its value.

    The bytes say what a value is:

    - a matrix (rows, cols) or vector (size,), float32; compressed matrices are unpacked. In text,
      a value whose numbers begin on the line of its bracket is a vector, as Kaldi writes one; `[ ]`
      is an empty matrix.
    - integers (size,), int32, such as an alignment; in text, they have no bracket.
    - a `SparseMatrix`.

    Arrays belong to the caller: reading the next value does not change them, and the caller may
    write to them. When the iterator is exhausted, closed or deleted, reading ends, and so does the
    command of the table.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, `scp,p:FILE`, ...

    Raises:
        TableError: the table cannot be opened, is damaged, or has a value that cannot be read. With
            the option `p`, what cannot be read is left out, with a `TableWarning`.
    """
    return ((key, read().value) for key, read in _entries(rspecifier, value))


def read_matrices(
    rspecifier: str, passed: Callable[[int], object] | None = None
) -> Iterator[tuple[str, Callable[[], FloatArray]]]:
    """The matrices of a table, in order: for each its key and a function that gives it.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, `scp,p:FILE`, ...
        passed: Called before each matrix of an archive is given, with the bytes up to its end;
            `archive_size` has those of all. Not called for script files.

    Raises:
        TableError: the table cannot be opened, or its archive is damaged or breaks off. (If the
            matrix of a line of a script file cannot be read, its function raises the error.) With
            the option `p`, what cannot be read is left out, with a `TableWarning`.
    """
    return ((key, partial(_value_of, read)) for key, read in _entries(rspecifier, matrix, passed))


def read_objects(rspecifier: str, decode: Callable[[Reader], T]) -> Iterator[Entry[T]]:
    """The entries of a table, in order.

    Of an archive only the entry at hand is held in memory.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, `scp,p:FILE`, ...
        decode: Takes one object from a reader; the object must not refer to the reader's data.

    Raises:
        TableError: the table cannot be opened, is damaged or breaks off. With the option `p`, what
            cannot be read is left out, with a `TableWarning`.
        Nnet3Error: another error of `decode`.
    """
    return (read() for _, read in _entries(rspecifier, decode))


def _value_of(read: Callable[[], Entry[T]]) -> T:
    return read().value


_Entries = Iterator[tuple[str, Callable[[], Entry[T]]]]
"""For each entry its key, and a function that returns the entry."""


def _entries(
    rspecifier: str, decode: Callable[[Reader], T], passed: Callable[[int], object] | None = None
) -> _Entries[T]:
    specifier = Specifier.to_read(rspecifier)
    is_script = specifier.is_script
    entries = _script(specifier, decode) if is_script else _archive(specifier, decode, passed)
    return _readable(entries, specifier) if specifier.is_permissive else entries


def _script(specifier: Specifier, decode: Callable[[Reader], T]) -> _Entries[T]:
    for line in read_script(specifier):
        yield line.key, partial(line.read, decode)


def _archive(
    specifier: Specifier, decode: Callable[[Reader], T], passed: Callable[[int], object] | None
) -> _Entries[T]:
    with opened(specifier.target) as stream:
        for entry in read_archive(stream, specifier.target, decode):
            if passed is not None:
                passed(entry.end)
            yield entry.key, partial(_identity, entry)


def _identity(entry: Entry[T]) -> Entry[T]:
    return entry


def _readable(entries: _Entries[T], specifier: Specifier) -> _Entries[T]:
    """The entries that can be read, up to the damage in the table; as in Kaldi, with warnings."""
    first = next(entries, None)  # a table that cannot be opened is always an error
    if first is None:
        return
    try:
        for key, read in itertools.chain([first], entries):
            try:
                entry = read()
            except Nnet3Error as error:
                warn(f"{error}; left out because of the option p")
            else:
                yield key, partial(_identity, entry)
    except Nnet3Error as error:
        warn(f"{error}; the rest of '{specifier.target}' is left out because of the option p")


def warn(message: str) -> None:
    """Warns the caller of this package that a part of a table is left out."""
    warnings.warn(message, TableWarning, stacklevel=3)


def read_tokens(rspecifier: str) -> Mapping[str, str]:
    """A table of words, such as utt2spk, as a mapping.

    Args:
        rspecifier: `ark:FILE`, `ark:COMMAND |`, ...

    Raises:
        TableError: it is a script file, it cannot be read, a line has not two words, or a key
            comes twice.
    """
    tokens: dict[str, str] = {}
    for place, words in lines(Specifier.to_read(rspecifier, is_text=True).target):
        if len(words) != 2:
            raise TableError(f"{place}: expected two words, found {len(words)}")
        if words[0] in tokens:
            raise TableError(f"{place}: the key '{words[0]}' comes twice")
        tokens[words[0]] = words[1]
    return tokens


def read_matrix(name: str | os.PathLike[str]) -> FloatArray:
    """Reads a file that holds one matrix, such as `lda.mat`, in any form that Kaldi writes.

    Args:
        name: A file, a place in an archive as in script files (`feats.ark:1234`), "-" for standard
            input, or `command |`.

    Returns:
        (rows, cols) float32, which belongs to the caller.

    Raises:
        TableError: it cannot be read, or is no matrix.
    """
    return _read_file(name, matrix)


def read_vector(name: str | os.PathLike[str]) -> FloatArray:
    """Reads a file that holds one vector, such as an i-vector; see `read_matrix`.

    Returns:
        (size,) float32, which belongs to the caller.

    Raises:
        TableError: it cannot be read, or is no vector.
    """
    return _read_file(name, vector)


def _read_file(name: str | os.PathLike[str], decode: Callable[[Reader], T]) -> T:
    try:
        if not is_command(name) and name not in ("", "-"):
            return decoded(open_reader(name), decode)
        with opened(name) as stream:
            return decoded(open_reader(stream), decode)
    except ModelFileError as error:
        raise TableError(f"cannot read '{name}': {error.reason}") from error


_LONGEST_KEY = 4096

OpenValue = Callable[[], AbstractContextManager[IO[bytes]]]
"""Opens a value, as a context with a file that is open for reading bytes."""


def read_files(rspecifier: str) -> Iterator[tuple[str, OpenValue]]:
    """The values of a table as files: for each its key, and a function that opens it.

    For a table such as `scp:wav.scp`, or `ark:wav-copy scp:wav.scp ark:- |`. The file of a value in
    an archive is the archive itself: whoever opens it reads the value to its end and no further,
    before the next key is asked for.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, ...

    Raises:
        TableError: the table cannot be opened, a key is no word, or a value of an archive was not
            read. (If the file of a line of a script file cannot be opened, or is a command, the
            function raises the error.)
    """
    specifier = Specifier.to_read(rspecifier)
    if not specifier.is_script:
        yield from _of_archive(specifier.target)
        return
    for line in read_script(specifier):
        yield line.key, line.opened


def _of_archive(path: str) -> Iterator[tuple[str, OpenValue]]:
    with opened(path) as stream:
        refuse_sound(stream, path, "an archive of them; scp:FILE has lines 'KEY SOUND-FILE'")
        while key := _key(stream, path):
            done: list[str] = []
            yield key, partial(_opened_once, stream, f"archive '{path}': '{key}'", done)
            if "read" not in done:
                raise TableError(f"archive '{path}': what follows '{key}' was not read to its end")


@contextlib.contextmanager
def _opened_once(stream: IO[bytes], place: str, done: list[str]) -> Iterator[IO[bytes]]:
    """A value in an archive; notes what is done: it was opened, and read without an error."""
    if done:
        raise TableError(f"{place} can be read only once")
    done.append("opened")
    yield stream
    done.append("read")


def _key(stream: IO[bytes], path: str) -> str:
    """The next key of an archive, without the blank behind it; "" at the end."""
    text = bytearray()
    while len(text) <= _LONGEST_KEY:
        byte = stream.read(1)
        if byte and not byte.isspace():
            text += byte
        elif text or not byte:
            break
    key = text.decode(errors="surrogateescape")
    if text and (fault := key_fault(key)):
        raise TableError(f"archive '{path}': {fault}")
    return key
