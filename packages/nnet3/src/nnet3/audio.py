"""What a speech model has beside its network, and recordings in place of features.

nnet3-speech, which is optional, reads folders and computes features. It is imported when a folder
or a recording comes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import AcousticModel, Nnet, parse_config, read_model
from nnet3_descriptors.files import read_file
from nnet3_descriptors.values import NotCopied, changing
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import FloatArray, as_array

from nnet3.errors import FROM_A_CLONE, warn

if TYPE_CHECKING:
    import nnet3_speech
    from nnet3_descriptors.model_files import TransitionModel
    from nnet3_speech import FeaturePipeline, Features, ModelFolder, PipelineStream, Speaker
    from nnet3_speech.hmm import PdfLabels

    from nnet3.streams import Stream

Phones = str | os.PathLike[str] | Mapping[int, str]
"""The path of a phones.txt, or the names of phones by their numbers."""


def read_folder(path: str | os.PathLike[str]) -> ModelFolder:
    """What a folder has.

    Raises:
        RunError: nnet3-speech is not installed.
        SpeechError: see `ModelFolder.read`.
    """
    try:
        from nnet3_speech import ModelFolder
    except ImportError as error:
        raise RunError(
            f"{os.fspath(path)} is a folder; reading models' folders and recordings needs "
            f"nnet3-speech: {FROM_A_CLONE.format('nnet3-speech')} ({error})"
        ) from error
    return ModelFolder.read(path)


def nnet_of(folder: ModelFolder) -> Nnet | AcousticModel:
    """The network of a folder, changed by the config lines of extract.config, if there are any.

    Raises:
        SpeechError: the folder has no network.
        ModelFileError, ConfigError: a file cannot be read.
    """
    model = read_model(folder.network, in_place=True)
    if "extract.config" not in folder.files:
        return model
    lines = read_file(folder.files["extract.config"]).decode("utf-8", "replace")
    if isinstance(model, AcousticModel):
        return attrs.evolve(model, nnet=parse_config(lines, base=model.nnet))
    return parse_config(lines, base=model)


def labels_of(
    transition_model: TransitionModel | None, phones: Phones | None, folder: ModelFolder | None
) -> PdfLabels:
    """The phones and HMM states of outputs; warns of names that no phone has, such as #0.

    Args:
        transition_model: That of the .mdl file, or None.
        phones: The names of phones; None for those of the folder, or else for numbers.
        folder: The folder of the model, or None.

    Raises:
        RunError: there is no transition model, or nnet3-speech is not installed.
        ModelFileError, FileError, SpeechError: a file cannot be read, or does not fit the others.
    """
    try:
        from nnet3_speech import read_symbols
        from nnet3_speech.hmm import PdfLabels, read_transitions
    except ImportError as error:
        raise RunError(
            f"labels of outputs need nnet3-speech: {FROM_A_CLONE.format('nnet3-speech')} ({error})"
        ) from error
    files = {} if folder is None else folder.files
    if transition_model is None and "final.mdl" in files:  # beside the final.raw that was loaded
        transition_model = read_transitions(files["final.mdl"]).model
    if transition_model is None:
        raise RunError(
            "the model has no transition model, which says the phones of its outputs: expected a "
            ".mdl file, or a folder with one; a .raw file has the network alone"
        )
    if phones is None:
        phones = files.get("phones.txt")
    names = phones if phones is None or isinstance(phones, Mapping) else read_symbols(phones)
    labels = PdfLabels.of(transition_model, names)
    if wrong := next((name for name in labels.phones if name.startswith("#")), None):
        warn(f"phones.txt calls a phone of the model {wrong}: it is that of another model")
    return labels


Recording: TypeAlias = (
    "str | os.PathLike[str] | tuple[npt.ArrayLike, float] | nnet3_speech.Recording"
)
"""A path of a WAV file of one channel, samples in 16-bit units (n,) and their rate, or what
`read_wav` gives."""


def is_recording(value: object) -> TypeGuard[Recording]:
    """Whether a value is a recording, maybe a wrong one, and not features."""
    if isinstance(value, tuple):
        return len(value) == 2 and not all(map(_is_array, value))
    return isinstance(value, str | os.PathLike) or (
        hasattr(value, "samples") and hasattr(value, "rate")
    )


def _is_array(value: object) -> bool:
    """Whether a value has elements, as samples and features have, but not a rate."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return len(shape) > 0
    kinds = ("__len__", "__array__", "__dlpack__")
    return not isinstance(value, str | bytes) and any(hasattr(value, kind) for kind in kinds)


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

    pipeline = FeaturePipeline.of(folder, with_ivectors=ivector_dim > 0)
    for what, found, node, wanted in (
        ("features", pipeline.dim, "input", input_dim),
        ("i-vectors", pipeline.ivector_dim, "ivector", ivector_dim),
    ):
        if found != wanted:
            raise RunError(
                f"{folder.path}: the {what} have {found} columns, but node '{node}' of "
                f"{folder.network.name} takes {wanted}"
            )
    return pipeline


