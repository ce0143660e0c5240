"""Tables read in their order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

import kaldi_native_io as kaldi
import numpy as np

from ..arrays import FloatArray
from ..errors import TableError
from .library import LOG, Checked, place_in, reason_of
from .script import read_script
from .specifier import Specifier


class _MatrixReader(Checked, kaldi.SequentialFloatMatrixReader):  # type: ignore[misc]
    """Reads an archive of matrices."""


class _TokenReader(Checked, kaldi.SequentialTokenReader):  # type: ignore[misc]
    """Reads a table of words."""


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
    with LOG.capture(enabled=not specifier.is_pipe):
        try:
            reader = _MatrixReader(specifier.text)
        except RuntimeError as error:
            raise TableError(
                f"cannot read archive '{path}'{place_in(LOG.text)}: {reason_of(error, LOG.text)}"
            ) from error
    previous = None
    try:
        while not reader.done:
            previous = reader.key
            yield previous, lambda: np.array(reader.value)
            with LOG.capture():
                reader.next()
            text = LOG.text
    finally:
        # The library reports an archive that ended too soon only here, and to the log.
        with LOG.capture():
            complete = reader.finish()
    if not complete:
        after = f"after '{previous}'" if previous else "at its beginning"
        place = place_in(text) if previous else ""
        raise TableError(f"archive '{path}' is damaged or breaks off {after}{place}")


def read_tokens(rspecifier: str) -> Mapping[str, str]:
    """A table of words, such as utt2spk, as a mapping.

    Raises:
        TableError: it cannot be read.
    """
    specifier = Specifier.parse(rspecifier)
    path = specifier.target
    if not specifier.is_pipe and path != "-" and not os.path.exists(path):
        raise TableError(f"cannot read '{path}': there is no such file")
    with LOG.capture(enabled=not specifier.is_pipe):
        try:
            reader = _TokenReader(rspecifier)
            tokens = dict(iter(reader))
            complete = reader.finish()
        except RuntimeError as error:
            raise TableError(f"cannot read '{path}': {reason_of(error, LOG.text)}") from error
    if not complete:
        raise TableError(f"table '{path}' is damaged or breaks off after {len(tokens)} entries")
    return tokens
