"""Tables read in their order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import kaldi_native_io as kaldi
import numpy as np
from kaldi_native_io import table_types

from ..arrays import FloatArray
from ..errors import TableError
from .command import without_command
from .native import LOG, CheckedReader, place_in, reason_of
from .script import ScriptEntry, read_script
from .specifier import Specifier


class _MatrixReader(CheckedReader, kaldi.SequentialFloatMatrixReader):  # type: ignore[misc]
    """Reads an archive of matrices."""

    implementation = table_types._SequentialFloatMatrixReader


class _TokenReader(CheckedReader, kaldi.SequentialTokenReader):  # type: ignore[misc]
    """Reads a table of words."""

    implementation = table_types._SequentialTokenReader


def read_matrices(rspecifier: str) -> Iterator[tuple[str, Callable[[], FloatArray]]]:
    """The matrices of a table, in order: for each its key and a function that reads it.

    The function is to be called before the next matrix is asked for.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, `scp,p:FILE`, ...

    Raises:
        TableError: the table cannot be opened, or its archive is damaged or breaks off. (A single
            matrix of a script file that cannot be read raises from its function instead, or is left
            out if the option `p` is given.)
    """
    specifier = Specifier.parse(rspecifier)
    if not specifier.is_script:
        yield from _read_archive(specifier)
    elif not specifier.is_permissive:
        for entry in read_script(specifier):
            yield entry.key, entry.matrix
    else:
        yield from _readable(read_script(specifier))


def _readable(
    entries: Iterator[ScriptEntry],
) -> Iterator[tuple[str, Callable[[], FloatArray]]]:
    """Those entries that can be read."""
    for entry in entries:
        with contextlib.suppress(TableError):
            matrix = entry.matrix()
            yield entry.key, partial(np.asarray, matrix)


def _read_archive(specifier: Specifier) -> Iterator[tuple[str, Callable[[], FloatArray]]]:
    path = specifier.target
    with without_command(specifier) as text:
        with LOG.capture():
            try:
                reader = _MatrixReader(text)
            except RuntimeError as error:
                raise TableError(
                    f"cannot read archive '{path}'{place_in(LOG.text)}: "
                    f"{reason_of(error, LOG.text)}"
                ) from error
        previous, log = None, ""
        try:
            while not reader.done:
                previous = _key(reader, path, previous)
                yield previous, lambda: np.array(reader.value)
                with LOG.capture():
                    reader.next()
                log = LOG.text
        finally:
            # The library reports an archive that ended too soon only here, and to the log.
            with LOG.capture():
                complete = reader.finish()
    if not complete:
        after = f"after '{previous}'" if previous else "at its beginning"
        raise TableError(f"archive '{path}' is damaged or breaks off {after}{place_in(log)}")


def _key(reader: _MatrixReader, path: str, previous: str | None) -> str:
    """The key of the matrix that comes next.

    Raises:
        TableError: it is not text.
    """
    try:
        return str(reader.key)
    except UnicodeDecodeError as error:
        after = f"after '{previous}'" if previous else "of the first matrix"
        raise TableError(f"archive '{path}': the key {after} is not UTF-8") from error


def read_tokens(rspecifier: str) -> Mapping[str, str]:
    """A table of words, such as utt2spk, as a mapping.

    Raises:
        TableError: it cannot be read.
    """
    specifier = Specifier.parse(rspecifier)
    path = specifier.target
    with without_command(specifier) as text, LOG.capture():
        try:
            reader = _TokenReader(text)
            tokens = dict(iter(reader))
            complete = reader.finish()
        except UnicodeDecodeError as error:
            raise TableError(f"table '{path}' is not UTF-8") from error
        except RuntimeError as error:
            raise TableError(f"cannot read '{path}': {reason_of(error, LOG.text)}") from error
    if not complete:
        raise TableError(f"table '{path}' is damaged or breaks off after {len(tokens)} entries")
    return tokens
