"""Options of what is done with features before a network: Kaldi's names, defaults and meanings."""

from __future__ import annotations

import attrs

from nnet3_speech.errors import SpeechError

_MOST_DELTAS = 1000
_MOST_ENERGY = 1e9


@attrs.frozen
class CmvnOptions:
    """The options of `apply-cmvn`, as a recipe's `cmvn_opts` has them.

    Raises:
        SpeechError: variances are to be normalised without means.
    """

    norm_means: bool = True
    norm_vars: bool = False

    def __attrs_post_init__(self) -> None:
        if self.norm_vars and not self.norm_means:
            raise SpeechError("--norm-vars=true: expected --norm-means=true with it")


@attrs.frozen
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

    cmn_window: int = 600
    min_cmn_window: int = 100
    max_warnings: int = 5
    norm_vars: bool = False
    center: bool = False

    def __attrs_post_init__(self) -> None:
        if self.cmn_window <= 0:
            raise SpeechError(f"--cmn-window={self.cmn_window}: expected 1 or more")
        if self.center and not 0 < self.min_cmn_window <= self.cmn_window:
            raise SpeechError(
                f"--min-cmn-window={self.min_cmn_window}: expected 1 to "
                f"--cmn-window={self.cmn_window} with --center=true"
            )


@attrs.frozen
class DeltaOptions:
    """The options of `add-deltas`.

    Attributes:
        delta_order: How often to differentiate.
        delta_window: Frames on each side of which a difference is the slope.
        truncate: If more than 0, only so many first columns are used.

    Raises:
        SpeechError: a value is out of range.
    """

    delta_order: int = 2
    delta_window: int = 2
    truncate: int = 0

    def __attrs_post_init__(self) -> None:
        for name, least in (("delta_order", 0), ("delta_window", 1)):
            value = getattr(self, name)
            if not least <= value < _MOST_DELTAS:
                raise SpeechError(
                    f"--{name.replace('_', '-')}={value}: expected {least} to {_MOST_DELTAS - 1}"
                )


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
            (
                "vad_energy_threshold",
                abs(self.vad_energy_threshold) <= _MOST_ENERGY,
                f"a number up to {_MOST_ENERGY:g}",
            ),
            (
                "vad_energy_mean_scale",
                0 <= self.vad_energy_mean_scale <= _MOST_ENERGY,
                f"0 to {_MOST_ENERGY:g}",
            ),
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