def features_of(pipeline: FeaturePipeline, recording: Any) -> Features:
    """What the network reads of a whole recording.

    Raises:
        RunError: it has several channels; or what was given is no array of samples and a rate.
        SpeechError: it cannot be read; or its rate is another one, which the options do not allow.
    """
    if isinstance(recording, tuple):
        samples, rate = recording
        if not _is_array(samples):
            found = f"({samples!r:.40}, {type(rate).__name__})"
            raise RunError(f"a recording: expected (samples, rate), found {found}")
        samples = as_array(samples, "samples")
        _check_units(samples)
        return pipeline.compute(samples, rate)
    name = "a recording"
    if isinstance(recording, str | os.PathLike):
        from nnet3_speech import read_wav

        name, recording = os.fspath(recording), read_wav(recording)
    if len(recording.samples) != 1:
        raise RunError(
            f"{name}: expected one channel, found {len(recording.samples)}; give the samples of "
            "one of them, and the rate"
        )
    return pipeline.compute(recording.samples[0], recording.rate)


_TELLING = 8000
"""So many samples that are not silent tell of which units they are."""


def _are_numbers(samples: npt.NDArray[Any]) -> bool:
    """Whether samples can have units; others are refused elsewhere."""
    return samples.ndim == 1 and samples.dtype.kind in "fiu" and bool(np.isfinite(samples).all())


def _check_units(samples: npt.NDArray[Any]) -> None:
    """Warns of samples in the units in which many libraries read WAV files.

    These are floats of a full scale of 1, integers of 24 or 32 bits, and unsigned ones of 8 bits.
    """
    if not samples.size or not _are_numbers(samples):
        return
    loudest = max(float(samples.max()), -float(samples.min()))
    if samples.dtype.kind == "u":
        found = f"the samples are unsigned ({samples.dtype})"
    elif loudest <= 1.0 and (samples != np.rint(samples)).any():
        found = "all samples are between -1 and 1"
    elif loudest > 32768 and (samples == np.rint(samples)).all():
        found = f"the samples are integers of up to {loudest:.0f}"
    else:
        return
    warn(f"{found}; expected the units of 16-bit integers, between -32768 and 32767")


