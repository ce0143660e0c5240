"""compute-vad: which frames are voiced, by their energy."""

from __future__ import annotations

from typing import Any

import click
import nnet3_tables
from nnet3_speech import VadOptions

from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, log, run_tool, warn
from nnet3_tools.speech.feature_tables import Tally, write_each
from nnet3_tools.speech.option_classes import class_options

NAME = "compute-vad"

_HELPS = {
    "vad_energy_threshold": "The constant part of the threshold.",
    "vad_energy_mean_scale": "The mean energy of the utterance, times this, is added to it.",
    "vad_frames_context": "Frames on each side of a frame that count for it.",
    "vad_proportion_threshold": "The part of these frames that has to be above the threshold.",
}


@click.command(cls=KaldiCommand)
@click.argument("features_in", metavar="FEATURES-RSPECIFIER")
@click.argument("vad_out", metavar="VAD-WSPECIFIER")
@class_options(VadOptions, _HELPS)
@boolean_option("--omit-unvoiced-utts", help="Write nothing for utterances without a voiced frame.")
def command(features_in: str, vad_out: str, *, omit_unvoiced_utts: bool, **given: Any) -> int:
    """Write for each utterance a vector with 1 for voiced frames and 0 for others.

    The first column of the features is the log energy, or C0.
    """
    import numpy as np  # not for --help
    from nnet3_speech import compute_vad as voiced_frames

    options = VadOptions(**given)
    tally = Tally(NAME)
    unvoiced = frames_voiced = frames_read = 0

    def decisions(key: str, frames: nnet3_tables.FloatArray) -> nnet3_tables.FloatArray | None:
        nonlocal unvoiced, frames_voiced, frames_read
        voiced = voiced_frames(frames, options)
        count = int(voiced.sum())
        frames_voiced += count
        frames_read += len(voiced)
        if count:
            tally.done += 1
        else:
            unvoiced += 1
            warn(NAME, f"No frames were judged voiced for utterance {key}")
            if omit_unvoiced_utts:
                return None
        return voiced.astype(np.float32)

    write_each(features_in, vad_out, nnet3_tables.VectorWriter, decisions, tally)
    log(
        NAME,
        f"Applied energy based voice activity detection; processed {tally.done} utterances "
        f"successfully; {tally.failed} had empty features, and {unvoiced} were completely "
        "unvoiced.",
    )
    proportion = frames_voiced / frames_read if frames_read else float("nan")
    log(NAME, f"Proportion of voiced frames was {proportion:.6g} over {frames_read} frames.")
    return tally.status


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
