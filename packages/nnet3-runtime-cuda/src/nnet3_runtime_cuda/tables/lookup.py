"""Tables read by key."""

from __future__ import annotations

import os
from typing import Any

import kaldi_native_io as kaldi
import numpy as np

from ..arrays import FloatArray
from ..errors import TableError
from .library import LOG, Checked, reason_of
from .script import ScriptEntry, read_script
from .specifier import Specifier


class _MatrixLookup(Checked, kaldi.RandomAccessFloatMatrixReader):  # type: ignore[misc]
    """Finds matrices in an archive."""


class _VectorLookup(Checked, kaldi.RandomAccessFloatVectorReader):  # type: ignore[misc]
    """Finds vectors in an archive."""


class _Lookup:
    """Values of a table by key."""

    reader_class: Any
    script_method: str

    def __init__(self, rspecifier: str) -> None:
        self._specifier = Specifier.parse(rspecifier)
        self._script: dict[str, ScriptEntry] | None = None
        self._reader: Any = None
        if self._specifier.is_script:
            self._script = {entry.key: entry for entry in read_script(self._specifier)}
            return
        path = self._specifier.target
        if not self._specifier.is_pipe and path != "-" and not os.path.exists(path):
            raise TableError(f"cannot read '{path}': there is no such file")
        with LOG.capture(enabled=not self._specifier.is_pipe):
            try:
                self._reader = self.reader_class(rspecifier)
            except RuntimeError as error:
                raise TableError(
                    f"cannot read archive '{path}': {reason_of(error, LOG.text)}"
                ) from error

    def get(self, key: str) -> FloatArray | None:
        """The value of a key; None if there is none.

        Raises:
            TableError: the value cannot be read.
        """
        if self._script is not None:
            entry = self._script.get(key)
            return None if entry is None else getattr(entry, self.script_method)()
        with LOG.capture():
            try:
                return np.array(self._reader[key]) if key in self._reader else None
            except RuntimeError as error:
                raise TableError(
                    f"archive '{self._specifier.target}', key '{key}': {reason_of(error, LOG.text)}"
                ) from error


class MatrixLookup(_Lookup):
    """Matrices of a table by key."""

    reader_class = _MatrixLookup
    script_method = "matrix"


class VectorLookup(_Lookup):
    """Vectors of a table by key."""

    reader_class = _VectorLookup
    script_method = "vector"
