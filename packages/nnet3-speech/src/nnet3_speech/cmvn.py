"""Cepstral mean and variance normalisation of whole utterances: by statistics, or by a window."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from nnet3_speech.arithmetic import check_finite, computing
from nnet3_speech.arrays import feature_matrix
from nnet3_speech.errors import SpeechError
from nnet3_speech.processing_options import CmvnOptions, SlidingCmvnOptions

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
    weight = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    if weight.shape != values.shape[:1] or not np.isfinite(weight).all():
        raise SpeechError(
            f"expected {len(values)} finite weights, one for each frame, found shape {weight.shape}"
        )
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
    values = feature_matrix(features)
    if not options.norm_means:
        return values.copy()
    table = np.asarray(stats, np.float64)
    dim = values.shape[1]
    if table.shape not in ((2, dim + 1), (1, dim + 1)):
        raise SpeechError(
            f"expected CMVN statistics (2, {dim + 1}) for features of {dim} columns, found "
            f"{table.shape}"
        )
    count = table[0, -1]
    if not (np.isfinite(table).all() and count >= 1):
        raise SpeechError(
            f"expected finite CMVN statistics of one frame or more, found {count:g} frames"
        )
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
        SpeechError: see `arrays.feature_matrix`.
    """
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
