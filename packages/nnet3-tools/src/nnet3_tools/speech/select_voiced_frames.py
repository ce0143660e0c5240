"""select-voiced-frames: keeps the frames that compute-vad has found voiced."""

from __future__ import annotations

import click
import nnet3_tables

from nnet3_tools.kaldi_command import KaldiCommand, log, run_tool
from nnet3_tools.speech.feature_tables import Tally, write_each

NAME = "select-voiced-frames"


@click.command(cls=KaldiCommand)
@click.argument("features_in", metavar="FEATURES-RSPECIFIER")
@click.argument("vad_in", metavar="VAD-RSPECIFIER")
@click.argument("features_out", metavar="FEATURES-WSPECIFIER")
def command(features_in: str, vad_in: str, features_out: str) -> int:
    """Write the voiced frames of each utterance: those with 1 in its vector of VAD-RSPECIFIER."""
    tally = Tally(NAME)
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
    log(
        NAME,
        f"Done selecting voiced frames; processed {tally.done} utterances, {tally.failed} had "
        "errors.",
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


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
