"""Kaldi's tables: archives and script files, read and written with clear errors.

The formats are kaldi_native_io's. What is added here: every failure becomes a TableError, also
those that the library only logs (an archive that breaks off, a disk that is full); and a script
file is read here line by line, because a line of data must not be able to run a command.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import attrs
import kaldi_native_io as kaldi
import numpy as np
import numpy.typing as npt

from .errors import TableError

FloatArray = npt.NDArray[np.float32]
_RANGE = re.compile(r"^(?P<file>.*)\[(?P<rows>\d*:?\d*)(,(?P<columns>\d*:?\d*))?\]$")


@attrs.frozen
class Specifier:
    """A parsed rspecifier or wspecifier.

    Attributes:
        text: As the user wrote it.
        kinds: "ark", "scp" or both.
        options: Letters such as "t", "s", "p".
        target: What stands behind the colon.
    """

    text: str
    kinds: frozenset[str]
    options: frozenset[str]
    target: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `ark,t:file`, `scp:file`, `ark:command |` and the like.

        Raises:
            TableError: there is no "ark" or "scp" before a colon.
        """
        words, colon, target = text.partition(":")
        parts = words.strip().split(",")
        kinds = frozenset(parts) & {"ark", "scp"}
        if not colon or not kinds or not target.strip():
            raise TableError(f"'{text}' is no table; expected 'ark:FILE', 'scp:FILE' or the like")
        return cls(text, kinds, frozenset(parts) - kinds, target.strip())

    @property
    def is_script(self) -> bool:
        """Whether it names a script file only."""
        return self.kinds == {"scp"}

    @property
    def is_pipe(self) -> bool:
        """Whether its target is a command."""
        return self.target.endswith("|") or self.target.startswith("|")


# ---- what the library logs ----


class _Log:
    """What the library writes to standard error, held in a file instead of being shown."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the program

    @contextlib.contextmanager
    def capture(self, *, enabled: bool = True) -> Iterator[None]:
        """Holds what is written within; forgets what was held before.

        Where a command is started it must not be enabled: the command would inherit the file.
        """
        self._file.seek(0)
        self._file.truncate()
        if not enabled:
            yield
            return
        sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(self._file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)

    @property
    def text(self) -> str:
        """What was held last."""
        self._file.seek(0)
        return self._file.read().decode(errors="replace")


_LOG = _Log()


def _place(log: str) -> str:
    """The byte offset that the library's log names, if it does."""
    found = re.search(r"File position at start is (\d+)", log)
    return f", byte {found[1]}" if found else ""


def _reason(error: BaseException, log: str) -> str:
    """The library's own words, without its source positions: the last message of the log."""
    lines = [line.strip() for line in f"{log}\n{error}".splitlines()]
    messages = [line[4:] for line in lines if line.startswith(("[E] ", "[W] "))]
    return messages[-1] if messages else str(error).strip() or type(error).__name__


# ---- the library's readers and writers ----


class _Checked:
    """Adds to the library's classes: whether closing went well; and deleting what never opened."""

    _impl: Any

    def finish(self) -> bool:
        """Closes, and returns whether everything was read or written."""
        return not self._impl.is_open or bool(self._impl.close())

    def __del__(self) -> None:
        if self._impl is not None:
            self.finish()


class _MatrixReader(_Checked, kaldi.SequentialFloatMatrixReader):  # type: ignore[misc]
    """Reads an archive of matrices."""


class _TokenReader(_Checked, kaldi.SequentialTokenReader):  # type: ignore[misc]
    """Reads a table of words."""


class _MatrixLookup(_Checked, kaldi.RandomAccessFloatMatrixReader):  # type: ignore[misc]
    """Finds matrices in an archive."""


class _VectorLookup(_Checked, kaldi.RandomAccessFloatVectorReader):  # type: ignore[misc]
    """Finds vectors in an archive."""


class _MatrixWriter(_Checked, kaldi.FloatMatrixWriter):  # type: ignore[misc]
    """Writes a table of matrices."""


class _VectorWriter(_Checked, kaldi.FloatVectorWriter):  # type: ignore[misc]
    """Writes a table of vectors."""


