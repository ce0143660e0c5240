"""Tables written, so that what could not be written is an error."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Any, Self

import kaldi_native_io as kaldi
import numpy as np

from ..arrays import FloatArray
from ..errors import TableError
from .native import FAILURES, LOG, Checked, message_of, reason_of
from .specifier import Specifier


class _MatrixWriter(Checked, kaldi.FloatMatrixWriter):  # type: ignore[misc]
    """Writes a table of matrices."""


class _VectorWriter(Checked, kaldi.FloatVectorWriter):  # type: ignore[misc]
    """Writes a table of vectors."""


class TableWriter:
    """Writes a table; use as a context manager, so that closing can report what went wrong.

    Attributes:
        is_prompt: Whether each entry is to be handed on at once (the option `f`).
    """

    writer_class: Any

    def __init__(self, wspecifier: str) -> None:
        self._specifier = Specifier.to_write(wspecifier)
        self.is_prompt = "f" in self._specifier.options
        if self._specifier.target == "-" and sys.stdout is None:
            raise TableError("cannot write '-': standard output is closed")
        with LOG.capture(enabled=not self._specifier.is_command):
            try:
                self._writer = self.writer_class(os.fsencode(wspecifier))
            except FAILURES as error:
                log = LOG.text
                text = f"{message_of(error)}\n{log}"
                found = re.search(r"errno \(in case it's relevant\) is: (.+)", text)
                reason = found[1].strip() if found else reason_of(error, log)
                raise TableError(f"cannot write '{self._specifier.target}': {reason}") from error

    def _incomplete(self) -> TableError:
        return TableError(
            f"cannot write '{self._specifier.target}': not everything could be written (is the "
            "disk full, or has the reader gone?)"
        )

    def write(self, key: str, array: FloatArray) -> None:
        """Writes one entry.

        Raises:
            TableError: it cannot be written.
        """
        try:
            with LOG.capture():
                self._writer.write(key, np.ascontiguousarray(array, dtype=np.float32))
        except FAILURES as error:
            self.close()  # which knows whether a command has failed
            raise self._incomplete() from error

    def close(self) -> None:
        """Finishes the table.

        Raises:
            TableError: not everything could be written.
        """
        with LOG.capture():
            complete = self._writer.finish()
        if re.search(r"Pipe .* had nonzero return status", LOG.text):
            command = self._specifier.target.removeprefix("|").strip()
            raise TableError(f"the command '{command}' failed")
        if not complete:
            raise self._incomplete()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(TableError):
                self.close()


class MatrixWriter(TableWriter):
    """Writes a table of matrices."""

    writer_class = _MatrixWriter


class VectorWriter(TableWriter):
    """Writes a table of vectors."""

    writer_class = _VectorWriter
