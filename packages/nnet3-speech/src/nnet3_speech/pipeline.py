"""From samples to what a network reads: the features and i-vectors that a model's folder asks for.

What a folder says, and the sources of it:

- A folder for online decoding: features, normalised online where `online.conf` says so, and online
  i-vectors from the features before that (Kaldi's OnlineNnet2FeaturePipeline).
- Vosk's folders: the same; i-vectors have a `max-count` of 100, and recordings of a higher rate are
  resampled (vosk-api, model.cc).
- A training run: features, normalised online where there is the file `online_cmvn`, else over the
  utterance where `cmvn_opts` says so (steps/nnet3/decode.sh).
- A training run of x-vectors (with extract.config, final.ext.raw or vad.conf): a sliding mean of
  300 frames, then the voiced frames (sid/nnet3/xvector/extract_xvectors.sh).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import read_file, read_matrix
from nnet3_descriptors.values import NotCopied

from nnet3_speech.cmvn import (
    OnlineCmvn,
    OnlineCmvnState,
    apply_cmvn,
    apply_sliding_cmvn,
    cmvn_stats,
)
from nnet3_speech.errors import SpeechError
from nnet3_speech.feature_options import (
    CmvnOptions,
    FbankOptions,
    IvectorExtractionConfig,
    MfccOptions,
    OnlineCmvnOptions,
    SlidingCmvnOptions,
    VadOptions,
)
from nnet3_speech.features import FeatureExtractor, FeatureStream, compute_vad
from nnet3_speech.folders import ModelFolder
from nnet3_speech.ivector_extractor import AdaptationState
from nnet3_speech.online_ivectors import USUAL_FILES, OnlineIvectorExtractor, OnlineIvectors
from nnet3_speech.options import Options, options_of, read_options
from nnet3_speech.values import expect, taking

_VOSK_MAX_COUNT = 100.0
_XVECTOR_WINDOW = SlidingCmvnOptions(cmn_window=300, center=True)

Frames = npt.NDArray[np.float32]


@attrs.frozen(kw_only=True, eq=False)
class Features:
    """What a network reads of a recording, or of the next part of one.

    Attributes:
        features: (frames, dim) float32.
        online_ivectors: (rows, ivector_dim) float32, or None if the network reads none.
        ivector_period: Frames from a row of these to the next; 0 if there are none.
    """

    features: Frames
    online_ivectors: Frames | None = None
    ivector_period: int = 0


@attrs.frozen(kw_only=True, eq=False)
class Speaker:
    """What earlier recordings tell of a speaker.

    Attributes:
        ivectors: For online i-vectors; its `write` and `read` keep it in a file.
        cmvn: For features that are normalised online.
    """

    ivectors: AdaptationState | None = None
    cmvn: OnlineCmvnState | None = None


@attrs.frozen(kw_only=True, eq=False)
class FeaturePipeline:
    """Computes what a network reads of recordings; `of` finds the steps in a folder.

    Attributes:
        extractor: Computes the features.
        cmvn: How features are normalised online, and the statistics of many speakers; or None.
        ivectors: Computes online i-vectors, or None.
        of_whole: What changes the features of a whole recording, or None. Streams cannot do it.
    """

    extractor: FeatureExtractor
    cmvn: tuple[OnlineCmvnOptions, OnlineCmvnState] | None = None
    ivectors: OnlineIvectorExtractor | None = None
    of_whole: Callable[[Frames], Frames] | None = None

    @classmethod
    def of(cls, folder: ModelFolder, *, with_ivectors: bool = False) -> FeaturePipeline:
        """The pipeline of a model's folder.

        Args:
            folder: The folder.
            with_ivectors: Whether the network reads i-vectors.

        Raises:
            SpeechError: a file is missing or cannot be read, or files do not fit each other; or the
                model reads features that are not computed here: pitch and PLP.
            ModelFileError: a file of the i-vectors cannot be read.
        """
        extractor = FeatureExtractor(_feature_options(folder))
        cmvn = _online_cmvn(folder, extractor.dim)
        ivectors = _ivectors(folder) if with_ivectors else None
        if ivectors is not None and ivectors.dim != extractor.dim:
            raise SpeechError(
                f"{folder.path}: the features have {extractor.dim} columns, but the i-vectors are "
                f"estimated from {ivectors.dim}"
            )
        return cls(
            extractor=extractor,
            cmvn=cmvn,
            ivectors=ivectors,
            of_whole=None if cmvn else _whole_step(folder),
        )

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return self.extractor.dim

    @property
    def ivector_dim(self) -> int:
        """Columns of the i-vectors; 0 if there are none."""
        return self.ivectors.ivector_dim if self.ivectors else 0

    @property
    def ivector_period(self) -> int:
        """Frames from an i-vector to the next; 0 if there are none."""
        return self.ivectors.period if self.ivectors else 0

    @property
    def ivector_delay(self) -> int:
        """Frames that must follow a frame before the i-vector estimated there is ready."""
        return self.ivectors.transform.options.right_context if self.ivectors else 0

    @property
    def rate(self) -> float:
        """Samples in a second of the recordings that the model was trained with."""
        return self.extractor.options.sample_frequency

    @property
    def frame_seconds(self) -> float:
        """Seconds from a frame to the next."""
        return self.extractor.options.frame_shift / 1000.0

    def compute(
        self, samples: npt.ArrayLike, rate: float, speaker: Speaker | None = None
    ) -> Features:
        """What the network reads of a whole recording.

        Args:
            samples: (n,), in the units of 16-bit integers.
            rate: Samples in a second.
            speaker: What is known of the speaker.

        Raises:
            SpeechError: the samples are no vector of finite numbers; the rate is another one than
                the model's, which the options do not allow; no frame is voiced; or the speaker is
                one of another model.
        """
        stream = PipelineStream(self, rate, speaker)
        first, last = stream.push(samples), stream.finish()
        features = np.concatenate([first.features, last.features])
        if self.of_whole is not None:
            features = self.of_whole(features)
        if first.online_ivectors is None or last.online_ivectors is None:
            return Features(features=features)
        return Features(
            features=features,
            online_ivectors=np.concatenate([first.online_ivectors, last.online_ivectors]),
            ivector_period=self.ivector_period,
        )

    def stream(self, rate: float, speaker: Speaker | None = None) -> PipelineStream:
        """The same for a recording that comes in pieces.

        Raises:
            SpeechError: see `compute`; or the folder asks for a step that needs whole recordings.
        """
        if self.of_whole is not None:
            raise SpeechError(
                "the features are normalised over the whole recording, as the model's folder says; "
                "a stream cannot do that"
            )
        return PipelineStream(self, rate, speaker)


class PipelineStream(NotCopied):
    """What a network reads of one recording, as it comes; see `FeaturePipeline.stream`.

    Joined, it equals that of the whole recording, in whatever pieces it comes. (Greedy i-vectors
    are the exception: they are estimated from all that has come.)
    """

    def __init__(self, pipeline: FeaturePipeline, rate: float, speaker: Speaker | None) -> None:
        speaker = Speaker() if speaker is None else speaker
        expect(speaker, "speaker", Speaker)
        for part in ("cmvn", "ivectors"):
            if getattr(speaker, part) is not None and getattr(pipeline, part) is None:
                raise SpeechError(
                    f"speaker: expected one of this model, which has no {part}; found one of a "
                    "model that has"
                )
        self.pipeline = pipeline
        self._features: FeatureStream = pipeline.extractor.stream(rate)
        self._cmvn = None
        if pipeline.cmvn is not None:
            options, state = pipeline.cmvn
            if speaker.cmvn is not None and not speaker.cmvn.is_of(state.of_all):
                raise SpeechError(
                    "speaker: expected one of this model, found other statistics of many speakers "
                    "(cmvn)"
                )
            self._cmvn = OnlineCmvn(options, speaker.cmvn or state)
        self._ivectors = None
        if pipeline.ivectors is not None:
            self._ivectors = OnlineIvectors(pipeline.ivectors, speaker.ivectors)

    def __repr__(self) -> str:
        return f"<PipelineStream: {self._features!r}, {self._ivectors!r}>"

    @property
    def speaker(self) -> Speaker:
        """What is known of the speaker after the samples so far, for the next recording."""
        return Speaker(
            ivectors=self._ivectors.state if self._ivectors else None,
            cmvn=self._cmvn.state if self._cmvn else None,
        )

    def push(self, samples: npt.ArrayLike) -> Features:
        """What becomes ready with the next samples, (n,).

        Raises:
            SpeechError: see `FeatureStream.push`; nothing has changed then. Or values become too
                large, which breaks off the recording.
        """
        return self._next(self._features.push(samples), last=False)

    def finish(self) -> Features:
        """The rest.

        Raises:
            SpeechError: the stream is finished.
        """
        return self._next(self._features.finish(), last=True)

    def _next(self, frames: Frames, *, last: bool) -> Features:
        with taking(self):
            rows = None if self._ivectors is None else self._ivectors.push(frames, last=last)
            return Features(
                features=frames if self._cmvn is None else self._cmvn.push(frames),
                online_ivectors=rows,
                ivector_period=self.pipeline.ivector_period,
            )


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
    if kind not in ("mfcc", "fbank"):
        raise SpeechError(
            f"{folder.file('online.conf')}: --feature-type={kind}: expected mfcc or fbank; other "
            "features are not computed here"
        )
    found: MfccOptions | FbankOptions = (
        read_options(FbankOptions, folder.file("fbank.conf"))
        if kind == "fbank"
        else read_options(MfccOptions, folder.file("mfcc.conf"))
    )
    is_of_vosk = folder.is_vosk or folder.network.name == "final.ext.raw"
    return attrs.evolve(found, allow_downsample=True) if is_of_vosk else found


def _online_cmvn(folder: ModelFolder, dim: int) -> tuple[OnlineCmvnOptions, OnlineCmvnState] | None:
    """How the features of a network, of `dim` columns, are normalised online, if they are.

    Raises:
        SpeechError: a file is missing or cannot be read; the statistics have other columns.
    """
    if folder.options.cmvn_config:
        source = "conf/online.conf: --cmvn-config"
        path = folder.named(folder.options.cmvn_config, source)
        options = read_options(OnlineCmvnOptions, path)
    elif folder.is_vosk and "global_cmvn.stats" in folder.files:
        options = OnlineCmvnOptions()
    elif _is_training_run(folder) and "online_cmvn" in folder.files:
        options = _cmvn_opts(OnlineCmvnOptions, folder)
    else:
        return None
    file = folder.file("global_cmvn.stats")
    statistics = read_matrix(file).astype(np.float64)
    if statistics.shape[1] != dim + 1:
        raise SpeechError(
            f"{file}: the features have {dim} columns, but the statistics are for "
            f"{statistics.shape[1] - 1}"
        )
    return options, OnlineCmvnState(of_all=statistics)


def _is_training_run(folder: ModelFolder) -> bool:
    """Whether a folder is none for online decoding."""
    return not folder.is_vosk and "online.conf" not in folder.files


def _cmvn_opts(kind: type[Options], folder: ModelFolder) -> Options:
    """The options in the file cmvn_opts, which is a line of a command."""
    if "cmvn_opts" not in folder.files:
        return kind()
    path = folder.files["cmvn_opts"]
    words = read_file(path).decode("utf-8", "replace").split()
    texts = {name: text for name, _, text in (word[2:].partition("=") for word in words)}
    return options_of(kind, texts, os.fspath(path))


def _ivectors(folder: ModelFolder) -> OnlineIvectorExtractor:
    """What estimates the i-vectors of a folder."""
    if "ivector_extractor.conf" in folder.files or folder.options.ivector_extraction_config:
        source = folder.file("ivector_extractor.conf")

        def place_of(option: str, path: str) -> str | os.PathLike[str]:
            return folder.named(path, f"{source}: --{option}") if path else ""

        return OnlineIvectorExtractor.read(IvectorExtractionConfig.read(source), place_of)
    config = IvectorExtractionConfig(max_count=_VOSK_MAX_COUNT if folder.is_vosk else 0.0)

    def usual_place(option: str, _: str) -> str | os.PathLike[str]:
        name = USUAL_FILES[option.replace("-", "_")]
        return folder.file("ivector global_cmvn.stats" if name == "global_cmvn.stats" else name)

    return OnlineIvectorExtractor.read(config, usual_place)


def _whole_step(folder: ModelFolder) -> Callable[[Frames], Frames] | None:
    """What changes the features of whole recordings."""
    if {"vad.conf", "extract.config"} & set(folder.files) or (
        folder.network.name == "final.ext.raw"
    ):
        if "vad.conf" not in folder.files:
            return partial(apply_sliding_cmvn, options=_XVECTOR_WINDOW)
        options = read_options(VadOptions, folder.files["vad.conf"])
        return partial(_voiced, options=options)
    if not _is_training_run(folder) or "cmvn_opts" not in folder.files:
        return None
    chosen = _cmvn_opts(CmvnOptions, folder)
    if not chosen.norm_means:
        return None
    return partial(_of_utterance, options=chosen)


def _of_utterance(features: Frames, options: CmvnOptions) -> Frames:
    """Features, normalised over the utterance."""
    return apply_cmvn(features, cmvn_stats(features), options)


def _voiced(features: Frames, options: VadOptions) -> Frames:
    """The voiced frames, normalised by a sliding mean."""
    voiced = compute_vad(features, options)
    if not voiced.any():
        raise SpeechError(f"none of {len(features)} frames is voiced")
    return apply_sliding_cmvn(features, _XVECTOR_WINDOW)[voiced]
