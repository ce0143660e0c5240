"""From samples to what a network reads: the features that a model's folder asks for."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_speech.errors import SpeechError
from nnet3_speech.feature_options import FbankOptions, MfccOptions
from nnet3_speech.features import FeatureExtractor, FeatureStream
from nnet3_speech.folders import ModelFolder
from nnet3_speech.options import read_options


@attrs.frozen(kw_only=True, eq=False)
class Features:
    """What a network reads of a recording, or of the next part of one.

    Attributes:
        features: (frames, dim) float32.
        online_ivectors: (rows, ivector_dim) float32, or None if the network reads none.
        ivector_period: Frames from a row of these to the next; 0 if there are none.
    """

    features: npt.NDArray[np.float32]
    online_ivectors: npt.NDArray[np.float32] | None = None
    ivector_period: int = 0


class FeaturePipeline:
    """Computes what a network reads of recordings.

    Attributes:
        rate: Samples in a second of the recordings that the model was trained with.
        frame_seconds: Seconds from a frame to the next.
    """

    def __init__(self, extractor: FeatureExtractor) -> None:
        """Takes the steps of the computation; `of` finds them in a folder."""
        self._extractor = extractor
        self.rate = extractor.options.sample_frequency
        self.frame_seconds = extractor.options.frame_shift / 1000.0

    @classmethod
    def of(cls, folder: ModelFolder) -> FeaturePipeline:
        """The pipeline of a model's folder.

        Raises:
            SpeechError: a file is missing or cannot be read; or the model reads features that are
                not computed here: pitch and PLP.
        """
        return cls(FeatureExtractor(_feature_options(folder)))

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return self._extractor.dim

    def compute(self, samples: npt.ArrayLike, rate: float) -> Features:
        """What the network reads of a whole recording.

        Args:
            samples: (n,), in the units of 16-bit integers.
            rate: Samples in a second.

        Raises:
            SpeechError: the samples are no vector of finite numbers; or the rate is another one
                than the model's, which the options do not allow.
        """
        return Features(features=self._extractor.compute(samples, rate))

    def stream(self, rate: float) -> PipelineStream:
        """The same for a recording that comes in pieces.

        Raises:
            SpeechError: see `compute`.
        """
        return PipelineStream(self._extractor.stream(rate))


class PipelineStream:
    """What a network reads of one recording, as it comes; see `FeaturePipeline.stream`.

    Joined, it equals that of the whole recording, in whatever pieces it comes.
    """

    def __init__(self, features: FeatureStream) -> None:
        self._features = features

    def push(self, samples: npt.ArrayLike) -> Features:
        """What becomes ready with the next samples, (n,).

        Raises:
            SpeechError: see `FeatureStream.push`.
        """
        return Features(features=self._features.push(samples))

    def finish(self) -> Features:
        """The rest.

        Raises:
            SpeechError: the stream is finished.
        """
        return Features(features=self._features.finish())


def _feature_options(folder: ModelFolder) -> MfccOptions | FbankOptions:
    """The options of the features that the network of a folder reads.

    Raises:
        SpeechError: see `FeaturePipeline.of`.
    """
    options = folder.options
    if options.add_pitch or (folder.is_vosk and "pitch.conf" in folder.files):
        source = folder.files.get("online.conf") or folder.file("pitch.conf")
        raise SpeechError(f"{source}: the model reads pitch features, which are not computed here")
    kind = options.feature_type
    if "online.conf" not in folder.files and "mfcc.conf" not in folder.files:
        kind = "fbank" if "fbank.conf" in folder.files else kind
    if kind == "fbank":
        return read_options(FbankOptions, folder.file("fbank.conf"))
    if kind != "mfcc":
        raise SpeechError(
            f"{folder.file('online.conf')}: --feature-type={kind}: expected mfcc or fbank; other "
            "features are not computed here"
        )
    return read_options(MfccOptions, folder.file("mfcc.conf"))
