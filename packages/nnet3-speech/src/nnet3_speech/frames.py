"""Frames with their neighbours: spliced and transformed, differences, voice activity."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import PathOrFile, read_matrix

from nnet3_speech.arithmetic import feature_matrix
from nnet3_speech.errors import SpeechError
from nnet3_speech.feature_options import DeltaOptions, SpliceOptions, VadOptions

Frames = npt.NDArray[np.float32]


@attrs.frozen(eq=False)
class SplicedTransform:
    """Splices frames, and multiplies them by a matrix.

    Attributes:
        options: How many neighbours.
        matrix: (output_dim, width * dim) float32, or with one column more, which is an offset;
            width is the number of spliced frames, and dim that of columns of a frame.
    """

    options: SpliceOptions
    matrix: Frames = attrs.field(repr=False)

    @classmethod
    def read(cls, options: SpliceOptions, source: PathOrFile) -> SplicedTransform:
        """Reads the matrix.

        Raises:
            ModelFileError: the file cannot be read.
        """
        return cls(options, np.asarray(read_matrix(source), dtype=np.float32))

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


class Splicer:
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
        SpeechError: see `arrays.feature_matrix`; or `truncate` is more than the columns.
    """
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
        SpeechError: see `arrays.feature_matrix`.
    """
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
