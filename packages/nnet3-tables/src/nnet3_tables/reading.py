"""Tables read in their order."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from nnet3_tables.archive import MATRIX, MATRIX_OR_VECTOR, FloatArray, Kind, read_archive
from nnet3_tables.errors import TableError
from nnet3_tables.script import read_script
from nnet3_tables.sources import lines, opened
from nnet3_tables.specifier import Specifier

Entries = Iterator[tuple[str, Callable[[], FloatArray]]]
"""For each value its key, and a function that returns the value."""


def read_table(rspecifier: str) -> Iterator[tuple[str, FloatArray]]:
    """The entries of a table of matrices or vectors, in order: for each its key and its value.

    A value is a float32 array, (rows, cols) or (size,), that belongs to the caller: reading the
    next value does not change it, and the caller may write to it. In text, a value whose numbers
    begin on the line of its bracket is a vector, as Kaldi writes one; `[ ]` is an empty matrix.
    When the iterator is exhausted, closed or deleted, reading ends, and so does the command of the
    table.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, `scp,p:FILE`, ...

    Raises:
        TableError: the table cannot be opened, is damaged, or has a value that cannot be read. With
            the option `p`, what cannot be read is left out.
    """
    entries = _entries(rspecifier, MATRIX_OR_VECTOR)
    return ((key, np.array(read())) for key, read in entries)


def read_matrices(rspecifier: str, passed: Callable[[int], object] | None = None) -> Entries:
    """The matrices of a table, in order: for each its key and a function that gives it.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, `scp,p:FILE`, ...
        passed: Called before each matrix of an archive is given, with the bytes up to its end;
            `archive_size` has those of all. Not called for script files.

    Raises:
        TableError: the table cannot be opened, or its archive is damaged or breaks off. (A single
            matrix that cannot be read otherwise raises from its function instead.) With the option
            `p`, what cannot be read is left out.
    """
    return _entries(rspecifier, MATRIX, passed)


def _entries(rspecifier: str, kind: Kind, passed: Callable[[int], object] | None = None) -> Entries:
    specifier = Specifier.to_read(rspecifier)
    is_script = specifier.is_script
    entries = _script(specifier, kind) if is_script else _archive(specifier, kind, passed)
    return _readable(entries) if specifier.is_permissive else entries


def _script(specifier: Specifier, kind: Kind) -> Entries:
    for entry in read_script(specifier):
        yield entry.key, partial(entry.read, kind)


def _archive(specifier: Specifier, kind: Kind, passed: Callable[[int], object] | None) -> Entries:
    with opened(specifier) as stream:
        yield from read_archive(stream, specifier.target, kind, passed)


def _readable(entries: Entries) -> Entries:
    """The entries that can be read, up to the damage in the table."""
    first = next(entries, None)  # a table that cannot be opened is always an error
    if first is None:
        return
    with contextlib.suppress(TableError):
        for key, read in itertools.chain([first], entries):
            with contextlib.suppress(TableError):
                value = read()
                yield key, partial(np.asarray, value)


def read_tokens(rspecifier: str) -> Mapping[str, str]:
    """A table of words, such as utt2spk, as a mapping.

    Raises:
        TableError: it cannot be read, a line has not two words, or a key comes twice.
    """
    tokens: dict[str, str] = {}
    for place, line in lines(Specifier.to_read(rspecifier)):
        words = line.split()
        if len(words) != 2:
            raise TableError(f"{place}: expected two words, found {len(words)}")
        if words[0] in tokens:
            raise TableError(f"{place}: the key '{words[0]}' comes twice")
        tokens[words[0]] = words[1]
    return tokens
