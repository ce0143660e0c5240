"""Differences of features over time, as `add-deltas` appends them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnet3_speech.arrays import feature_matrix
from nnet3_speech.errors import SpeechError
from nnet3_speech.processing_options import DeltaOptions

_DEFAULT = DeltaOptions()


def add_deltas(
    features: npt.ArrayLike, options: DeltaOptions = _DEFAULT
) -> npt.NDArray[np.float32]:
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
