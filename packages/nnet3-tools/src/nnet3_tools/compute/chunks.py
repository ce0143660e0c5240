"""Tools that run a network over features and write its outputs for each frame.

nnet3-compute           whole utterances, in chunks
nnet3-compute-batch     the same, with the options of Kaldi's tool of this name
nnet3-compute-looped    chunk by chunk as the frames come: the outputs that Kaldi's looped decoders
                        decode (Kaldi has no tool of this name)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import nnet3
import nnet3_runtime_cuda
import nnet3_tables

from nnet3_tools import cli, flags
from nnet3_tools.compute import inputs
from nnet3_tools.compute.utterance_tool import MEMORY, UtteranceRun, utterance_tool
from nnet3_tools.compute.utterances import outputs_of

Kind = TypeVar("Kind", bound=attrs.AttrsInstance)

_COMPUTE_EXAMPLES = """\
  nnet3-compute final.raw scp:feats.scp ark:output.ark
  nnet3-compute --frame-subsampling-factor=3 --online-ivectors=scp:ivectors.scp \\
      --online-ivector-period=10 final.mdl scp:feats.scp ark,t:-
  nnet3-compute vosk-model-small-ko-0.22 scp:wav.scp ark:output.ark
  nnet3-compute --use-priors final.mdl 'ark:copy-feats scp:feats.scp ark:- |' ark:loglikes.ark"""


@utterance_tool(
    "nnet3-compute",
    output="MATRIX-WSPECIFIER",
    examples=_COMPUTE_EXAMPLES,
    options=(*inputs.CHUNK_OPTIONS, MEMORY, flags.JOBS, flags.DASK),
)
def nnet3_compute(
    run: UtteranceRun, *, memory: int, jobs: int, dask: str | None, **options: Any
) -> int:
    """Run a trained nnet3 network over features and write its output for each utterance.

    NNET-IN is a Kaldi model, .raw or .mdl; the features of each utterance are a matrix with a row
    for each frame. Or NNET-IN is the folder of a speech model, of Vosk or of Kaldi: then a table
    such as scp:wav.scp may name WAV files in place of features, whose features and i-vectors are
    computed. Edge frames are repeated where the network needs context, and batch-norm and dropout
    are in test mode. Equal chunks of several utterances are computed together.
    """
    return compute_chunks(run, options, nnet3.BatchOptions(memory=memory), jobs=jobs, dask=dask)


def _taken(kind: type[Kind], options: dict[str, Any]) -> Kind:
    """Removes the fields of a class from the options of a tool, and returns a value of the class.

    Raises:
        RunError: an option is out of range.
    """
    names = attrs.fields_dict(kind)
    return kind(**{name: options.pop(name) for name in names if name in options})


def compute_chunks(
    run: UtteranceRun,
    options: dict[str, Any],
    batches: nnet3.BatchOptions,
    make_change: Callable[
        [nnet3.Model], Callable[[nnet3_tables.FloatArray], nnet3_tables.FloatArray]
    ]
    | None = None,
    *,
    jobs: int = 0,
    dask: str | None = None,
) -> int:
    """Computes the chunks of all utterances, and writes the outputs.

    Args:
        run: The arguments and options that all tools share.
        options: The options for i-vectors, chunks and scores.
        batches: How utterances share minibatches.
        make_change: Gives what changes the outputs of an utterance before they are written; not
            with processes.
        jobs: Number of processes that compute shards of the table; 0 for none.
        dask: The scheduler of a Dask cluster that does that, or None.

    Returns:
        The exit status.

    Raises:
        click.UsageError: options contradict each other.
        TableError: a table cannot be opened or written.
        RunError: i-vectors or priors are missing, or i-vectors are not wanted.
        WorkerError: workers died at the same shard three times.
    """
    options = run.of_folder(options)
    tables = [options.pop(name) for name in ("ivectors", "online_ivectors", "utt2spk")]
    chunk_options = _taken(nnet3.ChunkOptions, options)
    score_options = nnet3.ScoreOptions(**options)
    inputs.check_ivector_options(tables[0], tables[1], chunk_options.online_ivector_period)
    if jobs or dask:
        run.check_shards(filter(None, tables))
    model = run.load_model()
    recordings = run.recordings(model)
    if recordings is not None:
        chunk_options = attrs.evolve(chunk_options, online_ivector_period=recordings.ivector_period)
    inputs.check_model(
        run.model_in,
        model,
        recordings,
        tables,
        use_priors=score_options.use_priors,
    )
    score_options.check(model.priors)
    inputs.log_rounding(chunk_options, model)
    change = None if make_change is None else make_change(model)
    with inputs.opened_ivectors(tables, recordings) as ivectors_of:
        if jobs or dask:
            fields = attrs.asdict(chunk_options) | attrs.asdict(score_options)
            return run.write_by_workers(
                model,
                nnet3_tables.MatrixWriter,
                functools.partial(outputs_of, options=fields),
                jobs,
                dask,
                ivectors=ivectors_of,
                recordings=recordings,
            )

        def prepare(utterance: str, frames: nnet3_tables.FloatArray) -> nnet3.Work:
            ivector, online = ivectors_of(utterance)
            work = model.compute_work(
                frames, ivector, online, chunk_options, score_options, batches
            )
            if change is None:
                return work
            return attrs.evolve(work, finish=lambda: change(work.finish()))

        return run.write(
            model,
            nnet3_tables.MatrixWriter,
            prepare,
            tables=filter(None, tables),
            batches=batches,
            step=chunk_options.frame_subsampling_factor,
            recordings=recordings,
        )


_BATCH_EXAMPLES = """\
  nnet3-compute-batch final.raw scp:feats.scp ark:output.ark
  nnet3-compute-batch --minibatch-size=16 --num-threads=2 --frame-subsampling-factor=3 \\
      --frames-per-chunk=150 final.mdl scp:feats.scp ark:output.ark"""


def _count(name: str, default: int, help_text: str) -> cli.Parameter:
    return cli.option(name, default, help_text, "COUNT", least=1, shown=True)


_BATCH_OPTIONS = (
    *inputs.CHUNK_OPTIONS,
    _count("--minibatch-size", 128, "Chunks to compute together, if memory is enough."),
    _count(
        "--edge-minibatch-size", 32, "The same for first and last chunks whose context differs."
    ),
    cli.option(
        "--partial-minibatch-factor",
        0.5,
        "Chunks that do not fill a minibatch are computed in smaller ones: FACTOR, FACTOR "
        "squared and so on times the full size. 0: in a full one, padded with unused "
        "sequences.",
        "FACTOR",
        shown=True,
    ),
    cli.boolean_option(
        "--ensure-exact-final-context",
        "If false, as in Kaldi by default, all chunks have the same length: the last one "
        "begins earlier, and the last frame of a short utterance is repeated. That changes outputs "
        "of recurrent networks, and those with online i-vectors.",
        default=True,
        shown=True,
    ),
    MEMORY,
)


@utterance_tool(
    "nnet3-compute-batch",
    output="MATRIX-WSPECIFIER",
    examples=_BATCH_EXAMPLES,
    options=_BATCH_OPTIONS,
)
def nnet3_compute_batch(run: UtteranceRun, **options: Any) -> int:
    """Run a trained nnet3 network over features, many chunks at a time.

    The outputs are those of nnet3-compute; with --ensure-exact-final-context=false they are those
    of Kaldi's nnet3-compute-batch, where the last chunk of an utterance has more context to the
    left, and the online i-vector of another frame.
    """
    batches = _taken(nnet3.BatchOptions, options)
    return compute_chunks(run, options, batches)


_LOOPED_EXAMPLES = """\
  nnet3-compute-looped final.raw scp:feats.scp ark:output.ark
  nnet3-compute-looped --frames-per-chunk=21 --frame-subsampling-factor=3 \\
      --online-ivectors=scp:ivectors.scp --online-ivector-period=10 \\
      final.mdl scp:feats.scp ark,t:-"""


_LOOPED_OPTIONS = (
    *inputs.IVECTOR_OPTIONS,
    inputs.frames_option("--frames-per-chunk", 20, "Frames to compute at a time."),
    inputs.SUBSAMPLING,
    inputs.frames_option(
        "--extra-left-context-initial",
        0,
        "Further repetitions of the first frame, for recurrent networks.",
    ),
    *inputs.SCORE_OPTIONS,
)


@utterance_tool(
    "nnet3-compute-looped",
    output="MATRIX-WSPECIFIER",
    examples=_LOOPED_EXAMPLES,
    options=_LOOPED_OPTIONS,
)
def nnet3_compute_looped(
    run: UtteranceRun,
    *,
    ivectors: str,
    utt2spk: str,
    online_ivectors: str,
    online_ivector_period: int,
    **options: Any,
) -> int:
    """Run a trained nnet3 network over features, chunk by chunk, as while the frames come.

    A chunk uses the rows that earlier chunks have computed. So nothing is computed twice, and
    recurrences have no limit to the left. The outputs are those that Kaldi's looped decoders
    (nnet3-latgen-faster-looped) decode. NNET-IN is a Kaldi model, .raw or .mdl, or the folder of a
    speech model, for tables of WAV files, too.
    """
    inputs.check_ivector_options(ivectors, online_ivectors, online_ivector_period)
    model = run.load_model()
    options = run.of_folder(options)
    if (recordings := run.recordings(model)) is not None:
        online_ivector_period = recordings.ivector_period
    tables = ivectors, online_ivectors, utt2spk
    inputs.check_model(
        run.model_in,
        model,
        recordings,
        tables,
        use_priors=options["use_priors"],
    )
    model.stream(**options)  # raises errors of the network before a table is opened
    lengths = {name: options[name] for name in ("frames_per_chunk", "frame_subsampling_factor")}
    inputs.log_rounding(nnet3.ChunkOptions(**lengths), model)
    with inputs.opened_ivectors(tables, recordings) as ivectors_of:

        def prepare(utterance: str, frames: nnet3_tables.FloatArray) -> nnet3.Work:
            ivector, online = ivectors_of(utterance)
            return _work(model, frames, ivector, online, online_ivector_period, options)

        return run.write(
            model,
            nnet3_tables.MatrixWriter,
            prepare,
            tables=filter(None, tables),
            recordings=recordings,
        )


def _work(
    model: nnet3.Model,
    frames: nnet3_tables.FloatArray,
    ivector: nnet3_tables.FloatArray | None,
    online: nnet3_tables.FloatArray | None,
    period: int,
    options: dict[str, Any],
) -> nnet3.Work:
    """The work of an utterance: one task, since each chunk needs the one before."""
    import numpy as np

    outputs: list[nnet3_tables.FloatArray] = []

    def compute() -> None:
        stream = model.stream(**options)
        if online is None:
            outputs.extend([stream.push(frames, ivector), stream.finish()])
            return
        if not len(online):
            raise nnet3_runtime_cuda.RunError("expected at least 1 online i-vector, found 0")
        missing = -(-len(frames) // options["frame_subsampling_factor"])
        begin = 0
        while missing:
            # As in Kaldi, a chunk has the i-vector of the frame after its last one.
            end = begin + stream.frames_to_outputs()
            times = np.arange(begin, end).clip(0, len(frames) - 1)
            row = min(end // period, len(online) - 1)
            outputs.append(stream.push(frames[times], online[row])[:missing])
            missing -= len(outputs[-1])
            begin = end

    return nnet3.Work(tasks=[compute], finish=lambda: np.concatenate(outputs))
