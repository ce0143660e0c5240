"""Cepstral mean and variance normalisation: by statistics, by a window, and as frames come.

Frames that come are normalised by those before (Kaldi's OnlineCmvn). Statistics are a matrix
(2, dim + 1) float64: the sums of all columns and the number of frames, and below the sums of
squares and a 0.
"""

from __future__ import annotations

import logging

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import Reader, Writer
from nnet3_descriptors.values import NotCopied, ReadOnlyArrays
from nnet3_descriptors.values import frozen as frozen_array

from nnet3_speech.errors import SpeechError
from nnet3_speech.feature_options import CmvnOptions, OnlineCmvnOptions, SlidingCmvnOptions
from nnet3_speech.values import (
    array_field,
    check_finite,
    computing,
    expect,
    feature_matrix,
    numbers,
    taking,
)

_BY_STATS = CmvnOptions()
_BY_WINDOW = SlidingCmvnOptions()

_LOGGER = logging.getLogger(__name__)

_LEAST_VARIANCE = 1e-20
_LEAST_WINDOW_VARIANCE = 1e-10


def cmvn_stats(
    features: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> npt.NDArray[np.float64]:
    """The statistics of an utterance, as `compute-cmvn-stats` writes them.

    Those of a speaker are the sum of those of the utterances.

    Args:
        features: (frames, dim).
        weights: (frames,), of each frame; by default 1.

    Returns:
        (2, dim + 1): the sum of the frames and their number; the sum of their squares and 0.

    Raises:
        SpeechError: the arrays have other shapes or values that are not finite.
    """
    values = feature_matrix(features).astype(np.float64)
    weight = np.ones(len(values))
    if weights is not None:
        weight = numbers(weights, "weights of frames", weight.shape, kinds="biuf")
    stats = np.zeros((2, values.shape[1] + 1))
    stats[0, :-1] = weight @ values
    stats[1, :-1] = weight @ values**2
    stats[0, -1] = weight.sum()
    return stats


def apply_cmvn(
    features: npt.ArrayLike, stats: npt.ArrayLike, options: CmvnOptions = _BY_STATS
) -> npt.NDArray[np.float32]:
    """Features with the mean of the statistics 0, and if asked for, the variance 1.

    Variances below 1e-20 count as 1e-20.

    Args:
        features: (frames, dim).
        stats: (2, dim + 1), or (1, dim + 1) without squares; see `cmvn_stats`.
        options: What to normalise.

    Returns:
        (frames, dim) float32.

    Raises:
        SpeechError: the statistics are for another dim, of less than one frame, not finite, too
            large, or lack squares that the options need.
    """
    expect(options, "options", CmvnOptions)
    values = feature_matrix(features)
    if not options.norm_means:
        return values.copy()
    dim = values.shape[1]
    what = f"CMVN statistics for features of {dim} columns"
    table = numbers(stats, what, (2, dim + 1), (1, dim + 1))
    count = table[0, -1]
    if count < 1:
        raise SpeechError(f"{what}: expected one frame or more, found {count:g}")
    if options.norm_vars and len(table) == 1:
        raise SpeechError("--norm-vars=true: the CMVN statistics have no sums of squares")
    with computing("CMVN"):
        mean = table[0, :-1] / count
        if not options.norm_vars:
            return _single(values + _single(-mean))
        scale = np.maximum(table[1, :-1] / count - mean**2, _LEAST_VARIANCE) ** -0.5
        return _single(values * _single(scale) + _single(-mean * scale))


def apply_sliding_cmvn(
    features: npt.ArrayLike, options: SlidingCmvnOptions = _BY_WINDOW
) -> npt.NDArray[np.float32]:
    """Features less the mean of a window of frames, as `apply-cmvn-sliding` computes them.

    The window of frame t is the frames t - W // 2 to t - W // 2 + W with `center`, and t - W to t
    without it, but at least the first `min_cmn_window` ones. With `center`, at the ends of the
    utterance it is moved inside. It is cut to the utterance. Variances below 1e-10 count as 1e-10,
    which is logged; a frame that is its own window becomes 0 with `norm_vars`.

    Args:
        features: (frames, dim).
        options: The window.

    Returns:
        (frames, dim) float32.

    Raises:
        SpeechError: see `values.feature_matrix`.
    """
    expect(options, "options", SlidingCmvnOptions)
    given = feature_matrix(features).astype(np.float64)
    if not len(given):
        return given.astype(np.float32)
    # The sums are differences of longer ones: values around 0 lose the least in them.
    values = given - given.mean(axis=0)
    start, end = _windows(len(values), options)
    frames = (end - start)[:, None]
    mean = _window_sums(values, start, end) / frames
    normalized = values - mean
    if options.norm_vars:
        variance = _window_sums(values**2, start, end) / frames - mean**2
        _warn(variance, frames[:, 0], options.max_warnings)
        normalized *= np.maximum(variance, _LEAST_WINDOW_VARIANCE) ** -0.5
        normalized[frames[:, 0] == 1] = 0.0
    return _single(normalized)


def _single(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Values in single precision.

    Raises:
        SpeechError: one is too large for it.
    """
    with np.errstate(over="ignore"):
        return check_finite(values.astype(np.float32, copy=False), "CMVN")


_Integers = npt.NDArray[np.int64]


def _windows(length: int, options: SlidingCmvnOptions) -> tuple[_Integers, _Integers]:
    """The first frame of each frame's window, and the frame behind its last one."""
    frame = np.arange(length)
    if options.center:
        start = frame - options.cmn_window // 2
        end = start + options.cmn_window - np.minimum(start, 0)
    else:
        start = frame - options.cmn_window
        end = np.maximum(frame + 1, options.min_cmn_window)
    start = np.maximum(start, 0) - np.maximum(end - length, 0)
    return np.maximum(start, 0), np.minimum(end, length)


def _window_sums(
    values: npt.NDArray[np.float64], start: _Integers, end: _Integers
) -> npt.NDArray[np.float64]:
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    difference: npt.NDArray[np.float64] = sums[end] - sums[start]
    return difference


def _warn(variance: npt.NDArray[np.float64], frames: _Integers, most: int) -> None:
    """Logs windows whose variance is too small, in the words of `apply-cmvn-sliding`."""
    if len(variance) == 1:
        return
    floored = (variance < _LEAST_WINDOW_VARIANCE).sum(axis=1) * (frames > 1)
    places = np.flatnonzero(floored)
    for place in places if most < 0 else places[:most]:
        _LOGGER.warning(
            "Flooring when normalizing variance, floored %d elements; num-frames was %d",
            floored[place],
            frames[place],
        )
    if 0 <= most < len(places):
        _LOGGER.warning(
            "Suppressing the remaining variance flooring warnings. Use --max-warnings=-1 to see "
            "all warnings."
        )


Statistics = npt.NDArray[np.float64]
Frames = npt.NDArray[np.float32]

_FRAMES_AT_A_TIME = 1000
"""Longer inputs are taken in pieces, so that memory does not grow with them."""


_NONE = frozen_array(np.zeros((0, 0)))
_TEXT_PRECISION = 1e-5
"""Kaldi's text files have seven digits."""


@attrs.frozen(kw_only=True, eq=False)
class OnlineCmvnState(ReadOnlyArrays):
    """What is known of a speaker before an utterance. Its arrays are read-only.

    Attributes:
        speaker: Statistics of the speaker's earlier utterances; (0, 0) for none.
        of_all: Statistics of many speakers, of one frame or more.
        frozen: Statistics that each frame is normalised by; (0, 0) if they follow the frames.

    Raises:
        SpeechError: the shapes are other ones or differ, or values are not finite.
    """

    speaker: Statistics = array_field(np.float64, default=_NONE)
    of_all: Statistics = array_field(np.float64)
    frozen: Statistics = array_field(np.float64, default=_NONE)

    def __attrs_post_init__(self) -> None:
        shape = self.of_all.shape
        if len(shape) != 2 or shape[0] != 2 or shape[1] < 2:
            raise SpeechError(
                "statistics of many speakers for normalisation: expected 2 rows of at least 2 "
                f"columns, found the shape {shape}"
            )
        for name, least in (("of_all", 1.0), ("speaker", 0.0), ("frozen", 1.0)):
            statistics = getattr(self, name)
            if not statistics.size and name != "of_all":
                continue
            if statistics.shape != shape or not np.isfinite(statistics).all():
                raise SpeechError(
                    f"statistics for normalisation, {name}: expected finite values of the shape "
                    f"{shape}, found the shape {statistics.shape}"
                )
            if not statistics[0, -1] >= least:
                raise SpeechError(
                    f"statistics for normalisation, {name}: expected {least:g} frames or more, "
                    f"found {statistics[0, -1]:g}"
                )

    def is_of(self, statistics: Statistics) -> bool:
        """Whether these are the statistics of many speakers, as far as a text file tells."""
        return self.of_all.shape == statistics.shape and np.allclose(
            self.of_all, statistics, rtol=_TEXT_PRECISION, atol=0.0
        )

    @classmethod
    def read(cls, reader: Reader) -> OnlineCmvnState:
        """Reads it as a part of a file.

        Raises:
            ModelFileError: the file has something else.
        """
        start = reader.position
        reader.expect("<OnlineCmvnState>")
        found = {}
        for token, name in _PARTS.items():
            reader.expect(token)
            found[name] = reader.double_matrix()
        reader.expect("</OnlineCmvnState>")
        try:
            return cls(**found)
        except SpeechError as error:
            reader.fail(str(error), at=start)

    def write(self, writer: Writer) -> None:
        """Writes it as a part of a file."""
        writer.token("<OnlineCmvnState>")
        for token, name in _PARTS.items():
            writer.token(token)
            writer.double_matrix(getattr(self, name))
        writer.token("</OnlineCmvnState>")


_PARTS = {"<SpeakerCmvnStats>": "speaker", "<GlobalCmvnStats>": "of_all", "<FrozenState>": "frozen"}


class OnlineCmvn(NotCopied):
    """Normalises the frames of an utterance as they come.

    The statistics of a frame are those of the last `cmn_window` frames with it; while the utterance
    has fewer, some of the speaker's and then of the global ones are added, in proportion.
    """

    _instead = "begin another one with its state"

    def __init__(self, options: OnlineCmvnOptions, state: OnlineCmvnState) -> None:
        """Begins an utterance.

        Raises:
            SpeechError: a column to skip is not there.
        """
        expect(options, "options", OnlineCmvnOptions)
        expect(state, "state", OnlineCmvnState)
        dim = state.of_all.shape[1] - 1
        if outside := [column for column in options.skipped if column >= dim]:
            raise SpeechError(f"--skip-dims: the features have {dim} columns, found {outside}")
        self._options = options
        self._state = state
        self._sums = np.zeros((2, dim + 1))
        self._window = np.zeros((2, dim + 1))
        self._recent = np.zeros((0, dim), np.float32)

    def __repr__(self) -> str:
        return (
            f"<OnlineCmvn: {self._sums.shape[1] - 1} columns, {self._sums[0, -1]:g} frames so far>"
        )

    @property
    def state(self) -> OnlineCmvnState:
        """The state after the frames so far, for the next utterance of the speaker."""
        speaker = self._state.speaker
        sums = speaker + self._sums if speaker.size else self._sums.copy()
        return attrs.evolve(self._state, speaker=sums)

    def push(self, frames: npt.ArrayLike) -> Frames:
        """Normalises the next frames.

        Args:
            frames: (k, dim).

        Returns:
            (k, dim) float32.

        Raises:
            SpeechError: they have other columns or values that are not finite, or the statistics
                are too large.
        """
        given = feature_matrix(frames)
        dim = self._sums.shape[1] - 1
        if given.shape[1] != dim:
            raise SpeechError(
                f"features of {given.shape[1]} columns; the statistics for their normalisation "
                f"have {dim}"
            )
        pieces = range(0, len(given), _FRAMES_AT_A_TIME)
        with taking(self), computing("online CMVN"):
            parts = [self._normalised(given[begin : begin + _FRAMES_AT_A_TIME]) for begin in pieces]
            return check_finite(np.concatenate(parts), "online CMVN") if parts else given

    def _normalised(self, given: Frames) -> Frames:
        options, dim = self._options, given.shape[1]
        terms = np.ones((len(given), 2, dim + 1))
        terms[:, 0, :dim] = given
        terms[:, 1, :dim] = terms[:, 0, :dim] ** 2
        terms[:, 1, dim] = 0.0
        self._sums += terms.sum(axis=0)
        if not options.norm_means:
            return given
        if self._state.frozen.size:
            statistics = np.broadcast_to(self._state.frozen, terms.shape)
        else:
            statistics = self._of_windows(given, terms)
            self._smooth(statistics)
        means = statistics[:, 0, :-1] / statistics[:, 0, -1:]
        scales = np.ones_like(means)
        if options.norm_vars:
            variances = statistics[:, 1, :-1] / statistics[:, 0, -1:] - means**2
            scales = 1.0 / np.sqrt(np.maximum(variances, _LEAST_VARIANCE))
        for column in options.skipped:
            means[:, column], scales[:, column] = 0.0, 1.0
        if not options.norm_vars:
            return given - means.astype(np.float32)
        return given * scales.astype(np.float32) - (means * scales).astype(np.float32)

    def _of_windows(self, frames: Frames, terms: Statistics) -> Statistics:
        """The statistics of the window of each of the next frames.

        Args:
            frames: (k, dim).
            terms: (k, 2, dim + 1), the statistics of each frame alone; changed.
        """
        recent = np.concatenate((self._recent, frames))
        leaving = len(recent) - self._options.cmn_window  # frames that leave the window
        if leaving > 0:
            wide = recent[:leaving].astype(np.float64)
            terms[-leaving:, 0, :-1] -= wide
            terms[-leaving:, 1, :-1] -= wide**2
            terms[-leaving:, 0, -1] -= 1.0
        self._recent = recent[-self._options.cmn_window :].copy()
        terms[0] += self._window
        statistics = terms.cumsum(axis=0)
        self._window = statistics[-1].copy()
        return statistics

    def _smooth(self, statistics: Statistics) -> None:
        """Adds what is known of the speaker, and of all, where a window lacks frames."""
        options, state = self._options, self._state
        counts = statistics[:, 0, -1]  # in rising order
        short = statistics[: int((counts < options.cmn_window).sum())]
        known = state.speaker[0, -1] if state.speaker.size else 0.0
        for source, most in (
            (state.speaker, min(options.speaker_frames, known)),
            (state.of_all, options.global_frames),
        ):
            if most > 0.0:
                missing = np.clip(options.cmn_window - short[:, 0, -1], 0.0, most)
                short += (missing / source[0, -1])[:, None, None] * source
