"""Voice activity by the energy of frames, as `compute-vad` decides it."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_speech.arrays import feature_matrix
from nnet3_speech.errors import SpeechError


@attrs.frozen
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

    vad_energy_threshold: float = 5.0
    vad_energy_mean_scale: float = 0.5
    vad_frames_context: int = 0
    vad_proportion_threshold: float = 0.6

    def __attrs_post_init__(self) -> None:
        for name, holds, expected in (
            ("vad_energy_threshold", np.isfinite(self.vad_energy_threshold), "a finite number"),
            ("vad_energy_mean_scale", 0 <= self.vad_energy_mean_scale < np.inf, "0 or more"),
            ("vad_frames_context", self.vad_frames_context >= 0, "0 or more"),
            (
                "vad_proportion_threshold",
                0 < self.vad_proportion_threshold < 1,
                "a number between 0 and 1",
            ),
        ):
            if not holds:
                raise SpeechError(
                    f"--{name.replace('_', '-')}={getattr(self, name)}: expected {expected}"
                )


def compute_vad(
    features: npt.ArrayLike, options: VadOptions = VadOptions()
) -> npt.NDArray[np.bool_]:
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
