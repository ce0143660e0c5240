"""nnet3-compute-batch: as nnet3-compute, with the options of Kaldi's tool of this name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import nnet3

from nnet3_tools.compute.compute_options import CHUNK_OPTIONS
from nnet3_tools.compute.nnet3_compute import compute_chunks
from nnet3_tools.compute.utterance_tool import MEMORY, UtteranceRun, utterance_tool
from nnet3_tools.kaldi_command import boolean_option, run_tool

NAME = "nnet3-compute-batch"

EXAMPLES = """\
  nnet3-compute-batch final.raw scp:feats.scp ark:output.ark
  nnet3-compute-batch --minibatch-size=16 --num-threads=2 --frame-subsampling-factor=3 \\
      --frames-per-chunk=150 final.mdl scp:feats.scp ark:output.ark"""


def _count(name: str, default: int, help_text: str) -> Callable[[Any], Any]:
    return click.option(
        name,
        default=default,
        show_default=True,
        type=click.IntRange(min=1),
        metavar="COUNT",
        help=help_text,
    )


OPTIONS = (
    *CHUNK_OPTIONS,
    _count("--minibatch-size", 128, "Chunks to compute together, if memory is enough."),
    _count(
        "--edge-minibatch-size",
        32,
        "The same for first and last chunks whose context differs.",
    ),
    click.option(
        "--partial-minibatch-factor",
        default=0.5,
        show_default=True,
        metavar="FACTOR",
        help="Chunks that do not fill a minibatch are computed in smaller ones: FACTOR, FACTOR "
        "squared and so on times the full size. 0: in a full one, padded with unused sequences.",
    ),
    boolean_option(
        "--ensure-exact-final-context",
        default=True,
        show_default=True,
        help="If false, as in Kaldi by default, all chunks have the same length: the last one "
        "begins earlier, and the last frame of a short utterance is repeated. That changes outputs "
        "of recurrent networks, and those with online i-vectors.",
    ),
    MEMORY,
)


@utterance_tool(NAME, output="MATRIX-WSPECIFIER", examples=EXAMPLES, options=OPTIONS)
def command(
    run: UtteranceRun,
    *,
    minibatch_size: int,
    edge_minibatch_size: int,
    partial_minibatch_factor: float,
    ensure_exact_final_context: bool,
    memory: int,
    **options: Any,
) -> int:
    """Run a trained nnet3 network over features, many chunks at a time.

    The outputs are those of nnet3-compute; with --ensure-exact-final-context=false they are those
    of Kaldi's nnet3-compute-batch, where the last chunk of an utterance has more context to the
    left, and the online i-vector of another frame.
    """
    return compute_chunks(
        run,
        options,
        nnet3.BatchOptions(
            minibatch_size=minibatch_size,
            edge_minibatch_size=edge_minibatch_size,
            partial_minibatch_factor=partial_minibatch_factor,
            ensure_exact_final_context=ensure_exact_final_context,
            memory=memory,
        ),
    )


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
