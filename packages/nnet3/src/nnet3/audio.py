"""Recordings in place of features: files and samples, whole or as they come.

nnet3-speech computes what the network reads; it is imported when a recording comes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import FloatArray

if TYPE_CHECKING:
    from nnet3_speech import FeaturePipeline, Features, ModelFolder, PipelineStream

    from nnet3.streams import Stream

Recording: TypeAlias = "str | os.PathLike[str] | tuple[npt.ArrayLike, float]"
"""A path of a WAV file of one channel, or samples in 16-bit units (n,) and their rate."""


def is_recording(value: object) -> TypeGuard[Recording]:
    """Whether a value is a recording, and not features."""
    if isinstance(value, tuple):
        return len(value) == 2 and isinstance(value[1], int | float | np.number)
    return isinstance(value, str | os.PathLike)


def pipeline_of(folder: ModelFolder | None, input_dim: int, ivector_dim: int) -> FeaturePipeline:
    """What computes the features of a model's recordings.

    Args:
        folder: The folder of the model, if it has one.
        input_dim: Columns of the network's node 'input'.
        ivector_dim: Columns of its node 'ivector'; 0 if it has none.

    Raises:
        RunError: the model came without its folder; or the folder gives other dimensions than the
            network reads.
        SpeechError: a file of the folder is missing, or cannot be used.
    """
    if folder is None:
        raise RunError(
            "features for node 'input': expected numbers, found a recording, which only a model "
            "takes that was loaded from its folder"
        )
    from nnet3_speech import FeaturePipeline

    pipeline = FeaturePipeline.of(folder)
    if pipeline.dim != input_dim:
        raise RunError(
            f"{folder.path}: the features have {pipeline.dim} columns, but node 'input' of "
            f"{folder.network.name} takes {input_dim}"
        )
    return pipeline


def features_of(pipeline: FeaturePipeline, recording: Any) -> Features:
    """What the network reads of a whole recording.

    Raises:
        SpeechError: it cannot be read; it has several channels; or its rate is another one, which
            the options do not allow.
    """
    if isinstance(recording, tuple):
        samples, rate = recording
        return pipeline.compute(samples, rate)
    from nnet3_speech import read_wav

    found = read_wav(recording)
    if len(found.samples) != 1:
        raise RunError(
            f"{os.fspath(recording)}: expected one channel, found {len(found.samples)}; give the "
            "samples of one of them, and the rate"
        )
    return pipeline.compute(found.samples[0], found.rate)


class AudioStream:
    """Outputs of a network for samples that come bit by bit; `Model.audio_stream` makes one.

    However the samples are cut, the outputs are the same.

    Attributes:
        stream: The stream of frames that computes the outputs.
    """

    def __init__(self, source: PipelineStream, stream: Stream) -> None:
        """Begins a recording.

        Args:
            source: Computes what the network reads.
            stream: Computes the outputs.
        """
        self.stream = stream
        self._source = source

    def push(self, samples: npt.ArrayLike) -> FloatArray:
        """Takes the next samples.

        Args:
            samples: (count,), in the units of 16-bit integers, any number.

        Returns:
            (k, output_dim) float32, the outputs that have become ready; k may be 0.

        Raises:
            SpeechError: they are no vector of finite numbers, or the recording has ended.
            RunError: see `Stream.push`.
        """
        return self.stream.push(self._source.push(samples).features)

    def finish(self) -> FloatArray:
        """Ends the recording.

        Returns:
            (k, output_dim) float32, the remaining outputs.

        Raises:
            SpeechError: the recording has ended before.
            RunError: see `Stream.push`.
        """
        last = self._source.finish().features
        return np.concatenate([self.stream.push(last), self.stream.finish()])
