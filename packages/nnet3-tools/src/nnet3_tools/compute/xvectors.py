"""One vector for each utterance, from a network that pools over time.

nnet3-xvector-compute            of whole utterances, or the mean over chunks one after the other
nnet3-xvector-compute-batched    the mean over chunks of one length that cover the utterance evenly
"""

from __future__ import annotations

import functools
from typing import Any

import nnet3
import nnet3_tables

from nnet3_tools import cli, flags
from nnet3_tools.compute.utterance_tool import MEMORY, UtteranceRun, utterance_tool
from nnet3_tools.compute.utterances import with_frames, xvector_of

EXAMPLES = """\
  nnet3-xvector-compute final.raw scp:feats.scp ark,scp:xvector.ark,xvector.scp
  nnet3-xvector-compute --min-chunk-size=25 --chunk-size=10000 final.raw \\
      'ark:apply-cmvn-sliding scp:feats.scp ark:- |' ark:xvector.ark"""


OPTIONS = (
    cli.option(
        "--chunk-size",
        -1,
        "Length of the chunks over which vectors are averaged; -1: one for the whole utterance.",
        "FRAMES",
        shown=True,
    ),
    cli.option(
        "--min-chunk-size", 100, "Smallest number of frames for a vector.", "FRAMES", shown=True
    ),
    cli.boolean_option(
        "--pad-input",
        "Repeat the first and last frame of utterances and chunks shorter than "
        "--min-chunk-size. If false, such utterances fail, and such last chunks are left out.",
        default=True,
        shown=True,
    ),
    cli.option(
        "--cache-capacity",
        64,
        "How many compiled computations to keep, one for each number of frames.",
        "COUNT",
        least=1,
        shown=True,
    ),
    MEMORY,
    flags.JOBS,
    flags.DASK,
)


IGNORED = flags.OF_UTTERANCES | flags.unused(
    "--acoustic-scale",
    "--extra-left-context",
    "--extra-left-context-initial",
    "--extra-right-context",
    "--extra-right-context-final",
    "--frame-subsampling-factor",
    "--frames-per-chunk",
)


@utterance_tool(
    "nnet3-xvector-compute",
    output="VECTOR-WSPECIFIER",
    examples=EXAMPLES,
    options=OPTIONS,
    ignored=IGNORED,
)
def nnet3_xvector_compute(
    run: UtteranceRun,
    *,
    cache_capacity: int,
    memory: int,
    jobs: int,
    dask: str | None,
    **given: Any,
) -> int:
    """Extract one vector (x-vector) for each utterance.

    NNET-IN is a network whose output depends on all of its input, as one with a statistics pooling
    layer; the output at time 0 is the vector. With --chunk-size an utterance is cut into chunks,
    and the mean of their vectors is written, weighted by their numbers of frames.
    """
    options = nnet3.SegmentOptions(**given)
    least_frames = 1 if options.pad_input else options.min_chunk_size
    if jobs or dask:
        run.check_shards()
        compute = functools.partial(xvector_of, options=given)
        model = run.load_model()
        return run.write_by_workers(
            model,
            nnet3_tables.VectorWriter,
            compute,
            jobs,
            dask,
            recordings=run.recordings(model),
            least_frames=least_frames,
        )
    model = run.load_model(capacity=cache_capacity)

    def prepare(utterance: str, frames: nnet3_tables.FloatArray) -> nnet3.Work:
        with_frames(frames, least_frames)
        if len(frames) < options.chunk_size:
            cli.log(
                f"Chunk size of {options.chunk_size} is greater than the number of rows in "
                f"utterance: {utterance}, using chunk size of {len(frames)}"
            )
        return model.xvector_work(frames, options)

    return run.write(
        model,
        nnet3_tables.VectorWriter,
        prepare,
        batches=nnet3.BatchOptions(memory=memory),
        recordings=run.recordings(model),
    )


BATCHED_EXAMPLES = """\
  nnet3-xvector-compute-batched --chunk-size=300 final.raw scp:feats.scp ark:xvector.ark"""


BATCHED_OPTIONS = (
    cli.option(
        "--chunk-size",
        150,
        "Length of the chunks over which vectors are averaged, with the network's context.",
        "FRAMES",
        shown=True,
    ),
    cli.option(
        "--batch-size",
        32,
        "Chunks to compute together, if memory is enough.",
        "COUNT",
        least=1,
        shown=True,
    ),
    cli.boolean_option(
        "--pad-input",
        "Repeat the last frame of utterances shorter than a chunk. If false, they fail.",
        default=True,
        shown=True,
    ),
    MEMORY,
)


BATCHED_IGNORED = {
    f"--{name.rpartition('.')[2]}" if "." in name else name: about
    for name, about in flags.OF_UTTERANCES.items()
} | {"--cache-capacity": "the compiler"}
"""Kaldi's options for its optimizer and for checks, without a word before their names."""


@utterance_tool(
    "nnet3-xvector-compute-batched",
    output="VECTOR-WSPECIFIER",
    examples=BATCHED_EXAMPLES,
    options=BATCHED_OPTIONS,
    ignored=BATCHED_IGNORED,
)
def nnet3_xvector_compute_batched(
    run: UtteranceRun, *, chunk_size: int, batch_size: int, pad_input: bool, memory: int
) -> int:
    """Extract one vector (x-vector) for each utterance, from chunks that cover it evenly.

    NNET-IN is a network as for nnet3-xvector-compute. The vector is the mean over chunks of one
    length. Without the context of the network they overlap a little, or have small gaps between
    them. Chunks of several utterances are computed together. As in Kaldi, the exit status is 1,
    too, if no more than half of the utterances have a vector.
    """
    model = run.load_model()
    cli.log(f"Left/right context is {model.left_context}, {model.right_context}")
    options = nnet3.EvenSegmentOptions(
        chunk_size=chunk_size, context=model.left_context + model.right_context, pad_input=pad_input
    )
    num_read = 0

    def prepare(_: str, frames: nnet3_tables.FloatArray) -> nnet3.Work:
        nonlocal num_read
        num_read += 1
        return model.xvector_work(with_frames(frames, 1 if pad_input else chunk_size), options)

    status = run.write(
        model,
        nnet3_tables.VectorWriter,
        prepare,
        batches=nnet3.BatchOptions(minibatch_size=batch_size, memory=memory),
        recordings=run.recordings(model),
    )
    written = run.progress.done
    cli.log(f"Read {num_read} utterances, wrote {written} xvectors.")
    return status or (0 if written > num_read // 2 else cli.NOTHING_DONE)
