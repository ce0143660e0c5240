"""Writing tables, and files that hold one matrix or vector; every failure to write is an error."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterable
from typing import IO, Self

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import REPLACES, file_to_replace, key_fault, locked, new_writer
from nnet3_descriptors.values import is_masked

from nnet3_tables.entries import FloatArray, read_script
from nnet3_tables.errors import TableError
from nnet3_tables.sources import opened_to_write
from nnet3_tables.specifier import Specifier


class ObjectWriter:
    """Writes a table of objects of any kind, which are given as bytes; use as a context manager.

    A file gets its name when the table is complete. Until then an archive is
    `FILE.RANDOM.incomplete`, and stays there after an error. With a script file beside it, both get
    their names together, the script file last.

    Attributes:
        is_text: Whether entries are written as text (the option `t`).
        is_prompt: Whether each entry is flushed at once (the option `f`).
    """

    def __init__(self, wspecifier: str) -> None:
        """Opens the table.

        Raises:
            TableError: the name is not that of a table to write, or the table cannot be opened.
        """
        self._specifier = specifier = Specifier.to_write(wspecifier)
        self.is_text = "t" in specifier.options
        self.is_prompt = "f" in specifier.options
        self._is_open = True
        self._offset = 0
        self._locations: dict[str, str] = {}
        self._script: IO[bytes] | None = None
        self._turn = threading.Lock()
        # For each target: the working folder may be another one at the end.
        self._replaced = [
            file_to_replace(name) if name in specifier.files else None for name in specifier.targets
        ]
        with contextlib.ExitStack() as contexts:
            if specifier.is_script:
                self._locations = {line.key: line.location for line in read_script(specifier)}
            else:
                archive, *script = specifier.targets
                if script:
                    self._script = contexts.enter_context(opened_to_write(script[0]))
                self._archive = contexts.enter_context(opened_to_write(archive, keep_part=True))
            self._contexts = contexts.pop_all()

    def __repr__(self) -> str:
        """The kind of writer, and the table."""
        return f"<{type(self).__name__} to '{self._specifier.target}'>"

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been written to the archive."""
        return not self._offset

    @property
    def unfinished(self) -> str | None:
        """The file with a part of an archive; None if it is complete, empty, or in no file."""
        if self._specifier.is_script or self._replaced[0] is None:
            return None
        return self._archive.name if os.path.exists(self._archive.name) else None

    def write(self, key: str, data: bytes) -> None:
        """Writes one entry.

        Args:
            key: A word.
            data: The value; in binary with the bytes 0 and "B" in front.

        Raises:
            TableError: the key is not a word, the value is no bytes, the table is closed, or the
                entry cannot be written.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TableError(f"'{key}': expected bytes, found {type(data).__name__}")
        self._put(key, [data])

    def _put(self, key: str, data: Iterable[bytes | memoryview]) -> None:
        """Writes an entry, given as the pieces of its value; see `write`."""
        _check_key(key)
        with self._turn:
            self._put_in_turn(key, data)

    def _put_in_turn(self, key: str, data: Iterable[bytes | memoryview]) -> None:
        if not self._is_open:
            raise TableError(f"cannot write '{self._specifier.target}': the table is closed")
        if self._specifier.is_script:
            self._put_by_script(key, data)
            return
        pieces = [f"{key} ".encode(), *data]
        place = f"{key} {self._specifier.targets[0]}:{self._offset + len(pieces[0])}\n"
        try:
            self._archive.writelines(pieces)
            if self._script is not None:
                self._script.write(place.encode(errors="surrogateescape"))
            if self.is_prompt:
                self._archive.flush()
        except BaseException as error:
            self._is_open = False
            self._contexts.__exit__(type(error), error, error.__traceback__)
            raise
        self._offset += sum(memoryview(piece).nbytes for piece in pieces)

    def _put_by_script(self, key: str, data: Iterable[bytes | memoryview]) -> None:
        """Writes a value to the file that a script file names."""
        location = self._locations.get(key)
        if location is None:
            if self._specifier.is_permissive:
                return
            raise TableError(f"'{self._specifier.target}' has no line for '{key}'")
        if location.startswith("|") or location.endswith("|"):
            raise TableError(
                f"'{self._specifier.target}': '{key}' is to go to a command ({location[:60]!r}), "
                "and data does not run commands"
            )
        if re.fullmatch(r".*:[0-9]+", location):
            raise TableError(
                f"'{self._specifier.target}': '{key}' is to go to a place within a file "
                f"({location[-60:]!r}), which holds other entries"
            )
        with opened_to_write(location) as file:
            file.writelines(data)

    def close(self) -> None:
        """Finishes the table, and gives a file its name.

        Raises:
            TableError: not everything could be written, or the command failed.
        """
        if not self._is_open:
            return
        self._is_open = False
        if self._script is None:
            self._contexts.close()
            return
        archive, script = self._replaced
        turn = contextlib.nullcontext() if archive is None else locked(os.path.dirname(archive))
        with turn, self._contexts:
            self._archive.flush()
            if archive is not None:
                os.fsync(self._archive.fileno())
                sys.audit(REPLACES, archive, True)  # who refuses keeps the script, too
            if script is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(script)  # or it would refer to places in an archive that is replaced

    def abandon(self) -> None:
        """Ends the writing of a table that is not complete."""
        if self._is_open:
            self._is_open = False
            error = TableError("the table is not complete")
            with contextlib.suppress(TableError):
                self._contexts.__exit__(type(error), error, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()


class TableWriter(ObjectWriter):
    """Writes a table of matrices or of vectors; use as a context manager. See `write_table`."""

    _num_axes: tuple[int, ...] = (1, 2)

    def write(self, key: str, value: npt.ArrayLike) -> None:
        """Writes one entry, in single precision.

        Args:
            key: A word.
            value: (rows, cols) or (size,) numbers; all values of a table have the same number of
                axes. A matrix without numbers is written as one of 0 rows and 0 columns.

        Raises:
            TableError: the key is not a word, the value is no such array, or it cannot be written.
        """
        _check_key(key)
        array = _numbers(f"'{key}'", value, *self._num_axes)
        self._put(key, _encoded(array, binary=not self.is_text))
        self._num_axes = (array.ndim,)


class MatrixWriter(TableWriter):
    """Writes a table of matrices."""

    _num_axes = (2,)


class VectorWriter(TableWriter):
    """Writes a table of vectors."""

    _num_axes = (1,)


def write_table(wspecifier: str) -> TableWriter:
    """A table to write: a context manager with `write(key, value)`.

    The first value decides whether it holds matrices or vectors. (`MatrixWriter` and `VectorWriter`
    hold one of them.) An archive in a file has its name when it is complete, and is
    `FILE.RANDOM.incomplete` until then.

    Args:
        wspecifier: `ark:FILE`, `ark,t:FILE`, `ark,scp:ARCHIVE,SCRIPT`, `ark:| COMMAND`, ...

    Raises:
        TableError: the name is not that of a table to write, or the table cannot be opened.
    """
    return TableWriter(wspecifier)


def write_matrix(
    name: str | os.PathLike[str], value: npt.ArrayLike, *, binary: bool = True
) -> None:
    """Writes a file that holds one matrix, such as `lda.mat`, in single precision.

    Args:
        name: A file, "-" for standard output, or "| command".
        value: (rows, cols) numbers.
        binary: Whether to write it in binary form; else as text.

    Raises:
        TableError: the value is no matrix, or the file cannot be written; an old file stays.
    """
    _write_file(name, _numbers(f"'{name}'", value, 2), binary=binary)


def write_vector(
    name: str | os.PathLike[str], value: npt.ArrayLike, *, binary: bool = True
) -> None:
    """Writes a file that holds one vector, (size,) numbers; see `write_matrix`."""
    _write_file(name, _numbers(f"'{name}'", value, 1), binary=binary)


def _write_file(name: str | os.PathLike[str], array: FloatArray, *, binary: bool) -> None:
    with opened_to_write(name) as file:
        file.writelines(_encoded(array, binary=binary))


def _encoded(array: FloatArray, *, binary: bool) -> list[bytes | memoryview]:
    writer = new_writer(binary=binary)
    (writer.vector if array.ndim == 1 else writer.matrix)(array)
    return writer.chunks


def _check_key(key: object) -> None:
    """Raises a TableError if readers would refuse a key."""
    if fault := key_fault(key):
        raise TableError(fault)


_KINDS = {1: "vector", 2: "matrix"}
"""The names of arrays, by the number of their axes."""


def _numbers(what: str, value: npt.ArrayLike, *num_axes: int) -> FloatArray:
    """A value as an array that can be written.

    Args:
        what: Its name in messages.
        value: The value.
        num_axes: The numbers of axes that it may have.

    Raises:
        TableError: it is no such array, or masked, or a finite number is too large for single
            precision.
    """
    wanted = " or a ".join(_KINDS[number] for number in sorted(num_axes, reverse=True))
    rows = value if isinstance(value, list | tuple) else ()
    if any(map(is_masked, (value, *rows))):
        raise TableError(
            f"{what}: expected a {wanted}, found a masked array; filled() makes one of it"
        )
    try:
        given = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise TableError(f"{what}: expected a {wanted}: {error}") from error
    if given.dtype.kind not in "fiu" or given.ndim not in num_axes:
        raise TableError(
            f"{what}: expected a {wanted} of real numbers, found {given.dtype} of shape "
            f"{given.shape}"
        )
    array: FloatArray = given
    if given.dtype != np.float32:
        with np.errstate(over="ignore"):
            array = given.astype(np.float32)
        if not np.array_equal(np.isfinite(array), np.isfinite(given)):
            raise TableError(f"{what} has a number that is too large for single precision")
    return array if array.size or array.ndim == 1 else array.reshape(0, 0)  # Kaldi has no other
