"""Recordings in place of features: a table of WAV files, for a model from its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, TYPE_CHECKING, BinaryIO, cast

import click
import nnet3_runtime_cuda
import nnet3_tables
from nnet3_descriptors import Nnet3Error

if TYPE_CHECKING:
    from nnet3 import Model
    from nnet3_tables import FloatArray

_MARKS = (b"RIFF", b"RIFX")

Samples = tuple["FloatArray", float]
"""Samples (n,) in the units of 16-bit integers, and their rate."""

_Opened = Callable[[], AbstractContextManager[IO[bytes]]]


def has_recordings(features: str) -> bool:
    """Whether a table is a script file whose first file that can be opened is a WAV file.

    Raises:
        TableError: the script file cannot be read.
    """
    specifier = nnet3_tables.Specifier.to_read(features)
    if not specifier.is_script or not specifier.files:
        return False
    for _, opened in nnet3_tables.read_files(features):
        try:
            with opened() as file:
                return file.read(4) in _MARKS
        except Nnet3Error:
            continue  # the reader of the table will report it
    return False


class Recordings:
    """The recordings of a table, as features and i-vectors.

    Attributes:
        ivector_period: Frames between two rows of the i-vectors; 0 if the model takes none.
    """

    def __init__(self, table: str, model: Model) -> None:
        """Looks for what the recordings need.

        Args:
            table: A script file of WAV files.
            model: The model.

        Raises:
            RunError, SpeechError: the model has no folder, or this lacks a file.
        """
        self._table = table
        self._model = model
        self._ivectors: FloatArray | None = None
        self.ivector_period = model.feature_pipeline().ivector_period

    def takes_ivectors(self, is_given: bool) -> bool:
        """Whether the model takes i-vectors, which are computed.

        Raises:
            click.UsageError: a table of i-vectors is given.
        """
        if is_given:
            raise click.UsageError("the i-vectors of WAV files are computed; expected no table")
        return self._model.ivector_dim > 0

    def __iter__(self) -> Iterator[tuple[str, Callable[[], FloatArray]]]:
        """The key of each recording, and a function that computes its features (frames, dim)."""
        for key, opened in nnet3_tables.read_files(self._table):
            yield key, partial(self._features, opened)

    def samples(self) -> Iterator[tuple[str, Callable[[], Samples]]]:
        """The key of each recording, and a function that reads its samples."""
        for key, opened in nnet3_tables.read_files(self._table):
            yield key, partial(_samples, opened)

    def _features(self, opened: _Opened) -> FloatArray:
        found = self._model.features(_samples(opened))
        self._ivectors = found.online_ivectors
        return found.features

    def of(self, utterance: str) -> tuple[FloatArray | None, FloatArray | None]:
        """The i-vectors of the recording whose features were computed last; see `IvectorSource`."""
        return None, self._ivectors


def _samples(opened: _Opened) -> Samples:
    """Reads a recording.

    Raises:
        RunError, SpeechError: it has several channels, or cannot be read.
    """
    import nnet3_speech

    with opened() as file:
        recording = nnet3_speech.read_wav(cast(BinaryIO, file))
    if len(recording.samples) != 1:
        raise nnet3_runtime_cuda.RunError(
            f"expected a recording of one channel, found {len(recording.samples)}"
        )
    return recording.samples[0], recording.rate
