"""Options of what stands before a network: features, normalisation, voice activity, i-vectors.

Names, defaults and meanings are Kaldi's.
"""

from __future__ import annotations

import math
import os
import re
import struct

import attrs

from nnet3_speech.options import option, read_options, require, typed

_MOST_SAMPLES = 1 << 20
"""Of a frame, and between frames: a minute at 16 kHz."""
_WINDOWS = ("hamming", "hanning", "povey", "rectangular", "sine", "blackman")


@attrs.frozen(kw_only=True, field_transformer=typed)
class _CommonOptions:
    """Options of `compute-mfcc-feats` and of `compute-fbank-feats`, with the defaults of both.

    One default is not Kaldi's: `dither` is 0 and not 1, so that the same recording has the same
    features everywhere. See `FeatureExtractor` for what that does to digital silence.
    """

    sample_frequency: float = option(16000.0, above=0.0)
    frame_length: float = option(25.0)
    frame_shift: float = option(10.0)
    preemphasis_coefficient: float = option(0.97, least=0.0, most=1.0)
    remove_dc_offset: bool = True
    dither: float = option(0.0, least=0.0)
    window_type: str = option("povey", choices=_WINDOWS)
    blackman_coeff: float = option(0.42)
    round_to_power_of_two: bool = True
    snip_edges: bool = True
    allow_downsample: bool = False
    allow_upsample: bool = False
    max_feature_vectors: int = -1
    num_mel_bins: int = 23
    low_freq: float = option(20.0)
    high_freq: float = option(0.0)
    vtln_low: float = option(100.0)
    vtln_high: float = option(-500.0)
    debug_mel: bool = False
    energy_floor: float = option(0.0, least=0.0)
    raw_energy: bool = True
    htk_compat: bool = False

    def __attrs_post_init__(self) -> None:
        for name, size, least in (
            ("frame_length", self.window_size(), 2),
            ("frame_shift", self.window_shift(), 1),
        ):
            is_possible = least <= size <= _MOST_SAMPLES
            require(self, name, is_possible, f"{least} to {_MOST_SAMPLES} samples")
        require(
            self,
            "round_to_power_of_two",
            self.padded_window_size() % 2 == 0,
            f"true where a window has an odd number of samples ({self.window_size()})",
        )
        require(self, "debug_mel", not self.debug_mel, "false: nothing is printed here")
        self._check_mel_bins()

    def window_size(self) -> int:
        """The samples of a frame."""
        return _samples(self.sample_frequency, self.frame_length)

    def window_shift(self) -> int:
        """The samples from a frame to the next."""
        return _samples(self.sample_frequency, self.frame_shift)

    def padded_window_size(self) -> int:
        """The points of the Fourier transform."""
        size = self.window_size()
        return 1 << (size - 1).bit_length() if self.round_to_power_of_two else size

    def _check_mel_bins(self) -> None:
        nyquist = self.sample_frequency / 2
        high = self.high_freq if self.high_freq > 0 else nyquist + self.high_freq
        points = self.padded_window_size()
        require(self, "num_mel_bins", 3 <= self.num_mel_bins <= points, f"3 to {points}")
        require(self, "low_freq", 0 <= self.low_freq < nyquist, f"0 to {nyquist:g}, half the rate")
        require(
            self,
            "high_freq",
            self.low_freq < high <= nyquist,
            f"a frequency above --low-freq={self.low_freq:g} and up to {nyquist:g}, half the rate "
            f"(0 or less: counted from there)",
        )
        width = self.sample_frequency / points  # of a frequency of the Fourier transform, in hertz
        step = (_mel(high) - _mel(self.low_freq)) / (self.num_mel_bins + 1)
        edges = [
            _hertz(_mel(self.low_freq) + each * step) / width
            for each in range(self.num_mel_bins + 2)
        ]
        for each, (left, right) in enumerate(zip(edges, edges[2:], strict=False)):
            first, last = math.floor(left) + 1, min(math.ceil(right), points // 2) - 1
            require(
                self,
                "num_mel_bins",
                first <= last,
                f"fewer: mel bin {each} would hold none of the {points // 2} frequencies of the "
                f"Fourier transform",
            )


@attrs.frozen(kw_only=True, field_transformer=typed)
class MfccOptions(_CommonOptions):
    """The options of `compute-mfcc-feats`: an option `--num-ceps` is the field `num_ceps`.

    Defaults are Kaldi's, but for `dither`, which is 0 and not 1: see `FeatureExtractor`.

    Raises:
        SpeechError: a value that Kaldi refuses, or `debug_mel`.
    """

    num_ceps: int = 13
    use_energy: bool = True
    cepstral_lifter: float = option(22.0)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        require(
            self,
            "num_ceps",
            1 <= self.num_ceps <= self.num_mel_bins,
            f"1 to --num-mel-bins={self.num_mel_bins}",
        )


@attrs.frozen(kw_only=True, field_transformer=typed)
class FbankOptions(_CommonOptions):
    """The options of `compute-fbank-feats`: an option `--use-power` is the field `use_power`.

    Defaults are Kaldi's, but for `dither`, which is 0 and not 1: see `FeatureExtractor`.

    Raises:
        SpeechError: a value that Kaldi refuses, or `debug_mel`.
    """

    use_energy: bool = False
    use_log_fbank: bool = True
    use_power: bool = True


def _samples(rate: float, milliseconds: float) -> int:
    """How many samples they take: Kaldi holds both in float32 and multiplies in float64."""
    return int(_single(rate) * 0.001 * _single(milliseconds))


def _single(value: float) -> float:
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


def _mel(frequency: float) -> float:
    return 1127.0 * math.log1p(frequency / 700.0)


def _hertz(mel: float) -> float:
    return 700.0 * math.expm1(mel / 1127.0)


_MOST_DELTAS = 999

_MOST_TERMS = 1_000_000
"""Of the differences of a frame: they take seconds for a short utterance."""


@attrs.frozen(field_transformer=typed)
class CmvnOptions:
    """The options of `apply-cmvn`, as a recipe's `cmvn_opts` has them.

    Raises:
        SpeechError: variances are to be normalised without means.
    """

    norm_means: bool = True
    norm_vars: bool = False

    def __attrs_post_init__(self) -> None:
        is_possible = self.norm_means or not self.norm_vars
        require(self, "norm_vars", is_possible, "--norm-means=true with it")


@attrs.frozen(field_transformer=typed)
class SlidingCmvnOptions:
    """The options of `apply-cmvn-sliding`.

    Attributes:
        cmn_window: Frames of the window.
        min_cmn_window: Frames of the window at the beginning, without `center`.
        max_warnings: Warnings of an utterance about variances that are too small; -1: all.
        norm_vars: Whether to normalise the variance too.
        center: Whether the frame is in the middle of the window; else at its end.

    Raises:
        SpeechError: there is no such window.
    """

    cmn_window: int = option(600, least=1)
    min_cmn_window: int = 100
    max_warnings: int = 5
    norm_vars: bool = False
    center: bool = False

    def __attrs_post_init__(self) -> None:
        require(
            self,
            "min_cmn_window",
            not self.center or 0 < self.min_cmn_window <= self.cmn_window,
            f"1 to --cmn-window={self.cmn_window} with --center=true",
        )


@attrs.frozen(field_transformer=typed)
class DeltaOptions:
    """The options of `add-deltas`.

    Attributes:
        delta_order: How often to differentiate.
        delta_window: Frames on each side of which a difference is the slope.
        truncate: If more than 0, only so many first columns are used.

    Raises:
        SpeechError: a value is out of range.
    """

    delta_order: int = option(2, least=0, most=_MOST_DELTAS)
    delta_window: int = option(2, least=1, most=_MOST_DELTAS)
    truncate: int = 0

    def __attrs_post_init__(self) -> None:
        order = self.delta_order
        most = _MOST_TERMS // max(order * (order + 1), 1)
        expected = f"1 to {most} with --delta-order={order}"
        require(self, "delta_window", self.delta_window <= most, expected)


@attrs.frozen(field_transformer=typed)
class VadOptions:
    """The options of `compute-vad`, as `vad.conf` has them.

    Attributes:
        vad_energy_threshold: The constant part of the threshold.
        vad_energy_mean_scale: The mean energy of the utterance, times this, is added to it.
        vad_frames_context: Frames on each side of a frame that count for it.
        vad_proportion_threshold: The part of these frames that has to be above the threshold.

    Raises:
        SpeechError: a value is out of range.
    """

    vad_energy_threshold: float = option(5.0)
    vad_energy_mean_scale: float = option(0.5, least=0.0)
    vad_frames_context: int = option(0, least=0)
    vad_proportion_threshold: float = option(0.6, above=0.0, below=1.0)


@attrs.frozen(kw_only=True, field_transformer=typed)
class IvectorExtractionConfig:
    """The options of ivector-extract-online2, or of `ivector_extractor.conf`.

    Attributes:
        lda_matrix: Path of the transform of spliced features, as for the other paths.
        global_cmvn_stats: Path of the statistics of many speakers.
        cmvn_config: Path of the options of normalisation, `online_cmvn.conf`.
        online_cmvn_iextractor: Whether the statistics, too, come from normalised features.
        splice_config: Path of the options of splicing, `splice.conf`.
        diag_ubm: Path of the Gaussians.
        ivector_extractor: Path of the extractor.
        ivector_period: Frames from an estimate to the next.
        num_gselect: The most Gaussians that count for a frame.
        min_post: Posteriors below this are left out.
        posterior_scale: Multiplies the posteriors.
        max_count: If it is above 0, and the sum of the posteriors is larger, the prior counts more.
        use_most_recent_ivector: Read and without effect, as in ivector-extract-online2.
        greedy_ivector_extractor: Whether an estimate takes all frames that have come.
        max_remembered_frames: The most frames of an utterance that count for the speaker's next.

    Raises:
        SpeechError: a number is out of range.
    """

    lda_matrix: str = ""
    global_cmvn_stats: str = ""
    cmvn_config: str = ""
    online_cmvn_iextractor: bool = False
    splice_config: str = ""
    diag_ubm: str = ""
    ivector_extractor: str = ""
    ivector_period: int = option(10, least=1)
    num_gselect: int = option(5, least=1)
    min_post: float = option(0.025, least=0.0, below=0.5)
    posterior_scale: float = option(0.1, above=0.0, most=1.0)
    max_count: float = option(0.0, least=0.0)
    use_most_recent_ivector: bool = True
    greedy_ivector_extractor: bool = False
    max_remembered_frames: float = option(1000.0, least=0.0)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> IvectorExtractionConfig:
        """Reads `ivector_extractor.conf`.

        Raises:
            SpeechError: it cannot be read, or an option is unknown or out of range.
        """
        return read_options(cls, path)


@attrs.frozen(kw_only=True, field_transformer=typed)
class SpliceOptions:
    """Which neighbours stand beside a frame: the options of `splice.conf`.

    Attributes:
        left_context: Number of frames before it.
        right_context: Number of frames after it.

    Raises:
        SpeechError: a number is negative.
    """

    left_context: int = option(4, least=0)
    right_context: int = option(4, least=0)


@attrs.frozen(kw_only=True, field_transformer=typed)
class OnlineCmvnOptions:
    """The options of `online_cmvn.conf`, which are those of apply-cmvn-online.

    Attributes:
        cmn_window: A frame is normalised by itself and the frames before, this many together.
        speaker_frames: Where these are fewer: the most frames of the speaker's statistics.
        global_frames: Where these are still fewer: the most frames of the global statistics.
        norm_means: Whether the mean becomes 0.
        norm_vars: Whether the variance becomes 1; only with `norm_means`.
        skip_dims: Columns that stay as they are, with colons between.

    Raises:
        SpeechError: the numbers of frames are not in falling order, variances are asked for
            without means, or `skip_dims` is no list.
    """

    cmn_window: int = option(600, least=1)
    speaker_frames: int = 600
    global_frames: int = 200
    norm_means: bool = True
    norm_vars: bool = False
    skip_dims: str = ""

    def __attrs_post_init__(self) -> None:
        for name, larger in (("speaker_frames", "cmn_window"), ("global_frames", "speaker_frames")):
            most = getattr(self, larger)
            expected = f"0 to --{larger.replace('_', '-')}={most}"
            require(self, name, 0 <= getattr(self, name) <= most, expected)
        is_possible = self.norm_means or not self.norm_vars
        require(self, "norm_vars", is_possible, "--norm-means=true with it")
        is_list = re.fullmatch(r":*([0-9]{1,9}(:+|$))*", self.skip_dims) is not None
        require(self, "skip_dims", is_list, "columns with colons between, such as 13:14")

    @property
    def skipped(self) -> list[int]:
        """The columns that stay as they are."""
        return [int(text) for text in self.skip_dims.split(":") if text]
