"""nnet3-compute: runs a network over a table of features and writes its outputs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_runtime_cuda
import nnet3_tables

from nnet3_tools.chosen_workers import DASK, JOBS
from nnet3_tools.compute.utterance_tool import MEMORY, UtteranceRun, utterance_tool
from nnet3_tools.kaldi_command import boolean_option, log, run_tool

if TYPE_CHECKING:
    from nnet3_runtime_cuda import BatchOptions, ChunkOptions, Model, ScoreOptions, Work
    from nnet3_tables import FloatArray, MatrixLookup, VectorLookup

NAME = "nnet3-compute"

EXAMPLES = """\
  nnet3-compute final.raw scp:feats.scp ark:output.ark
  nnet3-compute --frame-subsampling-factor=3 --online-ivectors=scp:ivectors.scp \\
      --online-ivector-period=10 final.mdl scp:feats.scp ark,t:-
  nnet3-compute --use-priors final.mdl 'ark:copy-feats scp:feats.scp ark:- |' ark:loglikes.ark"""


@attrs.frozen(kw_only=True)
class IvectorSource:
    """The tables of i-vectors that the options name, if any."""

    vectors: VectorLookup | None
    matrices: MatrixLookup | None
    speakers: Mapping[str, str] | None

    @classmethod
    @contextlib.contextmanager
    def open(cls, ivectors: str, online_ivectors: str, utt2spk: str) -> Iterator[IvectorSource]:
        """Opens the tables that the options name.

        Raises:
            TableError: a table cannot be read, or the command that it comes from fails.
        """
        with contextlib.ExitStack() as tables:
            yield cls(
                vectors=tables.enter_context(nnet3_tables.VectorLookup(ivectors))
                if ivectors
                else None,
                matrices=(
                    tables.enter_context(nnet3_tables.MatrixLookup(online_ivectors))
                    if online_ivectors
                    else None
                ),
                speakers=nnet3_tables.read_tokens(utt2spk) if utt2spk else None,
            )

    def of(self, utterance: str) -> tuple[FloatArray | None, FloatArray | None]:
        """The i-vector of an utterance and its online i-vectors; None for each that it lacks.

        Raises:
            RunError: the utterance has no i-vector, or no speaker.
            TableError: the i-vector cannot be read.
        """
        if self.vectors is not None:
            key = utterance
            if self.speakers is not None:
                if utterance not in self.speakers:
                    raise nnet3_runtime_cuda.RunError("--utt2spk names no speaker for it")
                key = self.speakers[utterance]
            return _present(self.vectors.get(key), f"no i-vector for '{key}'"), None
        if self.matrices is not None:
            found = self.matrices.get(utterance)
            return None, _present(found, f"no online i-vectors for '{utterance}'")
        return None, None


def _present(array: FloatArray | None, message: str) -> FloatArray:
    if array is None:
        raise nnet3_runtime_cuda.RunError(message)
    return array


def _text(name: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, default="", metavar="RSPECIFIER", help=help_text)


def frames_option(name: str, default: int, help_text: str) -> Callable[[Any], Any]:
    """An option that is a number of frames."""
    return click.option(name, default=default, show_default=True, metavar="FRAMES", help=help_text)


def check_ivector_options(ivectors: str, online_ivectors: str, period: int) -> None:
    """Raises a UsageError if options for i-vectors contradict each other."""
    if ivectors and online_ivectors:
        raise click.UsageError("--ivectors and --online-ivectors cannot be given together")
    if online_ivectors and period <= 0:
        raise click.UsageError("--online-ivectors needs --online-ivector-period=FRAMES")


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

SCORE_OPTIONS = (
    click.option("--acoustic-scale", default=1.0, show_default=True, help="Multiplies the output."),
    boolean_option("--apply-exp", help="Write the exponential of the output."),
    boolean_option("--use-priors", help="Subtract the logarithm of the priors in a .mdl file."),
)

CHUNK_OPTIONS = (
    *IVECTOR_OPTIONS,
    frames_option("--frames-per-chunk", 50, "Frames to compute at a time, before subsampling."),
    frames_option(
        "--frame-subsampling-factor", 1, "Number of input frames for each row of output."
    ),
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
    *SCORE_OPTIONS,
)

OPTIONS = (*CHUNK_OPTIONS, MEMORY, JOBS, DASK)


@utterance_tool(NAME, output="MATRIX-WSPECIFIER", examples=EXAMPLES, options=OPTIONS)
def command(
    run: UtteranceRun,
    *,
    ivectors: str,
    utt2spk: str,
    online_ivectors: str,
    use_priors: bool,
    acoustic_scale: float,
    apply_exp: bool,
    memory: int,
    jobs: int,
    dask: str | None,
    **chunk: int,
) -> int:
    """Run a trained nnet3 network over features and write its output for each utterance.

    NNET-IN is a Kaldi model, .raw or .mdl; the features of each utterance are a matrix with a row
    for each frame. Edge frames are repeated where the network needs context, and batch-norm and
    dropout are in test mode. Equal chunks of several utterances are computed together.
    """
    score_options = nnet3_runtime_cuda.ScoreOptions(
        use_priors=use_priors, acoustic_scale=acoustic_scale, apply_exp=apply_exp
    )
    chunk_options = nnet3_runtime_cuda.ChunkOptions(**chunk)
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
        nnet3_runtime_cuda.BatchOptions(memory=memory),
    )


def _log_rounding(run: UtteranceRun, options: ChunkOptions, model: Model) -> None:
    """Says, as Kaldi's tools do, that chunks have more frames than --frames-per-chunk."""
    frames = options.rounded(model.nnet.modulus).frames_per_chunk
    if frames != options.frames_per_chunk:
        log(
            run.tool,
            f"Chunks have {frames} frames: --frames-per-chunk={options.frames_per_chunk} is no "
            f"multiple of --frame-subsampling-factor={options.frame_subsampling_factor} and of the "
            f"network's modulus, {model.nnet.modulus}",
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
        RunError: priors are asked for but missing.
    """
    from nnet3_tools.compute.shards import outputs_of

    check_ivector_options(tables[0], tables[1], chunk_options.online_ivector_period)
    run.check_shards(filter(None, tables))
    model = run.load_model()
    score_options.check(model.priors)
    _log_rounding(run, chunk_options, model)
    options = {
        name: getattr(each, name)
        for each in (score_options, chunk_options)
        for name in attrs.fields_dict(type(each))
    }
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

    Returns:
        The exit status.

    Raises:
        click.UsageError: the options for i-vectors contradict each other.
        TableError: a table cannot be opened or written.
        RunError: priors are asked for but missing.
    """
    check_ivector_options(ivectors, online_ivectors, chunk_options.online_ivector_period)
    model = run.load_model()
    if score_options.use_priors and model.priors is None:
        raise nnet3_runtime_cuda.RunError(
            f"{run.model_in} has no priors; --use-priors needs a .mdl file that has them"
        )
    score_options.check(model.priors)
    _log_rounding(run, chunk_options, model)
    with IvectorSource.open(ivectors, online_ivectors, utt2spk) as source:

        def prepare(utterance: str, frames: FloatArray) -> Work:
            ivector, online = source.of(utterance)
            return model.compute_work(
                frames, ivector, online, chunk_options, score_options, batches
            )

        tables = filter(None, (ivectors, utt2spk, online_ivectors))
        step = chunk_options.frame_subsampling_factor
        return run.write(
            model, nnet3_tables.MatrixWriter, prepare, tables=tables, batches=batches, step=step
        )


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
