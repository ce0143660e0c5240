"""Writing tables; every failure to write is an error."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Any, Self

import kaldi_native_io as kaldi
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import is_masked

from nnet3_tables.archive import FloatArray, check_key
from nnet3_tables.errors import TableError
from nnet3_tables.incomplete import give_name, incomplete_path
from nnet3_tables.native import FAILURES, LOG, Checked, message_of, reason_of
from nnet3_tables.specifier import Specifier


class _MatrixWriter(Checked, kaldi.FloatMatrixWriter):  # type: ignore[misc]
    """Writes a table of matrices."""


class _VectorWriter(Checked, kaldi.FloatVectorWriter):  # type: ignore[misc]
    """Writes a table of vectors."""


class TableWriter:
    """Writes a table; use as a context manager, so that closing can report failures.

    Until an archive in a file is complete, its name ends with ".incomplete". So nobody takes an
    unfinished archive for a complete one. In two cases the archive has its name from the beginning:
    with the option `f`, for readers that wait for entries, and with a script file beside it.

    Attributes:
        is_prompt: Whether each entry is flushed at once (the option `f`).
    """

    writer_class: Any
    num_axes: int

    def __init__(self, wspecifier: str) -> None:
        self._specifier = Specifier.to_write(wspecifier)
        self._incomplete_path = incomplete_path(self._specifier)
        self._is_complete = False
        self.is_prompt = "f" in self._specifier.options
        if self._specifier.target == "-" and sys.stdout is None:
            raise TableError("cannot write '-': standard output is closed")
        with LOG.capture(enabled=not self._specifier.is_command) as held:
            try:
                self._writer = self.writer_class(os.fsencode(self._library_specifier()))
            except FAILURES as error:
                log = held.text
                text = f"{message_of(error)}\n{log}"
                found = re.search(r"errno \(in case it's relevant\) is: (.+)", text)
                reason = found[1].strip() if found else reason_of(error, log)
                for folder in {os.path.dirname(name) or "." for name in self._specifier.files}:
                    if not os.path.isdir(folder):
                        reason = f"there is no folder '{folder}'"
                raise TableError(f"cannot write '{self._specifier.target}': {reason}") from error

    def __repr__(self) -> str:
        """The kind of writer, and the table."""
        return f"<{type(self).__name__} to '{self._specifier.target}'>"

    def _library_specifier(self) -> str:
        """The wspecifier for the library, with the temporary name of an archive."""
        if self._incomplete_path is None:
            return self._specifier.text
        words = self._specifier.text.partition(":")[0]
        return f"{words}:{self._incomplete_path}"

    @property
    def unfinished(self) -> str | None:
        """The file with a part of the table; None if the table is complete, or is not a file."""
        if self._is_complete or not self._specifier.files:
            return None
        return self._incomplete_path or self._specifier.files[0]

    def _incomplete(self) -> TableError:
        return TableError(
            f"cannot write '{self._specifier.target}': not everything could be written (is the "
            "disk full, or has the reader gone?)"
        )

    def write(self, key: str, value: npt.ArrayLike) -> None:
        """Writes one entry, in single precision.

        Args:
            key: A word.
            value: (rows, cols) numbers for a table of matrices, (size,) for one of vectors. A
                matrix without numbers is written as one of 0 rows and 0 columns.

        Raises:
            TableError: the key is not a word, the value is no such array, or it cannot be written.
        """
        check_key(key)
        array = _numbers(key, value, self.num_axes)
        try:
            with LOG.capture():
                self._writer.write(key, np.ascontiguousarray(array))
        except FAILURES as error:
            self.close()  # it raises if a command has failed
            raise self._incomplete() from error

    def close(self) -> None:
        """Finishes the table.

        Raises:
            TableError: not everything could be written.
        """
        with LOG.capture() as held:
            complete = self._writer.finish()
        if re.search(r"Pipe .* had nonzero return status", held.text):
            command = self._specifier.target.removeprefix("|").strip()
            raise TableError(f"the command '{command}' failed")
        if not complete:
            raise self._incomplete()

    def _finish(self) -> None:
        """Closes the table, and gives a file its name.

        Raises:
            TableError: not everything could be written, or the file cannot be renamed.
        """
        self.close()
        if self._incomplete_path is not None:
            try:
                give_name(self._incomplete_path, self._specifier.target)
            except OSError as error:
                raise TableError(
                    f"cannot write '{self._specifier.target}': {error.strerror}; all is in "
                    f"'{self._incomplete_path}'"
                ) from error
        self._is_complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self._finish()
        else:
            with contextlib.suppress(TableError):
                self.close()


class MatrixWriter(TableWriter):
    """Writes a table of matrices."""

    writer_class = _MatrixWriter
    num_axes = 2


class VectorWriter(TableWriter):
    """Writes a table of vectors."""

    writer_class = _VectorWriter
    num_axes = 1


class MixedTableWriter:
    """Writes a table of matrices or of vectors; its first value says which. See `write_table`."""

    def __init__(self, wspecifier: str) -> None:
        Specifier.to_write(wspecifier)
        self._wspecifier = wspecifier
        self._writer: TableWriter | None = None
        self._ndim = 2

    def write(self, key: str, value: npt.ArrayLike) -> None:
        """Writes one entry, in single precision.

        Args:
            key: A word.
            value: (rows, cols) or (size,) numbers; all values of a table have the same number of
                axes. A matrix without numbers is written as one of 0 rows and 0 columns.

        Raises:
            TableError: the key is not a word, the value is no such array, or it cannot be written.
        """
        check_key(key)
        array = _numbers(key, value, *_WRITERS)
        if self._writer is None:
            self._ndim = array.ndim
            self._writer = _WRITERS[self._ndim](self._wspecifier)
        elif array.ndim != self._ndim:
            raise TableError(
                f"'{key}': expected {self._ndim} axes as of the values before, found {array.ndim}"
            )
        self._writer.write(key, array)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._writer is None and error is None:
            self._writer = MatrixWriter(self._wspecifier)
        if self._writer is not None:
            self._writer.__exit__(kind, error, traceback)


_WRITERS: dict[int, type[TableWriter]] = {1: VectorWriter, 2: MatrixWriter}


_KINDS = {1: "vector", 2: "matrix"}
"""The names of arrays, by the number of their axes."""


def _numbers(key: str, value: npt.ArrayLike, *num_axes: int) -> FloatArray:
    """A value as an array that can be written.

    Args:
        key: Its key.
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
            f"'{key}': expected a {wanted}, found a masked array; filled() makes one of it"
        )
    try:
        given = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise TableError(f"'{key}': expected a {wanted}: {error}") from error
    if given.dtype.kind not in "fiu" or given.ndim not in num_axes:
        raise TableError(
            f"'{key}': expected a {wanted} of real numbers, found {given.dtype} of shape "
            f"{given.shape}"
        )
    array: FloatArray = given
    if given.dtype != np.float32:
        with np.errstate(over="ignore"):
            array = given.astype(np.float32)
        if not np.array_equal(np.isfinite(array), np.isfinite(given)):
            raise TableError(f"'{key}' has a number that is too large for single precision")
    return array if array.size or array.ndim == 1 else array.reshape(0, 0)  # Kaldi has no other


def write_table(wspecifier: str) -> MixedTableWriter:
    """A table to write: a context manager with `write(key, value)`.

    The first value opens the table, and decides whether it holds matrices or vectors.
    (`MatrixWriter` and `VectorWriter` open it at once.) An archive in a file has its name when it
    is complete, and is `FILE.incomplete` until then.

    Args:
        wspecifier: `ark:FILE`, `ark,t:FILE`, `ark,scp:ARCHIVE,SCRIPT`, `ark:| COMMAND`, ...

    Raises:
        TableError: the name is not that of a table to write. `write`, or the end of the context,
            raises one for data that cannot be written.
    """
    return MixedTableWriter(wspecifier)
