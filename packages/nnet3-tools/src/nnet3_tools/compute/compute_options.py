"""The options of the tools that compute outputs for each frame, and checks against a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import nnet3_runtime_cuda

from nnet3_tools.kaldi_command import boolean_option, log

if TYPE_CHECKING:
    from nnet3 import ChunkOptions, Model

    from nnet3_tools.compute.utterance_tool import UtteranceRun


def _text(name: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, default="", metavar="RSPECIFIER", help=help_text)


def frames_option(name: str, default: int, help_text: str) -> Callable[[Any], Any]:
    """An option that is a number of frames."""
    return click.option(name, default=default, show_default=True, metavar="FRAMES", help=help_text)


SUBSAMPLING = click.option(
    "--frame-subsampling-factor",
    type=int,
    metavar="FRAMES",
    help="Number of input frames for each row of output.  [default: what the folder of the model "
    "says, or 1]",
)


IVECTOR_OPTIONS = (
    _text(
        "--ivectors", "I-vectors: a vector for each utterance, or for each speaker with --utt2spk."
    ),
    _text("--utt2spk", "The speaker of each utterance, for --ivectors."),
    _text(
        "--online-ivectors", "I-vectors that change in an utterance: a matrix for each utterance."
    ),
    frames_option("--online-ivector-period", 0, "Frames between two rows of the online i-vectors."),
)

ACOUSTIC_SCALE = click.option(
    "--acoustic-scale",
    type=float,
    help="Multiplies the output.  [default: what the folder of the model says, or 1.0]",
)

SCORE_OPTIONS = (
    click.option(
        "--scores",
        type=click.Choice(["raw", "log-softmax"]),
        default="raw",
        show_default=True,
        help="What the values become before priors and scale: log-softmax makes log-probabilities "
        "of the scores of chain models.",
    ),
    ACOUSTIC_SCALE,
    boolean_option("--apply-exp", help="Write the exponential of the output."),
    boolean_option("--use-priors", help="Subtract the logarithm of the priors in a .mdl file."),
)

FRAME_OPTIONS = (
    *IVECTOR_OPTIONS,
    frames_option("--frames-per-chunk", 50, "Frames to compute at a time, before subsampling."),
    SUBSAMPLING,
    frames_option(
        "--extra-left-context", 0, "Further context to the left, for recurrent networks."
    ),
    frames_option(
        "--extra-right-context", 0, "Further context to the right, as --extra-left-context."
    ),
    frames_option(
        "--extra-left-context-initial",
        -1,
        "If >= 0, replaces --extra-left-context at the start of an utterance.",
    ),
    frames_option(
        "--extra-right-context-final",
        -1,
        "If >= 0, replaces --extra-right-context at the end of an utterance.",
    ),
)

CHUNK_OPTIONS = (*FRAME_OPTIONS, *SCORE_OPTIONS)


def check_ivector_options(ivectors: str, online_ivectors: str, period: int) -> None:
    """Raises a UsageError if options for i-vectors contradict each other."""
    if ivectors and online_ivectors:
        raise click.UsageError("--ivectors and --online-ivectors cannot be given together")
    if online_ivectors and period <= 0:
        raise click.UsageError("--online-ivectors needs --online-ivector-period=FRAMES")


def check_model(run: UtteranceRun, model: Model, *, has_ivectors: bool, use_priors: bool) -> None:
    """Checks that the options fit the network, so that not every utterance fails.

    Args:
        run: Names the model.
        model: The model.
        has_ivectors: Whether the options name a table of i-vectors.
        use_priors: Whether priors are asked for.

    Raises:
        RunError: i-vectors or priors are missing, or i-vectors are not wanted.
    """
    if model.ivector_dim and not has_ivectors:
        raise nnet3_runtime_cuda.RunError(
            f"{run.model_in} takes i-vectors of dimension {model.ivector_dim}; expected --ivectors "
            "or --online-ivectors"
        )
    if has_ivectors and not model.ivector_dim:
        raise nnet3_runtime_cuda.RunError(
            f"{run.model_in} has no input node 'ivector'; expected neither --ivectors nor "
            "--online-ivectors"
        )
    if use_priors and model.priors is None:
        raise nnet3_runtime_cuda.RunError(
            f"{run.model_in} has no priors; --use-priors needs a .mdl file that has them"
        )


def log_rounding(run: UtteranceRun, options: ChunkOptions, model: Model) -> None:
    """Says, as Kaldi's tools do, that chunks have more frames than --frames-per-chunk."""
    frames = options.rounded(model.modulus).frames_per_chunk
    if frames != options.frames_per_chunk:
        log(
            run.tool,
            f"Chunks have {frames} frames: --frames-per-chunk={options.frames_per_chunk} is no "
            f"multiple of --frame-subsampling-factor={options.frame_subsampling_factor} and of the "
            f"network's modulus, {model.modulus}",
        )
