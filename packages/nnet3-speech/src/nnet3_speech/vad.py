"""Voice activity by the energy of frames, as `compute-vad` decides it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnet3_speech.arrays import feature_matrix
from nnet3_speech.processing_options import VadOptions

_DEFAULT = VadOptions()


def compute_vad(features: npt.ArrayLike, options: VadOptions = _DEFAULT) -> npt.NDArray[np.bool_]:
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
