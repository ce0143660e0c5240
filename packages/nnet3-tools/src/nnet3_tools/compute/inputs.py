"""What the tools that run a network are given: options for each frame, i-vectors, recordings."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click
import nnet3_runtime_cuda
import nnet3_tables
from nnet3_descriptors import Nnet3Error

from nnet3_tools import cli, progress
from nnet3_tools.recordings import recordings

if TYPE_CHECKING:
    from nnet3 import ChunkOptions, Model
    from nnet3_speech import Recording


def _text(name: str, help_text: str) -> cli.Parameter:
    return cli.option(name, "", help_text, "RSPECIFIER")


def frames_option(name: str, default: int, help_text: str) -> cli.Parameter:
    """An option that is a number of frames."""
    return cli.option(name, default, help_text, "FRAMES", shown=True)


SUBSAMPLING = cli.option(
    "--frame-subsampling-factor",
    None,
    "Number of input frames for each row of output.  [default: what the folder of the model "
    "says, or 1]",
    "FRAMES",
    type=int,
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


ACOUSTIC_SCALE = cli.option(
    "--acoustic-scale",
    None,
    "Multiplies the output.  [default: what the folder of the model says, or 1.0]",
    type=float,
)


SCORE_OPTIONS = (
    cli.option(
        "--scores",
        "raw",
        "What the values become before priors and scale: log-softmax makes log-probabilities "
        "of the scores of chain models.",
        shown=True,
        type=click.Choice(["raw", "log-softmax"]),
    ),
    ACOUSTIC_SCALE,
    cli.boolean_option("--apply-exp", "Write the exponential of the output."),
    cli.boolean_option("--use-priors", "Subtract the logarithm of the priors in a .mdl file."),
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


def check_model(
    model_in: str,
    model: Model,
    recordings: Recordings | None,
    tables: Sequence[str],
    *,
    use_priors: bool,
) -> None:
    """Checks that the options fit the network, so that not every utterance fails.

    Args:
        model_in: Its name.
        model: The model.
        recordings: What the table has instead of features, if it has.
        tables: Those of --ivectors, --online-ivectors and --utt2spk; "" for none.
        use_priors: Whether priors are asked for.

    Raises:
        click.UsageError: a table is given for recordings, whose own i-vectors are computed.
        RunError: i-vectors or priors are missing, or i-vectors are not wanted.
    """
    has_ivectors = any(tables[:2])
    if recordings is not None:
        if any(tables):
            raise click.UsageError(
                "the i-vectors of WAV files are computed, from each file alone; expected no "
                "--ivectors, --online-ivectors or --utt2spk"
            )
        has_ivectors = model.ivector_dim > 0
    if model.ivector_dim and not has_ivectors:
        raise nnet3_runtime_cuda.RunError(
            f"{model_in} takes i-vectors of dimension {model.ivector_dim}; expected --ivectors "
            "or --online-ivectors"
        )
    if has_ivectors and not model.ivector_dim:
        raise nnet3_runtime_cuda.RunError(
            f"{model_in} has no input node 'ivector'; expected neither --ivectors nor "
            "--online-ivectors"
        )
    if use_priors and model.priors is None:
        raise nnet3_runtime_cuda.RunError(
            f"{model_in} has no priors; --use-priors needs a .mdl file that has them"
        )


def log_rounding(options: ChunkOptions, model: Model) -> None:
    """Says, as Kaldi's tools do, that chunks have more frames than --frames-per-chunk."""
    frames = options.rounded(model.modulus).frames_per_chunk
    if frames != options.frames_per_chunk:
        cli.log(
            f"Chunks have {frames} frames: --frames-per-chunk={options.frames_per_chunk} is no "
            f"multiple of --frame-subsampling-factor={options.frame_subsampling_factor} and of the "
            f"network's modulus, {model.modulus}"
        )


Ivectors = tuple["nnet3_tables.FloatArray | None", "nnet3_tables.FloatArray | None"]
"""The i-vector of an utterance (dim,) and its online i-vectors (rows, dim)."""


