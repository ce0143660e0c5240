"""Options of MFCC and filter-bank features: Kaldi's names and meanings."""

from __future__ import annotations

import math
import struct

import attrs

from nnet3_speech.options import option, require

_MOST_SAMPLES = 1 << 20
"""Of a frame, and between frames: a minute at 16 kHz."""
_WINDOWS = ("hamming", "hanning", "povey", "rectangular", "sine", "blackman")


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
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