class AudioStream(NotCopied):
    """Outputs of a network for samples that come bit by bit; `Model.audio_stream` makes one.

    However the samples are cut, the outputs are the same (but for greedy i-vectors). Samples in
    other units, as those of which none is beyond -1 and 1, have outputs, and a warning. A chunk
    reads the newest online i-vector that the frames up to its end allow, as Kaldi's looped decoders
    do; these estimate it anew for each chunk, and here there is one for each period.

    Attributes:
        stream: The stream of frames that computes the outputs.
    """

    _instead = "another one can begin with its speaker"

    def __init__(self, source: PipelineStream, stream: Stream) -> None:
        """Begins a recording.

        Args:
            source: Computes what the network reads.
            stream: Computes the outputs.
        """
        self.stream = stream
        self._source = source
        self._frames = np.empty((0, source.pipeline.dim), np.float32)
        self._begin = 0  # the time of the first of these frames
        self._ivectors = np.empty((0, source.pipeline.ivector_dim), np.float32)
        self._first_row = 0  # the number of the first of these i-vectors
        self._unchecked: list[npt.NDArray[Any]] | None = []  # samples whose units are not known

    def __repr__(self) -> str:
        return f"<AudioStream: {self._source!r}, {self.stream!r}>"

    @property
    def speaker(self) -> Speaker:
        """What is known of the speaker so far: for `audio_stream` with the next recording."""
        return self._source.speaker

    def push(self, samples: npt.ArrayLike) -> FloatArray:
        """Takes the next samples.

        Args:
            samples: (count,), in the units of 16-bit integers, any number.

        Returns:
            (k, output_dim) float32, the outputs that have become ready; k may be 0.

        Raises:
            SpeechError: they are no vector of finite numbers, or the recording has ended; nothing
                has changed then. Or their features are too large, which breaks off the recording.
            RunError: they are no array; or see `Stream.push`; or an earlier error, or Ctrl-C, broke
                off the recording.
        """
        values = as_array(samples, "samples")
        unchecked = self._with_unchecked(values)
        with self._going_on():
            features = self._source.push(values)
            self._unchecked = unchecked
            return self._outputs(features, self._source.pipeline.ivector_delay)

    def finish(self) -> FloatArray:
        """Ends the recording.

        Returns:
            (k, output_dim) float32, the remaining outputs.

        Raises:
            SpeechError: the recording has ended before.
            RunError: see `push`.
        """
        unchecked, self._unchecked = self._unchecked, None
        if unchecked:
            _check_units(np.concatenate(unchecked))
        with self._going_on():
            outputs = [self._outputs(self._source.finish(), delay=0)]
            if len(self._frames):
                outputs.append(self._push(len(self._frames), delay=0))
            return np.concatenate([*outputs, self.stream.finish()])

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Work that takes samples or features: an error within it loses some of them.

        Raises:
            RunError: there was such an error.
        """
        from nnet3_speech import SpeechError

        refusal = "an error broke off this recording: begin another audio_stream"
        try:
            with changing(self, RunError(refusal)):
                yield
        except SpeechError:  # of samples that were not taken; else the source is broken off
            self.is_broken = False
            raise

    def _with_unchecked(self, values: npt.NDArray[Any]) -> list[npt.NDArray[Any]] | None:
        """The samples whose units are not known, with those of a push; None if there are no more.

        Enough of them are checked here, before they are taken, as warnings may raise.
        """
        if self._unchecked is None or not _are_numbers(values) or not values.any():
            return self._unchecked
        unchecked = [*self._unchecked, np.array(values)]
        if sum(map(len, unchecked)) < _TELLING:
            return unchecked
        self._unchecked = None
        _check_units(np.concatenate(unchecked))
        return None

    def _outputs(self, features: Features, delay: int) -> FloatArray:
        """The outputs of the chunks that new frames complete.

        Args:
            features: What has become ready.
            delay: Frames that an i-vector waits for.
        """
        self._frames = np.concatenate([self._frames, features.features])
        if features.online_ivectors is None:
            outputs = self.stream.push(self._frames)
            self._frames = self._frames[len(self._frames) :]
            return outputs
        self._ivectors = np.concatenate([self._ivectors, features.online_ivectors])
        ready = []
        while len(self._ivectors) and len(self._frames) >= (
            count := self.stream.frames_to_outputs()
        ):
            ready.append(self._push(count, delay))
        return np.concatenate(ready) if ready else self.stream.no_outputs

    def _push(self, count: int, delay: int) -> FloatArray:
        """Hands on frames, with the newest i-vector for the last of them."""
        frames, self._frames = self._frames[:count], self._frames[count:]
        self._begin += count
        newest = max(self._begin - 1 - delay, 0) // self._source.pipeline.ivector_period
        unused = min(newest - self._first_row, len(self._ivectors) - 1)
        self._ivectors = self._ivectors[unused:]
        self._first_row += unused
        return self.stream.push(frames, self._ivectors[0])
