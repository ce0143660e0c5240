"""Script files, read line by line, because a line of data must not be able to run a command."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import attrs
import kaldi_native_io as kaldi
import numpy as np

from ..arrays import FloatArray
from ..errors import TableError
from .library import LOG, reason_of
from .specifier import Specifier

_RANGE = re.compile(r"^(?P<file>.*)\[(?P<rows>\d*:?\d*)(,(?P<columns>\d*:?\d*))?\]$")


@attrs.frozen
class ScriptEntry:
    """A line of a script file: where the value of a key lies.

    Attributes:
        key: The key.
        location: File, perhaps with a byte offset and a range of rows and columns.
        place: File and line of the entry, for messages.
    """

    key: str
    location: str
    place: str

    def matrix(self) -> FloatArray:
        """Reads the value as a matrix.

        Raises:
            TableError: it cannot be read.
        """
        matched = _RANGE.match(self.location)
        file = matched["file"] if matched else self.location
        array = self._read(kaldi.FloatMatrix, file)
        if not matched:
            return array
        return array[_slice(matched["rows"], self), _slice(matched["columns"], self)]

    def vector(self) -> FloatArray:
        """Reads the value as a vector.

        Raises:
            TableError: it cannot be read.
        """
        return self._read(kaldi.FloatVector, self.location)

    def _read(self, kind: Any, file: str) -> FloatArray:
        if file.endswith("|"):
            raise TableError(
                f"{self.place}: '{self.key}' is a command, and data does not run commands; write "
                "the command in the table's own name instead (ark:command |)"
            )
        with LOG.capture():
            try:
                return np.array(kind.read(file).numpy(), dtype=np.float32)
            except RuntimeError as error:
                path = re.sub(r":\d+$", "", file)
                what = (
                    "there is no such file"
                    if not os.path.exists(path)
                    else (reason_of(error, LOG.text))
                )
                raise TableError(f"{self.place}: '{self.key}' at {file}: {what}") from error


def _slice(text: str | None, entry: ScriptEntry) -> slice:
    """The slice for `first:last`, last included, as Kaldi writes ranges."""
    if not text or text == ":":
        return slice(None)
    first, colon, last = text.partition(":")
    if not (colon and first and last):
        raise TableError(f"{entry.place}: expected a range 'first:last', found '{text}'")
    return slice(int(first), int(last) + 1)


def read_script(specifier: Specifier) -> Iterator[ScriptEntry]:
    """The entries of a script file, in order.

    Raises:
        TableError: the file cannot be read, or a line has no location.
    """
    path = specifier.target
    if specifier.is_pipe:
        raise TableError(f"'{specifier.text}': a script file cannot come from a command")
    try:
        with contextlib.ExitStack() as stack:
            file = sys.stdin if path == "-" else stack.enter_context(open(path, encoding="utf-8"))
            for number, line in enumerate(file, 1):
                words = line.strip().split(maxsplit=1)
                place = f"{path}, line {number}"
                if len(words) == 2:
                    yield ScriptEntry(words[0], words[1], place)
                elif words:
                    raise TableError(f"{place}: expected a key and a file, found '{words[0]}'")
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"cannot read '{path}': {_os_reason(error)}") from error


def _os_reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not text"
