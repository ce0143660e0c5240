"""Recordings of tables of WAV files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, TYPE_CHECKING

import nnet3_tables

if TYPE_CHECKING:
    from nnet3_speech import Recording


def recordings(rspecifier: str) -> Iterator[tuple[str, Callable[[], Recording]]]:
    """The key of each recording of a table, and a function that reads it.

    Raises:
        TableError: the table cannot be read.
    """
    for key, opened in nnet3_tables.read_files(rspecifier):
        yield key, partial(_read_wav, opened)


def _read_wav(opened: Callable[[], AbstractContextManager[IO[bytes]]]) -> Recording:
    from nnet3_speech import read_wav  # not for tables of features

    with opened() as file:
        return read_wav(file)
