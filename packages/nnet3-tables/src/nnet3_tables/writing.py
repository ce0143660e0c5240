"""Writing tables of matrices and vectors; every failure to write is an error."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import BinaryWriter, TextWriter

from nnet3_tables.archive import FloatArray
from nnet3_tables.errors import TableError
from nnet3_tables.output import TableOutput
from nnet3_tables.specifier import Specifier

_BINARY = b"\0B"


class TableWriter(TableOutput):
    """Writes a table of arrays in single precision.

    Attributes:
        ndim: The number of axes of its values.
    """

    ndim: ClassVar[int]

    def write(self, key: str, array: FloatArray) -> None:
        """Writes one entry.

        Args:
            key: A word.
            array: (rows, cols) or (size,). A matrix without numbers is written as one of 0 rows and
                0 columns.

        Raises:
            TableError: the key is no word, the array has another number of axes, or the entry
                cannot be written.
        """
        array = np.asarray(array, dtype=np.float32)
        if array.ndim != self.ndim:
            raise TableError(f"'{key}': expected {self.ndim} axes, found {array.ndim}")
        if not array.size and self.ndim > 1:
            array = array.reshape(0, 0)  # Kaldi has no other
        writer = TextWriter() if self.is_text else BinaryWriter()
        if writer.binary:
            writer.raw(_BINARY)
        if self.ndim == 1:
            writer.vector(array)
        else:
            writer.matrix(array)
        self.write_bytes(key, writer.chunks)


class MatrixWriter(TableWriter):
    """Writes a table of matrices."""

    ndim = 2


class VectorWriter(TableWriter):
    """Writes a table of vectors."""

    ndim = 1


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
            value: (rows, cols) or (size,) numbers; the axes of all values of a table are as many.
                A matrix without numbers is written as one of 0 rows and 0 columns.

        Raises:
            TableError: the key is no word, the value is no such array, or it cannot be written.
        """
        if not key or key.split() != [key]:
            raise TableError(f"expected a key without blanks, found {key!r}")
        array = _numbers(key, value)
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


def _numbers(key: str, value: npt.ArrayLike) -> FloatArray:
    """A value as an array that can be written.

    Raises:
        TableError: it is no such array, or a finite number is too large for single precision.
    """
    try:
        given = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise TableError(f"'{key}': expected a matrix or a vector: {error}") from error
    if given.dtype.kind not in "fiu" or given.ndim not in _WRITERS:
        raise TableError(
            f"'{key}': expected a matrix or a vector of real numbers, found {given.dtype} of "
            f"shape {given.shape}"
        )
    with np.errstate(over="ignore"):
        array = given.astype(np.float32)
    if not np.array_equal(np.isfinite(array), np.isfinite(given)):
        raise TableError(f"'{key}' has a number that is too large for single precision")
    return array


def write_table(wspecifier: str) -> MixedTableWriter:
    """A table to be written: a context manager with `write(key, value)`.

    The table is opened for the first value, which says whether it is one of matrices or of vectors
    (`MatrixWriter` and `VectorWriter` open it at once). An archive in a file has its name when it
    is complete, and is `FILE.incomplete` until then.

    Args:
        wspecifier: `ark:FILE`, `ark,t:FILE`, `ark,scp:ARCHIVE,SCRIPT`, `ark:| COMMAND`, ...

    Raises:
        TableError: it is no name of a table to write; what cannot be written is an error of
            `write`, or at the end.
    """
    return MixedTableWriter(wspecifier)