@contextlib.contextmanager
def opened_ivectors(
    tables: Sequence[str], recordings: Recordings | None
) -> Iterator[Callable[[str], Ivectors]]:
    """A context with a function that gives the i-vectors of an utterance.

    It raises a LackingError if the utterance has no i-vector, or no speaker, and a TableError if
    the i-vector cannot be read.

    Args:
        tables: Those of --ivectors, --online-ivectors and --utt2spk; "" for none.
        recordings: What the table of features has instead, if it has; then theirs.

    Raises:
        TableError: a table cannot be read, or the command that it comes from fails.
    """
    ivectors, online_ivectors, utt2spk = tables
    if recordings is not None:
        yield recordings.ivectors_of
        return
    with contextlib.ExitStack() as stack:
        vectors = matrices = None
        if ivectors:
            vectors = stack.enter_context(nnet3_tables.VectorLookup(ivectors))
        if online_ivectors:
            matrices = stack.enter_context(nnet3_tables.MatrixLookup(online_ivectors))
        speakers = nnet3_tables.read_tokens(utt2spk) if utt2spk else None

        def ivectors_of(utterance: str) -> Ivectors:
            if matrices is not None:
                matrix = matrices.get(utterance)
                if matrix is None:
                    raise progress.LackingError(f"no online i-vectors for '{utterance}'")
                return None, matrix
            if vectors is None:
                return None, None
            if speakers is not None and utterance not in speakers:
                raise progress.LackingError("--utt2spk names no speaker for it")
            key = utterance if speakers is None else speakers[utterance]
            vector = vectors.get(key)
            if vector is None:
                raise progress.LackingError(f"no i-vector for '{key}'")
            return vector, None

        yield ivectors_of


_MARKS = (b"RIFF", b"RIFX")


Samples = tuple["nnet3_tables.FloatArray", float]
"""Samples (n,) in the units of 16-bit integers, and their rate."""


def has_recordings(features: str) -> bool:
    """Whether a table is a script file whose first file that can be opened is a WAV file.

    False for what can be read only once, such as a pipe.

    Raises:
        TableError: the script file cannot be read.
    """
    specifier = nnet3_tables.Specifier.to_read(features)
    files = specifier.files
    if not (specifier.is_script and files and all(map(os.path.isfile, files))):
        return False
    for _, opened in nnet3_tables.read_files(features):
        try:
            with opened() as file:
                return file.read(4) in _MARKS
        except Nnet3Error:
            continue  # the reader of the table will report it
    return False


class Recordings:
    """The recordings of a table, as features and i-vectors.

    Attributes:
        ivector_period: Frames between two rows of the i-vectors; 0 if the model takes none.
    """

    def __init__(self, table: str, model: Model) -> None:
        """Looks for what the recordings need.

        Args:
            table: A script file of WAV files.
            model: The model.

        Raises:
            RunError, SpeechError: the model has no folder, or this lacks a file.
        """
        self._table = table
        self._model = model
        self._ivectors: nnet3_tables.FloatArray | None = None
        self.ivector_period = model.feature_pipeline().ivector_period

    def __iter__(self) -> Iterator[tuple[str, Callable[[], nnet3_tables.FloatArray]]]:
        """The key of each recording, and a function that computes its features (frames, dim)."""
        for key, read in recordings(self._table):
            yield key, partial(self._features, read)

    def samples(self) -> Iterator[tuple[str, Callable[[], Samples]]]:
        """The key of each recording, and a function that reads its samples."""
        for key, read in recordings(self._table):
            yield key, partial(samples_of, read)

    def _features(self, read: Callable[[], Recording]) -> nnet3_tables.FloatArray:
        found = self._model.features(samples_of(read))
        self._ivectors = found.online_ivectors
        return found.features

    def ivectors_of(self, _: str) -> Ivectors:
        """Those of the recording whose features were computed last; see `opened_ivectors`."""
        return None, self._ivectors


def samples_of(read: Callable[[], Recording]) -> Samples:
    """Reads a recording.

    Raises:
        RunError, SpeechError: it has several channels, or cannot be read.
    """
    recording = read()
    if len(recording.samples) != 1:
        raise nnet3_runtime_cuda.RunError(
            f"expected a recording of one channel, found {len(recording.samples)}"
        )
    return recording.samples[0], recording.rate
