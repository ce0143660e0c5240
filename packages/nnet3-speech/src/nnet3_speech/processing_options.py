"""Options of what is done with features before a network: Kaldi's names, defaults and meanings."""

from __future__ import annotations

import attrs

from nnet3_speech.options import option, require

_MOST_DELTAS = 999


@attrs.frozen
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

    delta_order: int = option(2, least=0, most=_MOST_DELTAS)
    delta_window: int = option(2, least=1, most=_MOST_DELTAS)
    truncate: int = 0


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

    vad_energy_threshold: float = option(5.0)
    vad_energy_mean_scale: float = option(0.5, least=0.0)
    vad_frames_context: int = option(0, least=0)
    vad_proportion_threshold: float = option(0.6, above=0.0, below=1.0)