# ---- script files ----


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
        with _LOG.capture():
            try:
                return np.array(kind.read(file).numpy(), dtype=np.float32)
            except RuntimeError as error:
                path = re.sub(r":\d+$", "", file)
                what = (
                    "there is no such file"
                    if not os.path.exists(path)
                    else (_reason(error, _LOG.text))
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


# ---- reading in order ----


def read_matrices(rspecifier: str) -> Iterator[tuple[str, Callable[[], FloatArray]]]:
    """The matrices of a table, in order: for each its key and a function that reads it.

    The function is to be called before the next matrix is asked for.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, ...

    Raises:
        TableError: the table cannot be opened, or its archive is damaged or breaks off. (A single
            matrix of a script file that cannot be read raises from its function instead.)
    """
    specifier = Specifier.parse(rspecifier)
    if specifier.is_script:
        for entry in read_script(specifier):
            yield entry.key, entry.matrix
    else:
        yield from _read_archive(specifier)


def _read_archive(specifier: Specifier) -> Iterator[tuple[str, Callable[[], FloatArray]]]:
    path = specifier.target
    if not specifier.is_pipe and path != "-" and not os.path.exists(path):
        raise TableError(f"cannot read '{path}': there is no such file")
    with _LOG.capture(enabled=not specifier.is_pipe):
        try:
            reader = _MatrixReader(specifier.text)
        except RuntimeError as error:
            raise TableError(
                f"cannot read archive '{path}'{_place(_LOG.text)}: {_reason(error, _LOG.text)}"
            ) from error
    previous = None
    try:
        while not reader.done:
            previous = reader.key
            yield previous, lambda: np.array(reader.value)
            with _LOG.capture():
                reader.next()
            text = _LOG.text
    finally:
        # The library reports an archive that ended too soon only here, and to the log.
        with _LOG.capture():
            complete = reader.finish()
    if not complete:
        after = f"after '{previous}'" if previous else "at its beginning"
        place = _place(text) if previous else ""
        raise TableError(f"archive '{path}' is damaged or breaks off {after}{place}")


# ---- reading by key ----


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
        with _LOG.capture(enabled=not self._specifier.is_pipe):
            try:
                self._reader = self.reader_class(rspecifier)
            except RuntimeError as error:
                raise TableError(
                    f"cannot read archive '{path}': {_reason(error, _LOG.text)}"
                ) from error

    def get(self, key: str) -> FloatArray | None:
        """The value of a key; None if there is none.

        Raises:
            TableError: the value cannot be read.
        """
        if self._script is not None:
            entry = self._script.get(key)
            return None if entry is None else getattr(entry, self.script_method)()
        with _LOG.capture():
            try:
                return np.array(self._reader[key]) if key in self._reader else None
            except RuntimeError as error:
                raise TableError(
                    f"archive '{self._specifier.target}', key '{key}': {_reason(error, _LOG.text)}"
                ) from error


class MatrixLookup(_Lookup):
    """Matrices of a table by key."""

    reader_class = _MatrixLookup
    script_method = "matrix"


class VectorLookup(_Lookup):
    """Vectors of a table by key."""

    reader_class = _VectorLookup
    script_method = "vector"


def read_tokens(rspecifier: str) -> Mapping[str, str]:
    """A table of words, such as utt2spk, as a mapping.

    Raises:
        TableError: it cannot be read.
    """
    specifier = Specifier.parse(rspecifier)
    path = specifier.target
    if not specifier.is_pipe and path != "-" and not os.path.exists(path):
        raise TableError(f"cannot read '{path}': there is no such file")
    with _LOG.capture(enabled=not specifier.is_pipe):
        try:
            reader = _TokenReader(rspecifier)
            tokens = dict(iter(reader))
            complete = reader.finish()
        except RuntimeError as error:
            raise TableError(f"cannot read '{path}': {_reason(error, _LOG.text)}") from error
    if not complete:
        raise TableError(f"table '{path}' is damaged or breaks off after {len(tokens)} entries")
    return tokens


# ---- writing ----


class TableWriter:
    """Writes a table; use as a context manager, so that closing can report what went wrong."""

    writer_class: Any

    def __init__(self, wspecifier: str) -> None:
        self._specifier = Specifier.parse(wspecifier)
        with _LOG.capture(enabled=not self._specifier.is_pipe):
            try:
                self._writer = self.writer_class(wspecifier)
            except RuntimeError as error:
                raise self._error(error, _LOG.text) from error

    def _error(self, error: BaseException, log: str) -> TableError:
        found = re.search(r"errno \(in case it's relevant\) is: (.+)", f"{error}\n{log}")
        reason = found[1].strip() if found else _reason(error, log)
        return TableError(f"cannot write '{self._specifier.target}': {reason}")

    def write(self, key: str, array: FloatArray) -> None:
        """Writes one entry.

        Raises:
            TableError: it cannot be written.
        """
        with _LOG.capture():
            try:
                self._writer.write(key, np.ascontiguousarray(array, dtype=np.float32))
            except RuntimeError as error:
                raise self._error(error, _LOG.text) from error

    def close(self) -> None:
        """Finishes the table.

        Raises:
            TableError: not everything could be written.
        """
        with _LOG.capture():
            complete = self._writer.finish()
        failed = re.search(r"Pipe (.*) had nonzero return status", _LOG.text)
        if failed:
            raise TableError(f"the command '{failed[1].strip()}' failed")
        if not complete:
            raise TableError(
                f"cannot write '{self._specifier.target}': not everything could be written"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
