"""Tools that change features, or choose frames of them: normalization, voice activity."""

from __future__ import annotations

from typing import Any

import nnet3_speech
import nnet3_tables

from nnet3_tools import cli
from nnet3_tools.speech.tables import Tally, class_options, write_each

_CMVN_HELPS = {
    "cmn_window": "Frames of the window.",
    "min_cmn_window": "Frames of the window at the beginning, without --center.",
    "max_warnings": "Warnings of an utterance about small variances; -1: all.",
    "norm_vars": "Normalise the variance too.",
    "center": "The window lies around the frame; else before it.",
}


@cli.tool(
    "apply-cmvn-sliding",
    "FEATURES-RSPECIFIER FEATURES-WSPECIFIER",
    class_options("SlidingCmvnOptions", _CMVN_HELPS),
)
def apply_cmvn_sliding(features_in: str, features_out: str, **given: Any) -> int:
    """Normalise the mean, and if asked for the variance, of features in a sliding window."""
    options = nnet3_speech.SlidingCmvnOptions(**given)
    tally = Tally()

    def normalized(_: str, frames: nnet3_tables.FloatArray) -> nnet3_tables.FloatArray:
        result = nnet3_speech.apply_sliding_cmvn(frames, options)
        tally.done += 1
        return result

    with cli.logged("nnet3_speech.cmvn"):
        write_each(features_in, features_out, nnet3_tables.MatrixWriter, normalized, tally)
    what = "mean and variance" if options.norm_vars else "mean"
    cli.log(
        f"Applied sliding-window cepstral {what} normalization to {tally.done} utterances, "
        f"{tally.failed} had errors."
    )
    return tally.status


_VAD_HELPS = {
    "vad_energy_threshold": "The constant part of the threshold.",
    "vad_energy_mean_scale": "The mean energy of the utterance, times this, is added to it.",
    "vad_frames_context": "Frames on each side of a frame that count for it.",
    "vad_proportion_threshold": "The part of these frames that has to be above the threshold.",
}


@cli.tool(
    "compute-vad",
    "FEATURES-RSPECIFIER VAD-WSPECIFIER",
    class_options("VadOptions", _VAD_HELPS),
    cli.boolean_option(
        "--omit-unvoiced-utts", "Write nothing for utterances without a voiced frame."
    ),
)
def compute_vad(features_in: str, vad_out: str, *, omit_unvoiced_utts: bool, **given: Any) -> int:
    """Write for each utterance a vector with 1 for voiced frames and 0 for others.

    The first column of the features is the log energy, or C0.
    """
    import numpy as np  # not for --help

    options = nnet3_speech.VadOptions(**given)
    tally = Tally()
    unvoiced = frames_voiced = frames_read = 0

    def decisions(key: str, frames: nnet3_tables.FloatArray) -> nnet3_tables.FloatArray | None:
        nonlocal unvoiced, frames_voiced, frames_read
        voiced = nnet3_speech.compute_vad(frames, options)
        count = int(voiced.sum())
        frames_voiced += count
        frames_read += len(voiced)
        if count:
            tally.done += 1
        else:
            unvoiced += 1
            cli.warn(f"No frames were judged voiced for utterance {key}")
            if omit_unvoiced_utts:
                return None
        return voiced.astype(np.float32)

    write_each(features_in, vad_out, nnet3_tables.VectorWriter, decisions, tally)
    cli.log(
        f"Applied energy based voice activity detection; processed {tally.done} utterances "
        f"successfully; {tally.failed} had empty features, and {unvoiced} were completely "
        "unvoiced."
    )
    proportion = frames_voiced / frames_read if frames_read else float("nan")
    cli.log(f"Proportion of voiced frames was {proportion:.6g} over {frames_read} frames.")
    return tally.status


@cli.tool("select-voiced-frames", "FEATURES-RSPECIFIER VAD-RSPECIFIER FEATURES-WSPECIFIER")
def select_voiced_frames(features_in: str, vad_in: str, features_out: str) -> int:
    """Write the voiced frames of each utterance: those with 1 in its vector of VAD-RSPECIFIER."""
    tally = Tally()
    with nnet3_tables.VectorLookup(vad_in) as decisions:

        def selected(key: str, frames: nnet3_tables.FloatArray) -> nnet3_tables.FloatArray | None:
            voiced = decisions.get(key)
            fault = _fault(key, frames, voiced)
            if voiced is None or fault:
                tally.fail(fault)
                return None
            tally.done += 1
            chosen: nnet3_tables.FloatArray = frames[voiced == 1]
            return chosen

        write_each(features_in, features_out, nnet3_tables.MatrixWriter, selected, tally, vad_in)
    cli.log(
        f"Done selecting voiced frames; processed {tally.done} utterances, {tally.failed} had "
        "errors."
    )
    return tally.status


def _fault(
    key: str, frames: nnet3_tables.FloatArray, voiced: nnet3_tables.FloatArray | None
) -> str:
    """Why an utterance has no voiced frames; "" if it has.

    Raises:
        TableError: a decision is neither 0 nor 1.
    """
    if voiced is None:
        return f"No VAD input found for utterance {key}"
    if len(voiced) != len(frames):
        return (
            f"Mismatch in number for frames {len(frames)} for features and VAD {len(voiced)}, for "
            f"utterance {key}"
        )
    others = voiced[(voiced != 0) & (voiced != 1)]
    if len(others):
        raise nnet3_tables.TableError(f"expected 0 or 1 for each frame, found {others[0]:g}")
    if not voiced.any():
        return f"No features were judged as voiced for utterance {key}"
    return ""
