"""apply-cmvn-sliding: subtracts from each frame the mean of a window."""

from __future__ import annotations

from typing import Any

import click
import nnet3_tables
from nnet3_speech import SlidingCmvnOptions

from nnet3_tools.kaldi_command import KaldiCommand, log, logged, run_tool
from nnet3_tools.speech.feature_tables import Tally, write_each
from nnet3_tools.speech.option_classes import class_options

NAME = "apply-cmvn-sliding"

_HELPS = {
    "cmn_window": "Frames of the window.",
    "min_cmn_window": "Frames of the window at the beginning, without --center.",
    "max_warnings": "Warnings of an utterance about small variances; -1: all.",
    "norm_vars": "Normalise the variance too.",
    "center": "The window lies around the frame; else before it.",
}


@click.command(cls=KaldiCommand)
@click.argument("features_in", metavar="FEATURES-RSPECIFIER")
@click.argument("features_out", metavar="FEATURES-WSPECIFIER")
@class_options(SlidingCmvnOptions, _HELPS)
def command(features_in: str, features_out: str, **given: Any) -> int:
    """Normalise the mean, and if asked for the variance, of features in a sliding window."""
    from nnet3_speech import apply_sliding_cmvn  # not for --help

    options = SlidingCmvnOptions(**given)
    tally = Tally(NAME)

    def normalized(_: str, frames: nnet3_tables.FloatArray) -> nnet3_tables.FloatArray:
        result = apply_sliding_cmvn(frames, options)
        tally.done += 1
        return result

    with logged(NAME, "nnet3_speech.cmvn"):
        write_each(features_in, features_out, nnet3_tables.MatrixWriter, normalized, tally)
    what = "mean and variance" if options.norm_vars else "mean"
    log(
        NAME,
        f"Applied sliding-window cepstral {what} normalization to {tally.done} utterances, "
        f"{tally.failed} had errors.",
    )
    return tally.status


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
