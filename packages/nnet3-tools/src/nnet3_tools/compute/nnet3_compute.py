"""nnet3-compute: runs a network over a table of features and writes its outputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import attrs
import nnet3
import nnet3_tables

from nnet3_tools.chosen_workers import DASK, JOBS
from nnet3_tools.compute.compute_options import (
    CHUNK_OPTIONS,
    check_ivector_options,
    check_model,
    log_rounding,
)
from nnet3_tools.compute.ivector_source import IvectorSource
from nnet3_tools.compute.utterance_tool import MEMORY, UtteranceRun, utterance_tool
from nnet3_tools.kaldi_command import run_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from nnet3 import BatchOptions, Model, Work
    from nnet3_tables import FloatArray

NAME = "nnet3-compute"

EXAMPLES = """\
  nnet3-compute final.raw scp:feats.scp ark:output.ark
  nnet3-compute --frame-subsampling-factor=3 --online-ivectors=scp:ivectors.scp \\
      --online-ivector-period=10 final.mdl scp:feats.scp ark,t:-
  nnet3-compute vosk-model-small-ko-0.22 scp:wav.scp ark:output.ark
  nnet3-compute --use-priors final.mdl 'ark:copy-feats scp:feats.scp ark:- |' ark:loglikes.ark"""


OPTIONS = (*CHUNK_OPTIONS, MEMORY, JOBS, DASK)


@utterance_tool(NAME, output="MATRIX-WSPECIFIER", examples=EXAMPLES, options=OPTIONS)
def command(run: UtteranceRun, *, memory: int, jobs: int, dask: str | None, **options: Any) -> int:
    """Run a trained nnet3 network over features and write its output for each utterance.

    NNET-IN is a Kaldi model, .raw or .mdl; the features of each utterance are a matrix with a row
    for each frame. Or NNET-IN is the folder of a speech model, of Vosk or of Kaldi: then a table
    such as scp:wav.scp may name WAV files in place of features, whose features and i-vectors are
    computed. Edge frames are repeated where the network needs context, and batch-norm and dropout
    are in test mode. Equal chunks of several utterances are computed together.
    """
    return compute_chunks(run, options, nnet3.BatchOptions(memory=memory), jobs=jobs, dask=dask)


def compute_chunks(
    run: UtteranceRun,
    options: dict[str, Any],
    batches: BatchOptions,
    make_change: Callable[[Model], Callable[[FloatArray], FloatArray]] | None = None,
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
    names = attrs.fields_dict(nnet3.ChunkOptions)
    chunk_options = nnet3.ChunkOptions(
        **{name: options.pop(name) for name in names if name in options}
    )
    score_options = nnet3.ScoreOptions(**options)
    has_ivectors = any(tables[:2])
    check_ivector_options(tables[0], tables[1], chunk_options.online_ivector_period)
    if jobs or dask:
        run.check_shards(filter(None, tables))
    model = run.load_model()
    recordings = run.recordings(model)
    if recordings is not None:
        has_ivectors = recordings.takes_ivectors(has_ivectors)
        chunk_options = attrs.evolve(chunk_options, online_ivector_period=recordings.ivector_period)
    check_model(run, model, has_ivectors=has_ivectors, use_priors=score_options.use_priors)
    score_options.check(model.priors)
    log_rounding(run, chunk_options, model)
    change = None if make_change is None else make_change(model)
    with IvectorSource.open(*tables) as source:
        if jobs or dask:
            from nnet3_tools.compute.shards import outputs_of

            fields = attrs.asdict(chunk_options) | attrs.asdict(score_options)
            return run.write_by_workers(
                model,
                nnet3_tables.MatrixWriter,
                functools.partial(outputs_of, options=fields),
                jobs,
                dask,
                ivectors=source.of,
                recordings=recordings,
            )

        def prepare(utterance: str, frames: FloatArray) -> Work:
            ivector, online = (recordings or source).of(utterance)
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


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
