"""nnet3-compute: runs a network over a table of features and writes its outputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import attrs
import click
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

    from nnet3 import BatchOptions, ChunkOptions, Model, ScoreOptions, Work
    from nnet3_tables import FloatArray

NAME = "nnet3-compute"

EXAMPLES = """\
  nnet3-compute final.raw scp:feats.scp ark:output.ark
  nnet3-compute --frame-subsampling-factor=3 --online-ivectors=scp:ivectors.scp \\
      --online-ivector-period=10 final.mdl scp:feats.scp ark,t:-
  nnet3-compute vosk-model-small-ko-0.22 scp:wav.scp ark:output.ark
  nnet3-compute --use-priors final.mdl 'ark:copy-feats scp:feats.scp ark:- |' ark:loglikes.ark"""


OPTIONS = (
    *CHUNK_OPTIONS,
    click.option(
        "--output",
        "node",
        default="output",
        show_default=True,
        metavar="NODE",
        help="The node whose values are written: another output, such as output-xent, or any other "
        "node, such as a bottleneck layer.",
    ),
    click.option(
        "--scores",
        type=click.Choice(["raw", "log-softmax"]),
        default="raw",
        show_default=True,
        help="What the values become before priors and scale: log-softmax makes log-probabilities "
        "of the scores of chain models.",
    ),
    MEMORY,
    JOBS,
    DASK,
)


@utterance_tool(NAME, output="MATRIX-WSPECIFIER", examples=EXAMPLES, options=OPTIONS)
def command(
    run: UtteranceRun,
    *,
    ivectors: str,
    utt2spk: str,
    online_ivectors: str,
    use_priors: bool,
    acoustic_scale: float | None,
    apply_exp: bool,
    node: str,
    scores: Literal["raw", "log-softmax"],
    memory: int,
    jobs: int,
    dask: str | None,
    **chunk: int | None,
) -> int:
    """Run a trained nnet3 network over features and write its output for each utterance.

    NNET-IN is a Kaldi model, .raw or .mdl; the features of each utterance are a matrix with a row
    for each frame. Or NNET-IN is the folder of a speech model, of Vosk or of Kaldi: then a table
    such as scp:wav.scp may name WAV files in place of features, whose features and i-vectors are
    computed. Edge frames are repeated where the network needs context, and batch-norm and dropout
    are in test mode. Equal chunks of several utterances are computed together.
    """
    run = attrs.evolve(run, node=node)
    given = {"use_priors": use_priors, "acoustic_scale": acoustic_scale, "apply_exp": apply_exp}
    score_options = nnet3.ScoreOptions(scores=scores, **run.of_folder(given))
    chunk_options = nnet3.ChunkOptions(**run.of_folder(chunk))
    if jobs or dask:
        tables = ivectors, online_ivectors, utt2spk
        return compute_by_workers(run, tables, score_options, chunk_options, jobs, dask)
    return compute_chunks(
        run,
        ivectors,
        utt2spk,
        online_ivectors,
        score_options,
        chunk_options,
        nnet3.BatchOptions(memory=memory),
    )


def compute_by_workers(
    run: UtteranceRun,
    tables: tuple[str, str, str],
    score_options: ScoreOptions,
    chunk_options: ChunkOptions,
    jobs: int,
    dask: str | None,
) -> int:
    """Computes shards of the table in processes, and writes the outputs.

    Args:
        run: The arguments and options that all tools share.
        tables: I-vectors, online i-vectors, and speakers; "" for none.
        score_options: How outputs become scores.
        chunk_options: How utterances are cut.
        jobs: Number of processes.
        dask: The scheduler of a Dask cluster; None for processes of this machine.

    Returns:
        The exit status.

    Raises:
        click.UsageError: options contradict each other.
        TableError: a table cannot be opened or written.
        RunError: i-vectors or priors are missing, or i-vectors are not wanted.
    """
    from nnet3_tools.compute.shards import outputs_of

    check_ivector_options(tables[0], tables[1], chunk_options.online_ivector_period)
    run.check_shards(filter(None, tables))
    model = run.load_model()
    check_model(run, model, has_ivectors=any(tables[:2]), use_priors=score_options.use_priors)
    score_options.check(model.priors)
    log_rounding(run, chunk_options, model)
    options = {
        name: getattr(each, name)
        for each in (score_options, chunk_options)
        for name in attrs.fields_dict(type(each))
    } | {"output": run.node}
    with IvectorSource.open(*tables) as source:
        return run.write_by_workers(
            model,
            nnet3_tables.MatrixWriter,
            functools.partial(outputs_of, options=options),
            jobs,
            dask,
            ivectors=source.of,
        )


def compute_chunks(
    run: UtteranceRun,
    ivectors: str,
    utt2spk: str,
    online_ivectors: str,
    score_options: ScoreOptions,
    chunk_options: ChunkOptions,
    batches: BatchOptions,
    make_change: Callable[[Model], Callable[[FloatArray], FloatArray]] | None = None,
) -> int:
    """Computes the chunks of all utterances, and writes the outputs.

    Args:
        run: The arguments and options that all tools share.
        ivectors: A table of i-vectors; "" for none.
        utt2spk: A table of speakers; "" for none.
        online_ivectors: A table of online i-vectors; "" for none.
        score_options: How outputs become scores.
        chunk_options: How utterances are cut.
        batches: How utterances share minibatches.
        make_change: Gives what changes the outputs of an utterance before they are written.

    Returns:
        The exit status.

    Raises:
        click.UsageError: the options for i-vectors contradict each other.
        TableError: a table cannot be opened or written.
        RunError: i-vectors or priors are missing, or i-vectors are not wanted.
    """
    check_ivector_options(ivectors, online_ivectors, chunk_options.online_ivector_period)
    model = run.load_model()
    recordings = run.recordings(model)
    has_ivectors = bool(ivectors or online_ivectors)
    if recordings is not None:
        has_ivectors = recordings.takes_ivectors(has_ivectors)
        chunk_options = attrs.evolve(chunk_options, online_ivector_period=recordings.ivector_period)
    check_model(run, model, has_ivectors=has_ivectors, use_priors=score_options.use_priors)
    score_options.check(model.priors)
    log_rounding(run, chunk_options, model)
    change = None if make_change is None else make_change(model)
    with IvectorSource.open(ivectors, online_ivectors, utt2spk) as source:

        def prepare(utterance: str, frames: FloatArray) -> Work:
            ivector, online = (recordings or source).of(utterance)
            work = model.compute_work(
                frames, ivector, online, chunk_options, score_options, batches
            )
            if change is None:
                return work
            return attrs.evolve(work, finish=lambda: change(work.finish()))

        tables = filter(None, (ivectors, utt2spk, online_ivectors))
        step = chunk_options.frame_subsampling_factor
        return run.write(
            model,
            nnet3_tables.MatrixWriter,
            prepare,
            tables=tables,
            batches=batches,
            step=step,
            recordings=recordings,
        )


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
