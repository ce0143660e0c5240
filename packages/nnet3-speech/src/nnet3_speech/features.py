"""Features of recordings (kaldi-native-fbank), frames with their neighbours, voice activity."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import PathOrFile, read_matrix
from nnet3_descriptors.forking import GATE
from nnet3_descriptors.values import NotCopied, ReadOnlyArrays, array_of

from nnet3_speech.audio import Resampler
from nnet3_speech.errors import SpeechError
from nnet3_speech.feature_options import (
    DeltaOptions,
    FbankOptions,
    MfccOptions,
    SpliceOptions,
    VadOptions,
)
from nnet3_speech.values import array_field, expect, expect_positive, feature_matrix, taking

_BLOCK = 1 << 16
_LARGEST = 2.0**40
"""The power of a window of the most samples (2 ** 20) of this size is finite in float32."""


class FeatureExtractor:
    """Computes the features of recordings.

    With `dither` 0, digital silence (samples that are all equal) has the logarithm of the smallest
    float32 epsilon in each mel bin, log(2 ** -23) = -15.94; no recording with any noise goes far
    below 0. A model that was trained with dither, Kaldi's default, has seen no such frames: set
    `dither` to 1 for recordings that have digital silence (synthesised, gated or edited ones). The
    noise is repeatable: it is drawn for the samples, from one seed, so that equal samples in equal
    places have equal features. (Kaldi draws new noise for each frame.)

    Args:
        options: Of MFCC or of filter banks.
    """

    def __init__(self, options: MfccOptions | FbankOptions) -> None:
        expect(options, "options", MfccOptions, FbankOptions)
        self.options = options

    def __repr__(self) -> str:
        return f"<FeatureExtractor: {self.dim} columns, {self.options}>"

    @property
    def dim(self) -> int:
        """The columns of the features."""
        options = self.options
        if isinstance(options, MfccOptions):
            return options.num_ceps
        return options.num_mel_bins + options.use_energy

    def compute(self, samples: npt.ArrayLike, rate: float) -> npt.NDArray[np.float32]:
        """The features of a recording.

        Args:
            samples: (n,), in the units of 16-bit integers, as a `Recording` has them.
            rate: Samples in a second.

        Returns:
            (frames, dim) float32; no frames if the recording is shorter than one.

        Raises:
            SpeechError: see `stream` and `FeatureStream.push`.
        """
        stream = self.stream(rate)
        return np.concatenate([stream.push(samples), stream.finish()])

    def stream(self, rate: float) -> FeatureStream:
        """Features of a recording that comes in pieces.

        Args:
            rate: Samples in a second. If it is not `sample_frequency`, the samples are resampled
                where `allow_downsample` or `allow_upsample` says so.

        Raises:
            SpeechError: the rate is another one, and may not be changed to that of the options.
        """
        return FeatureStream(self.options, self.dim, _resampler(self.options, rate))


class FeatureStream(NotCopied):
    """The features of one recording, as it comes: see `FeatureExtractor.stream`.

    Joined, they equal those of the whole recording, in whatever pieces it comes. The memory does
    not grow.
    """

    def __init__(
        self, options: MfccOptions | FbankOptions, dim: int, resampler: Resampler | None
    ) -> None:
        self._rate = options.sample_frequency
        self._dither = options.dither
        self._dim = dim
        self._resampler = resampler
        self._computer = _computer(options)
        self._noise = np.random.default_rng(0)
        self._samples = 0
        self._frames = 0
        self._finished = False

    def __repr__(self) -> str:
        return f"<FeatureStream: {self._dim} columns, {self._samples} samples so far>"

    def push(self, samples: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The new features, (k, dim), k may be 0, after more samples, (n,).

        Raises:
            SpeechError: the samples are no vector of numbers up to 2 ** 40, or the stream is
                finished.
        """
        if self._finished:
            raise SpeechError("the recording is finished: begin another stream")
        values = _vector(samples, self._samples)
        blocks = [np.zeros((0, self._dim), np.float32)]
        with taking(self):
            self._samples += len(values)
            for start in range(0, len(values), _BLOCK):
                block = values[start : start + _BLOCK]
                blocks += self._accept(self._resampler.push(block) if self._resampler else block)
        return np.concatenate(blocks)

    def finish(self) -> npt.NDArray[np.float32]:
        """The last features, (k, dim), k may be 0; none can be pushed after it.

        Raises:
            SpeechError: the stream is finished.
        """
        if self._finished:
            raise SpeechError("the recording is finished: begin another stream")
        blocks = [np.zeros((0, self._dim), np.float32)]
        with taking(self):
            self._finished = True
            if self._samples:
                if self._resampler:
                    blocks += self._accept(self._resampler.finish())
                self._computer.input_finished()
                blocks += self._new_frames()
        return np.concatenate(blocks)

    def _accept(self, samples: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
        if self._dither:
            noise = self._noise.standard_normal(len(samples))
            samples = (samples + self._dither * noise).astype(np.float32)
        # A buffer is read faster than an array, which makes a NumPy scalar of each sample.
        self._computer.accept_waveform(self._rate, samples.data)
        return self._new_frames()

    def _new_frames(self) -> list[npt.NDArray[np.float32]]:
        """A matrix of the frames computed since the last call, which are forgotten."""
        ready = self._computer.num_frames_ready
        frames = np.empty((ready - self._frames, self._dim), np.float32)
        for row, frame in zip(frames, range(self._frames, ready), strict=True):
            row[:] = self._computer.get_frame(frame)
        self._computer.pop(len(frames))
        self._frames = ready
        return [frames]


def _vector(samples: npt.ArrayLike, before: int) -> npt.NDArray[np.float32]:
    values = array_of(samples, "samples", SpeechError)
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise SpeechError(
            f"expected the samples of one channel, a vector of numbers, found shape "
            f"{values.shape}, {values.dtype}"
        )
    values = np.ascontiguousarray(values, np.float32)
    usable = np.abs(values) <= _LARGEST
    if not usable.all():
        first = int(usable.argmin())
        raise SpeechError(
            f"sample {before + first} is {values[first]:g}: expected a number in the units of "
            f"16-bit integers, at most {_LARGEST:g}"
        )
    return values


def _resampler(options: MfccOptions | FbankOptions, rate: float) -> Resampler | None:
    expect_positive(rate, "samples in a second")
    wanted = options.sample_frequency
    if rate == wanted:
        return None
    name = "allow_downsample" if rate > wanted else "allow_upsample"
    if not getattr(options, name):
        raise SpeechError(
            f"the recording has {rate:g} samples in a second, the model wants {wanted:g} "
            f"(--sample-frequency); --{name.replace('_', '-')}=true would resample it"
        )
    if not (float(rate).is_integer() and wanted.is_integer()):
        raise SpeechError(
            f"expected whole numbers of samples in a second to resample, found {rate:g} in the "
            f"recording and {wanted:g} (--sample-frequency)"
        )
    return Resampler(int(rate), int(wanted))


def _computer(options: MfccOptions | FbankOptions) -> Any:
    """kaldi-native-fbank's computer; what it takes to be constant is set here, defaults too."""
    with GATE.importing():
        import kaldi_native_fbank

    chosen: Any = (
        kaldi_native_fbank.MfccOptions()
        if isinstance(options, MfccOptions)
        else kaldi_native_fbank.FbankOptions()
    )
    frame, mel = chosen.frame_opts, chosen.mel_opts
    rate = options.sample_frequency
    frame.samp_freq = rate
    # It counts the samples of so many milliseconds in float32: half a sample more, rounded down.
    frame.frame_length_ms = (options.window_size() + 0.5) * 1000 / rate
    frame.frame_shift_ms = (options.window_shift() + 0.5) * 1000 / rate
    frame.dither = 0.0
    frame.preemph_coeff = options.preemphasis_coefficient
    frame.remove_dc_offset = options.remove_dc_offset
    frame.window_type = options.window_type
    frame.blackman_coeff = options.blackman_coeff
    frame.round_to_power_of_two = options.round_to_power_of_two
    frame.snip_edges = options.snip_edges
    mel.num_bins = options.num_mel_bins
    mel.low_freq = options.low_freq
    mel.high_freq = options.high_freq
    chosen.use_energy = options.use_energy
    chosen.energy_floor = options.energy_floor
    chosen.raw_energy = options.raw_energy
    chosen.htk_compat = options.htk_compat
    if isinstance(options, MfccOptions):
        chosen.num_ceps = options.num_ceps
        chosen.cepstral_lifter = options.cepstral_lifter
        return kaldi_native_fbank.OnlineMfcc(chosen)
    chosen.use_log_fbank = options.use_log_fbank
    chosen.use_power = options.use_power
    return kaldi_native_fbank.OnlineFbank(chosen)


Frames = npt.NDArray[np.float32]


@attrs.frozen(eq=False)
class SplicedTransform(ReadOnlyArrays):
    """Splices frames, and multiplies them by a matrix.

    Attributes:
        options: How many neighbours.
        matrix: (output_dim, width * dim) float32, or with one column more, which is an offset;
            width is the number of spliced frames, and dim that of columns of a frame.
    """

    options: SpliceOptions
    matrix: Frames = array_field(np.float32, repr=False)

    @classmethod
    def read(cls, options: SpliceOptions, source: PathOrFile) -> SplicedTransform:
        """Reads the matrix.

        Raises:
            ModelFileError: the file cannot be read.
        """
        return cls(options, read_matrix(source))

    @property
    def width(self) -> int:
        """Number of spliced frames."""
        return 1 + self.options.left_context + self.options.right_context

    @property
    def output_dim(self) -> int:
        """Columns of the result."""
        return len(self.matrix)

    def spliced_columns(self, frames: Frames) -> int:
        """Columns of spliced frames, of which some frames are given, (n, dim).

        Raises:
            SpeechError: the matrix is for frames of other columns.
        """
        columns = self.width * int(frames.shape[1])
        if self.matrix.shape[1] not in (columns, columns + 1):
            raise SpeechError(
                f"a transform of {self.matrix.shape[1]} columns does not fit {self.width} spliced "
                f"frames of {frames.shape[1]} columns"
            )
        return columns

    def apply(self, padded: Frames) -> Frames:
        """The results for the frames that have all their neighbours.

        Args:
            padded: (left_context + n + right_context, dim) float32.

        Returns:
            (n, output_dim) float32.

        Raises:
            SpeechError: the matrix is for frames of other columns.
        """
        columns = self.spliced_columns(padded)
        if len(padded) < self.width:
            return np.zeros((0, self.output_dim), np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.width, axis=0)
        spliced = windows.swapaxes(1, 2).reshape(len(windows), -1)  # (n, width * dim)
        transformed: Frames = spliced @ self.matrix[:, :columns].T
        if self.matrix.shape[1] > columns:
            transformed += self.matrix[:, -1]
        return transformed


class Splicer(NotCopied):
    """A transform of frames that come in pieces; the first and last one are repeated at the ends.

    Joined, the results are those of all frames at a time.
    """

    def __init__(self, transform: SplicedTransform) -> None:
        self._transform = transform
        self._kept: Frames | None = None  # None before the first frame

    def __repr__(self) -> str:
        transform = self._transform
        return f"<Splicer: {transform.width} frames -> {transform.output_dim} columns>"

    def push(self, frames: Frames, *, last: bool = False) -> Frames:
        """The results that become ready.

        Args:
            frames: (k, dim) float32, the next frames.
            last: Whether these are the last.

        Returns:
            (n, output_dim) float32.

        Raises:
            SpeechError: see `SplicedTransform.apply`.
        """
        options = self._transform.options
        self._transform.spliced_columns(frames)  # else the context may be more than memory holds
        if self._kept is None:
            if not len(frames):
                return np.zeros((0, self._transform.output_dim), np.float32)
            self._kept = np.repeat(frames[:1], options.left_context, axis=0)
        parts = [self._kept, frames]
        if last:
            newest = frames if len(frames) else self._kept
            parts.append(np.repeat(newest[-1:], options.right_context, axis=0))
        padded = np.concatenate(parts)
        ready = self._transform.apply(padded)
        self._kept = padded[len(ready) :].copy()
        return ready


_DELTAS = DeltaOptions()


def add_deltas(features: npt.ArrayLike, options: DeltaOptions = _DELTAS) -> npt.NDArray[np.float32]:
    """Features with their first, second, ... differences behind them.

    The first difference of frame t is the sum over j from -W to W of j x[t + j], divided by the sum
    of j squared; the second one differentiates these with the same weights, and so on. Frames
    outside of the utterance are its first and last frame.

    Args:
        features: (frames, dim).
        options: Order and window.

    Returns:
        (frames, dim * (order + 1)) float32.

    Raises:
        SpeechError: see `values.feature_matrix`; or `truncate` is more than the columns.
    """
    expect(options, "options", DeltaOptions)
    values = feature_matrix(features)
    if options.truncate > values.shape[1]:
        raise SpeechError(
            f"--truncate={options.truncate}: expected at most the {values.shape[1]} columns of the "
            f"features"
        )
    if options.truncate > 0:
        values = values[:, : options.truncate]
    if not len(values):
        return np.zeros((0, values.shape[1] * (options.delta_order + 1)), np.float32)
    offsets = np.arange(-options.delta_window, options.delta_window + 1)
    slope = offsets / (offsets**2).sum()
    weights, parts = np.ones(1), [values]
    for _ in range(options.delta_order):
        weights = np.convolve(weights, slope)
        parts.append(_filtered(values, weights))
    return np.concatenate(parts, axis=1)


def _filtered(
    values: npt.NDArray[np.float32], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    reach = len(weights) // 2
    padded = np.pad(values, ((reach, reach), (0, 0)), mode="edge").astype(np.float64)
    total = np.zeros(values.shape)
    for first, weight in enumerate(weights):
        total += weight * padded[first : first + len(values)]
    return total.astype(np.float32)


_VOICE = VadOptions()


def compute_vad(features: npt.ArrayLike, options: VadOptions = _VOICE) -> npt.NDArray[np.bool_]:
    """Which frames are voiced, so that `features[voiced]` has only these.

    Args:
        features: (frames, dim), with the log energy (or C0) in the first column, before any
            normalisation.
        options: Threshold and context.

    Returns:
        (frames,) bool.

    Raises:
        SpeechError: see `values.feature_matrix`.
    """
    expect(options, "options", VadOptions)
    energy = feature_matrix(features)[:, 0]
    frames = len(energy)
    if not frames:
        return np.zeros(0, np.bool_)
    # In single precision, as Kaldi, so that a frame at the very threshold is decided alike.
    total = np.float32(energy.sum(dtype=np.float64))
    threshold = np.float32(options.vad_energy_threshold) + np.float32(
        options.vad_energy_mean_scale
    ) * total / np.float32(frames)
    above = np.concatenate([[0], np.cumsum(energy > threshold)])
    place = np.arange(frames)
    first = np.maximum(place - options.vad_frames_context, 0)
    end = np.minimum(place + options.vad_frames_context + 1, frames)
    needed = (end - first).astype(np.float32) * np.float32(options.vad_proportion_threshold)
    voiced: npt.NDArray[np.bool_] = above[end] - above[first] >= needed
    return voiced
