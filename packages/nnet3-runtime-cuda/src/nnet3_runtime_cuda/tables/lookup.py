"""Tables read by key."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Self

import kaldi_native_io as kaldi
import numpy as np
from kaldi_native_io import table_types

from ..arrays import FloatArray
from ..errors import TableError
from .native import FAILURES, LOG, CheckedReader, reason_of
from .script import ScriptEntry, read_script
from .sources import output_of
from .specifier import Specifier

_FAILED = "Object read failed"
"""What the library's log says of an archive whose entry it cannot read."""


class _MatrixReader(CheckedReader, kaldi.RandomAccessFloatMatrixReader):  # type: ignore[misc]
    """Finds matrices in an archive."""

    implementation = table_types._RandomAccessFloatMatrixReader


class _VectorReader(CheckedReader, kaldi.RandomAccessFloatVectorReader):  # type: ignore[misc]
    """Finds vectors in an archive."""

    implementation = table_types._RandomAccessFloatVectorReader


class _Lookup:
    """Values of a table by key; use as a context manager, so that a command is waited for."""

    reader_class: Any
    script_method: str

    def __init__(self, rspecifier: str) -> None:
        self._specifier = Specifier.to_read(rspecifier)
        self._script: dict[str, ScriptEntry] | None = None
        self._reader: Any = None
        self._damage = ""
        self._command = contextlib.ExitStack()
        if self._specifier.is_script:
            self._script = {entry.key: entry for entry in read_script(self._specifier)}
            return
        self._specifier.check_exists()
        text = self._specifier.text
        if self._specifier.is_command:
            # Not started by the library, which would hold back what it says on standard error.
            stream = self._command.enter_context(output_of(self._specifier))
            text = self._specifier.with_target(f"/dev/fd/{stream.fileno()}")
        with LOG.capture():
            try:
                self._reader = self.reader_class(os.fsencode(text))
            except FAILURES as error:
                raise self._error(reason_of(error, LOG.text)) from error

    def _error(self, reason: str) -> TableError:
        return TableError(f"cannot read archive '{self._specifier.target}': {reason}")

    def get(self, key: str) -> FloatArray | None:
        """The value of a key; None if there is none.

        Raises:
            TableError: the value cannot be read.
        """
        if self._script is not None:
            return self._from_script(self._script.get(key))
        with LOG.capture():
            try:
                if key in self._reader:
                    return np.array(self._reader[key])
            except FAILURES as error:
                raise self._error(f"key '{key}': {reason_of(error, LOG.text)}") from error
        if _FAILED in LOG.text:
            self._damage = reason_of(RuntimeError(_FAILED), LOG.text)
        if self._damage and not self._specifier.is_permissive:
            raise self._error(self._damage)
        return None

    def _from_script(self, entry: ScriptEntry | None) -> FloatArray | None:
        if entry is None:
            return None
        try:
            value: FloatArray = getattr(entry, self.script_method)()
        except TableError:
            if self._specifier.is_permissive:
                return None
            raise
        return value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        """Closes the table; raises a TableError if a command failed."""
        if self._reader is not None:
            with LOG.capture():
                self._reader.finish()
        self._command.__exit__(*raised)


class MatrixLookup(_Lookup):
    """Matrices of a table by key."""

    reader_class = _MatrixReader
    script_method = "matrix"


class VectorLookup(_Lookup):
    """Vectors of a table by key."""

    reader_class = _VectorReader
    script_method = "vector"
