"""Recordings of tables of WAV files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import IO

import nnet3_speech
import nnet3_tables


def recordings(
    rspecifier: str,
) -> Iterator[tuple[str, Callable[[], nnet3_speech.Recording]]]:
    """The key of each recording of a table, and a function that reads it.

    Raises:
        TableError: the table cannot be read.
    """
    for key, opened in nnet3_tables.read_files(rspecifier):
        yield key, partial(_read_wav, opened)


def _read_wav(opened: Callable[[], AbstractContextManager[IO[bytes]]]) -> nnet3_speech.Recording:
    with opened() as file:
        return nnet3_speech.read_wav(file)
