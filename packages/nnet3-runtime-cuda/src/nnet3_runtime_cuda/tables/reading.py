"""Tables read in their order."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from ..arrays import FloatArray
from ..errors import TableError
from .archive import MATRIX, read_archive
from .script import read_script
from .sources import lines, opened
from .specifier import Specifier

Entries = Iterator[tuple[str, Callable[[], FloatArray]]]
"""For each matrix its key, and a function that gives it."""


def read_matrices(rspecifier: str) -> Entries:
    """The matrices of a table, in order: for each its key and a function that gives it.

    Args:
        rspecifier: `ark:FILE`, `scp:FILE`, `ark:COMMAND |`, `scp,p:FILE`, ...

    Raises:
        TableError: the table cannot be opened, or its archive is damaged or breaks off. (A single
            matrix that cannot be read otherwise raises from its function instead.) With the option
            `p`, what cannot be read is left out.
    """
    specifier = Specifier.to_read(rspecifier)
    entries = _script(specifier) if specifier.is_script else _archive(specifier)
    return _readable(entries) if specifier.is_permissive else entries


def _script(specifier: Specifier) -> Entries:
    for entry in read_script(specifier):
        yield entry.key, partial(entry.read, MATRIX)


def _archive(specifier: Specifier) -> Entries:
    with opened(specifier) as stream:
        yield from read_archive(stream, specifier.target)


def _readable(entries: Entries) -> Entries:
    """Those entries that can be read, up to where the table is damaged."""
    first = next(entries, None)  # what cannot be opened is an error all the same
    if first is None:
        return
    with contextlib.suppress(TableError):
        for key, read in itertools.chain([first], entries):
            with contextlib.suppress(TableError):
                matrix = read()
                yield key, partial(np.asarray, matrix)


def read_tokens(rspecifier: str) -> Mapping[str, str]:
    """A table of words, such as utt2spk, as a mapping.

    Raises:
        TableError: it cannot be read, or a line has not two words.
    """
    tokens: dict[str, str] = {}
    for place, line in lines(Specifier.to_read(rspecifier)):
        words = line.split()
        if len(words) != 2:
            raise TableError(f"{place}: expected two words, found {len(words)}")
        tokens[words[0]] = words[1]
    return tokens
