"""nnet3-xvector-compute: one vector for each utterance, from a network that pools over time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click
from nnet3_descriptors.tools.kaldi_command import (
    KaldiCommand,
    boolean_option,
    common_options,
    run_tool,
)

from ..tables import FloatArray, VectorWriter
from .progress import Progress
from .utterances import compute_all, gpu_option, load_model, threads_option

NAME = "nnet3-xvector-compute"

EPILOG = """\b
Examples:
  nnet3-xvector-compute final.raw scp:feats.scp ark,scp:xvector.ark,xvector.scp
  nnet3-xvector-compute --min-chunk-size=25 --chunk-size=10000 final.raw \\
      'ark:apply-cmvn-sliding scp:feats.scp ark:- |' ark:xvector.ark

Tables are named as in Kaldi: ark:FILE, scp:FILE, ark,t:FILE (text), - for standard input or
output, 'ark:COMMAND |' for the output of a command. Commands inside script files are not run.

An utterance that cannot be computed is reported and left out; the others are written. The exit
status is 0 if all could be computed, else 1."""


@click.command(cls=KaldiCommand, epilog=EPILOG, context_settings={"max_content_width": 100})
@click.argument("model_in", metavar="NNET-IN")
@click.argument("features", metavar="FEATURES-RSPECIFIER")
@click.argument("output", metavar="VECTOR-WSPECIFIER")
@click.option(
    "--chunk-size",
    default=-1,
    show_default=True,
    metavar="FRAMES",
    help="Length of the chunks over which vectors are averaged; -1: one for the whole utterance.",
)
@click.option(
    "--min-chunk-size",
    default=100,
    show_default=True,
    metavar="FRAMES",
    help="Least number of frames that a vector is computed from.",
)
@boolean_option(
    "--pad-input",
    default=True,
    show_default=True,
    help="Make what is shorter than that longer by repeating its first and last frame; if false, "
    "short utterances fail and short last chunks are left out.",
)
@click.option(
    "--cache-capacity",
    default=64,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="How many compiled computations, one for each number of frames, are kept.",
)
@threads_option
@gpu_option
@common_options
def command(
    model_in: str,
    features: str,
    output: str,
    chunk_size: int,
    min_chunk_size: int,
    pad_input: bool,
    cache_capacity: int,
    num_threads: int,
    use_gpu: str,
) -> int:
    """Extract one vector (x-vector) for each utterance.

    NNET-IN is a network whose output depends on all of its input, as one with a statistics pooling
    layer; the output at time 0 is the vector. With --chunk-size an utterance is cut into chunks,
    and the mean of their vectors is written, weighted by their numbers of frames.
    """
    progress = Progress(NAME)
    model = load_model(model_in, use_gpu, progress, capacity=cache_capacity)

    def prepare(_: str, frames: FloatArray) -> Callable[[], FloatArray]:
        return partial(
            model.xvector,
            frames,
            chunk_size=chunk_size,
            min_chunk_size=min_chunk_size,
            pad_input=pad_input,
        )

    with progress.reporting(model):
        compute_all(
            features, lambda: VectorWriter(output), prepare, progress, num_threads=num_threads
        )
    return progress.status


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
