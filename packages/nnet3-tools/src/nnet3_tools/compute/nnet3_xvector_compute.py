"""nnet3-xvector-compute: one vector for each utterance, from a network that pools over time."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click
import nnet3_runtime_cuda
import nnet3_tables

from nnet3_tools.chosen_workers import DASK, JOBS
from nnet3_tools.compute.utterance_tool import MEMORY, UtteranceRun, utterance_tool
from nnet3_tools.compute.utterances import with_frames
from nnet3_tools.ignored_options import OF_UTTERANCES, unused
from nnet3_tools.kaldi_command import boolean_option, log, run_tool

if TYPE_CHECKING:
    from nnet3_runtime_cuda import Work
    from nnet3_tables import FloatArray

NAME = "nnet3-xvector-compute"

EXAMPLES = """\
  nnet3-xvector-compute final.raw scp:feats.scp ark,scp:xvector.ark,xvector.scp
  nnet3-xvector-compute --min-chunk-size=25 --chunk-size=10000 final.raw \\
      'ark:apply-cmvn-sliding scp:feats.scp ark:- |' ark:xvector.ark"""

OPTIONS = (
    click.option(
        "--chunk-size",
        default=-1,
        show_default=True,
        metavar="FRAMES",
        help="Length of the chunks over which vectors are averaged; -1: one for the whole "
        "utterance.",
    ),
    click.option(
        "--min-chunk-size",
        default=100,
        show_default=True,
        metavar="FRAMES",
        help="Smallest number of frames for a vector.",
    ),
    boolean_option(
        "--pad-input",
        default=True,
        show_default=True,
        help="Repeat the first and last frame of utterances and chunks shorter than "
        "--min-chunk-size. If false, such utterances fail, and such last chunks are left out.",
    ),
    click.option(
        "--cache-capacity",
        default=64,
        show_default=True,
        type=click.IntRange(min=1),
        metavar="COUNT",
        help="How many compiled computations to keep, one for each number of frames.",
    ),
    MEMORY,
    JOBS,
    DASK,
)


IGNORED = OF_UTTERANCES | unused(
    "--acoustic-scale",
    "--extra-left-context",
    "--extra-left-context-initial",
    "--extra-right-context",
    "--extra-right-context-final",
    "--frame-subsampling-factor",
    "--frames-per-chunk",
)


@utterance_tool(
    NAME, output="VECTOR-WSPECIFIER", examples=EXAMPLES, options=OPTIONS, ignored=IGNORED
)
def command(
    run: UtteranceRun,
    *,
    chunk_size: int,
    min_chunk_size: int,
    pad_input: bool,
    cache_capacity: int,
    memory: int,
    jobs: int,
    dask: str | None,
) -> int:
    """Extract one vector (x-vector) for each utterance.

    NNET-IN is a network whose output depends on all of its input, as one with a statistics pooling
    layer; the output at time 0 is the vector. With --chunk-size an utterance is cut into chunks,
    and the mean of their vectors is written, weighted by their numbers of frames.
    """
    given: dict[str, Any] = {
        "chunk_size": chunk_size,
        "min_chunk_size": min_chunk_size,
        "pad_input": pad_input,
    }
    options = nnet3_runtime_cuda.SegmentOptions(**given)
    least_frames = 1 if pad_input else min_chunk_size
    if jobs or dask:
        from nnet3_tools.compute.shards import xvector_of

        run.check_shards()
        compute = functools.partial(xvector_of, options=given)
        model = run.load_model()
        return run.write_by_workers(
            model, nnet3_tables.VectorWriter, compute, jobs, dask, least_frames=least_frames
        )
    model = run.load_model(capacity=cache_capacity)

    def prepare(utterance: str, frames: FloatArray) -> Work:
        with_frames(frames, least_frames)
        if len(frames) < chunk_size:
            log(
                NAME,
                f"Chunk size of {chunk_size} is greater than the number of rows in utterance: "
                f"{utterance}, using chunk size of {len(frames)}",
            )
        return model.xvector_work(frames, options)

    return run.write(
        model,
        nnet3_tables.VectorWriter,
        prepare,
        batches=nnet3_runtime_cuda.BatchOptions(memory=memory),
    )


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
