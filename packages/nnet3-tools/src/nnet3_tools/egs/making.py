"""Tools that make examples, and how these tools and the recipes split utterances."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import nnet3_tables
import nnet3_training
from nnet3_training import egs

from nnet3_tools import cli, streams
from nnet3_tools.egs import forms

if TYPE_CHECKING:
    from nnet3_descriptors.files import CompressedMatrix, Reader
    from nnet3_training import ChainSupervision, DenseTargets, SparsePosteriors

    Known = SparsePosteriors | DenseTargets | ChainSupervision
    Supervision = Callable[[str, int], Known | None]
    """Gives the supervision of an utterance by its key and its frames; None if there is none."""

_PDFS = click.IntRange(1, 2**31 - 1)

_SPLIT = (
    "left_context",
    "right_context",
    "left_context_initial",
    "right_context_final",
    "num_frames_overlap",
    "frame_subsampling_factor",
)


def posteriors_of(
    key: str, frames: Sequence[Sequence[tuple[int, float]]], dim: int, rspecifier: str
) -> nnet3_training.SparsePosteriors:
    """The supervision of an utterance.

    Args:
        key: The key of the utterance.
        frames: For each frame, classes with weights.
        dim: Number of classes.
        rspecifier: The table that the classes come from.

    Raises:
        click.ClickException: a class is out of range; the error names the table and the utterance.
    """
    try:
        return egs.posteriors(frames, dim)
    except nnet3_training.ExampleError as error:
        raise click.ClickException(f"'{rspecifier}', '{key}': {error}") from error


def weighted_classes(rspecifier: str, dim: int) -> Supervision:
    """The labels of a table with the classes of each frame, with weights; see `posteriors_of`."""
    table = nnet3_tables.ObjectLookup(rspecifier, egs.read_posterior)

    def supervision(key: str, _: int) -> SparsePosteriors | None:
        frames = table.take(key)
        return posteriors_of(key, frames, dim, rspecifier) if frames else None

    return supervision


def known_of(matrix: Any) -> Known:
    """The supervision of an utterance from a matrix that was read, (frames, dim)."""
    if isinstance(matrix, nnet3_training.SparsePosteriors):
        return matrix
    return nnet3_training.DenseTargets(values=matrix)


LABELS_OPTION = cli.option(
    "--targets-length-tolerance", 2, "Frames by which labels may be shorter than features."
)


SPLIT_OPTIONS = (
    cli.option(
        "--num-frames",
        "1",
        "Frames of an example: one number, or several, of which the first may repeat; -1 "
        "for whole utterances.",
    ),
    cli.option("--left-context", 0, "Frames of the input before the output of an example."),
    cli.option("--right-context", 0, "Frames of the input after the output of an example."),
    cli.option(
        "--left-context-initial",
        -1,
        "--left-context for the first example of an utterance; -1 for the same.",
    ),
    cli.option(
        "--right-context-final",
        -1,
        "--right-context for the last example of an utterance; -1 for the same.",
    ),
    cli.option("--num-frames-overlap", 0, "Frames that neighbouring examples share."),
    cli.option(
        "--frame-subsampling-factor", 1, "Frames of the input for each frame of the output."
    ),
    cli.option("--online-ivectors --ivectors", "", "Table of i-vectors."),
    cli.option("--online-ivector-period", 1, "Frames for each i-vector.", least=1),
    cli.option(
        "--length-tolerance", 100, "Frames by which i-vectors may be shorter than features."
    ),
    cli.boolean_option(
        "--compress", "Compress features that are not compressed yet.", default=True
    ),
    cli.option("--srand", 0, "Seed of the random places at which utterances are cut."),
)
"""How utterances are split, and options of i-vectors."""


def parse_split_options(options: Mapping[str, Any]) -> egs.SplitOptions:
    """The split options from the options of a command.

    Raises:
        click.ClickException: the lengths of chunks are not numbers.
        ExampleError: a number is out of range.
    """
    text = options["num_frames"]
    try:
        lengths = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.ClickException(
            f"--num-frames: expected numbers with commas between, found '{text}'"
        ) from None
    return egs.SplitOptions(
        num_frames=() if lengths == (-1,) else lengths, **{name: options[name] for name in _SPLIT}
    )


def rounded_split_options(options: Mapping[str, Any]) -> egs.SplitOptions:
    """The split options with lengths rounded up for subsampling; logs the change.

    Raises:
        click.ClickException, ExampleError: see `parse_split_options`.
    """
    given = parse_split_options(options)
    rounded = given.rounded()
    if rounded != given:
        cli.log(
            f"Rounding up --num-frames={','.join(map(str, given.num_frames))} to multiples of "
            f"--frame-subsampling-factor={given.frame_subsampling_factor}, to: "
            f"{','.join(map(str, rounded.num_frames))}"
        )
    return rounded


def ivector_table(options: Mapping[str, Any]) -> nnet3_tables.ObjectLookup[Any] | None:
    """The table of i-vectors that the options of a tool name, if they name one."""
    name = options["online_ivectors"]
    return nnet3_tables.ObjectLookup(name, read_full_matrix) if name else None


def read_full_matrix(reader: Reader) -> nnet3_tables.FloatArray | CompressedMatrix:
    """Reads a matrix; a compressed one stays so, and a sparse one gets its zeros."""
    from nnet3_descriptors.files import SparseMatrix  # not for --help

    if SparseMatrix.is_next(reader):
        return SparseMatrix.read(reader).dense()
    found = egs.read_stored_matrix(reader)
    assert not isinstance(found, nnet3_training.SparsePosteriors)
    return found


def ivectors_of(
    table: nnet3_tables.ObjectLookup[Any] | None,
    key: str,
    num_frames: int,
    options: Mapping[str, Any],
) -> nnet3_tables.FloatArray | None:
    """The i-vectors of an utterance with so many frames, (rows, dim); None without a table.

    Raises:
        ExampleError: there are none, too few or too many.
    """
    from nnet3_descriptors.files import CompressedMatrix

    if table is None:
        return None
    found = table.take(key)
    if found is None:
        raise nnet3_training.ExampleError(f"No iVectors for utterance {key}")
    vectors: nnet3_tables.FloatArray
    vectors = found.decompressed() if isinstance(found, CompressedMatrix) else found
    covered = len(vectors) * options["online_ivector_period"]
    tolerance = options["length_tolerance"]
    if not len(vectors) or abs(num_frames - covered) > tolerance:
        raise nnet3_training.ExampleError(
            f"utterance {key}: Length difference between feats {num_frames} and iVectors "
            f"{len(vectors)} exceeds tolerance {tolerance}"
        )
    return vectors


def _make(
    features_in: str,
    egs_out: str,
    labels_in: str,
    supervision: Supervision,
    what: str,
    options: Mapping[str, Any],
) -> None:
    """Writes the examples of the utterances of a table.

    Args:
        features_in: The table of features.
        egs_out: The table to write.
        labels_in: The table of the labels.
        supervision: Gives these.
        what: Their name in messages.
        options: The options of the tool.

    Raises:
        NothingDoneError: no example was made.
        TableError, ModelFileError: a table cannot be read or written.
        ExampleError: an option is not valid.
    """
    streams.check_tables([features_in, labels_in], egs_out)
    rng = egs.CRandom(options["srand"])
    splitter = egs.UtteranceSplitter(parse_split_options(options), rng)
    utterance_of = utterance_maker(supervision, f"No {what} for key", options)
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for utterance in usable_utterances(utterance_of, stored_features(features_in)):
            made = egs.make_examples(
                utterance,
                splitter,
                rng,
                compress=options["compress"],
                length_tolerance=options["targets_length_tolerance"],
            )
            if not made:
                cli.warn(
                    f"Not producing egs for utterance {utterance.key} because it is too short: "
                    f"{utterance.features.shape[0]} frames."
                )
            for example in made:
                forms.NNET3.write(writer, example)
        for line in splitter.lines():
            cli.log(line)
        if not splitter.num_chunks:
            raise cli.NothingDoneError(f"no example was made of the utterances of '{features_in}'")


def stored_features(rspecifier: str) -> Iterator[tuple[str, Any]]:
    """The keys and features of a table, which may stay compressed."""
    entries = nnet3_tables.read_objects(rspecifier, read_full_matrix)
    return ((entry.key, entry.value) for entry in entries)


def utterance_maker(
    supervision: Supervision,
    missing: str,
    options: Mapping[str, Any],
    *,
    weights: str = "",
    takes_input_rows: bool = False,
) -> Callable[[str, Any], egs.Utterance]:
    """Returns a function that gives an utterance its data, by its key and its features.

    It raises an ExampleError if something is missing, or lengths do not fit each other.

    Args:
        supervision: Gives the labels; the tool ends if it raises something else.
        missing: The error for an utterance without, before its key.
        options: The options of the tool, of which those of i-vectors and of lengths count.
        weights: A table of weights of derivatives; "" for none.
        takes_input_rows: Whether posteriors may also have a row for each input frame. Kaldi's tools
            want one for each output frame.
    """
    ivectors = ivector_table(options)
    weights_of = nnet3_tables.VectorLookup(weights) if weights else None

    def utterance(key: str, features: Any) -> egs.Utterance:
        num_frames = features.shape[0]
        known = supervision(key, num_frames)
        if known is None:
            raise nnet3_training.ExampleError(f"{missing} {key}")
        vectors = ivectors_of(ivectors, key, num_frames, options)
        if not isinstance(known, nnet3_training.ChainSupervision):
            _check_length(key, known, num_frames, options, takes_input_rows=takes_input_rows)
        deriv_weights = None if weights_of is None else weights_of.get(key)
        if weights_of is not None and deriv_weights is None:
            raise nnet3_training.ExampleError(f"No deriv weights for utterance {key}")
        return egs.Utterance(
            key=key,
            features=features,
            supervision=known,
            ivectors=vectors,
            ivector_period=options["online_ivector_period"],
            deriv_weights=deriv_weights,
        )

    return utterance


def usable_utterances(
    utterance_of: Callable[[str, Any], egs.Utterance], entries: Iterable[tuple[str, Any]]
) -> Iterator[egs.Utterance]:
    """The utterances of a table; warns of those that lack something, or do not fit.

    Args:
        utterance_of: Makes an utterance of an entry of the table; see `utterance_maker`.
        entries: Their keys and values.
    """
    num_failed = 0
    for key, value in entries:
        try:
            utterance = utterance_of(key, value)
        except nnet3_training.ExampleError as error:
            cli.warn(cli.one_line(error))
            num_failed += 1
        else:
            yield utterance
    if num_failed:
        cli.warn(f"{num_failed} utterances had errors and could not be processed.")


def _check_length(
    key: str,
    known: SparsePosteriors | DenseTargets,
    frames: int,
    options: Mapping[str, Any],
    *,
    takes_input_rows: bool,
) -> None:
    """Raises an ExampleError if labels do not fit the number of frames."""
    step = options["frame_subsampling_factor"]
    expected = -(-frames // step)
    if (
        takes_input_rows
        and isinstance(known, nnet3_training.SparsePosteriors)
        and egs.has_input_rows(known, frames, step)
    ):
        expected = frames
    if abs(known.shape[0] - expected) > options["targets_length_tolerance"]:
        given = f", {frames} / --frame-subsampling-factor={step}" if step > 1 else ""
        raise nnet3_training.ExampleError(
            f"Supervision does not have expected length for utterance {key}: expected length = "
            f"{expected}{given}, got {known.shape[0]}"
        )


@cli.tool(
    "nnet3-get-egs",
    "FEATURES-RSPECIFIER POSTERIORS-RSPECIFIER EGS-WSPECIFIER",
    cli.option("--num-pdfs", None, "Number of classes.", type=_PDFS, required=True),
    *SPLIT_OPTIONS,
    LABELS_OPTION,
)
def nnet3_get_egs(
    features_in: str, posteriors_in: str, egs_out: str, num_pdfs: int, **options: Any
) -> None:
    """Make examples of the utterances of FEATURES-RSPECIFIER, and write them to EGS-WSPECIFIER.

    POSTERIORS-RSPECIFIER has the classes of each output frame, with weights.
    """
    supervision = weighted_classes(posteriors_in, num_pdfs)
    _make(features_in, egs_out, posteriors_in, supervision, "pdf-level posterior", options)


@cli.tool(
    "nnet3-get-egs-dense-targets",
    "FEATURES-RSPECIFIER TARGETS-RSPECIFIER EGS-WSPECIFIER",
    cli.option("--num-targets", -1, "Columns that targets must have; -1 for any."),
    *SPLIT_OPTIONS,
    LABELS_OPTION,
)
def nnet3_get_egs_dense_targets(
    features_in: str, targets_in: str, egs_out: str, num_targets: int, **options: Any
) -> None:
    """Make examples of the utterances of FEATURES-RSPECIFIER, and write them to EGS-WSPECIFIER.

    TARGETS-RSPECIFIER has a matrix for each utterance, with a row for each output frame.
    """
    table = nnet3_tables.ObjectLookup(targets_in, egs.read_stored_matrix)

    def supervision(key: str, _: int) -> Known | None:
        matrix = table.take(key)
        if matrix is None or not matrix.shape[0]:
            return None
        if 0 <= num_targets != matrix.shape[1]:
            raise click.ClickException(
                f"the targets of '{key}' have {matrix.shape[1]} columns, not {num_targets}"
            )
        return known_of(matrix)

    _make(features_in, egs_out, targets_in, supervision, "target matrix", options)


@cli.tool("nnet3-get-egs-simple", "NAME=MATRICES-RSPECIFIER... EGS-WSPECIFIER")
def nnet3_get_egs_simple(tables: tuple[str, ...], egs_out: str) -> None:
    """Make an example of whole matrices for each key of the first table.

    NAME is the input or output that the rows of a matrix belong to, for t = 0, 1, ... Names of
    outputs begin with "output". Of several tables, all but the first may have further keys.
    """
    (first, first_in), *others = map(_split, tables)
    streams.check_tables([first_in, *(table for _, table in others)], egs_out)
    lookups = [
        (name, nnet3_tables.ObjectLookup(table, egs.read_stored_matrix)) for name, table in others
    ]
    written = failed = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in nnet3_tables.read_objects(first_in, egs.read_stored_matrix):
            matrices = [(first, entry.value)]
            for name, lookup in lookups:
                matrix = lookup.take(entry.key)
                if matrix is None:
                    cli.warn(f"Could not find input for key {entry.key} for io-name={name}")
                    failed += 1
                    break
                matrices.append((name, matrix))
            else:
                forms.NNET3.write(writer, egs.example_of_matrices(entry.key, matrices))
                written += 1
        if failed:
            cli.warn(f"{failed} utterances had errors and could not be processed.")
        if not written:
            raise cli.NothingDoneError(f"no example was made of the matrices of '{first_in}'")


def _split(argument: str) -> tuple[str, str]:
    """The name and the table of an argument."""
    name, equals, table = argument.partition("=")
    if not equals or not name or name.split() != [name]:
        raise click.UsageError(f"expected NAME=RSPECIFIER, found '{argument}'")
    return name, table


@cli.tool(
    "nnet3-xvector-get-egs",
    "RANGES FEATURES-RSPECIFIER EGS-WSPECIFIER...",
    cli.boolean_option("--compress", "Compress features.", default=True),
    cli.option("--num-pdfs", None, "Number of speakers.", type=_PDFS, required=True),
)
def nnet3_xvector_get_egs(
    ranges_in: str, features_in: str, egs_out: tuple[str, ...], compress: bool, num_pdfs: int
) -> None:
    """Write the stretches that the file RANGES names to tables of examples.

    Each line has an utterance, the number of the table from 0, a number that is not used, the first
    frame, the number of frames, and the number of the speaker.
    """
    streams.check_tables([features_in], *egs_out)
    ranges = egs.parse_ranges(streams.read_text(ranges_in).splitlines())
    num_done = num_failed = num_written = 0
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(nnet3_tables.ObjectWriter(name)) for name in egs_out]
        for key, features in nnet3_tables.read_matrices(features_in):
            if key not in ranges:
                cli.warn(
                    f"Could not create examples from utterance {key} because it has no entry in "
                    "the ranges input file."
                )
                num_failed += 1
                continue
            values = features()
            for chunk in ranges[key]:
                example = chunk.example(values, num_pdfs, compress=compress)
                if example is None:
                    cli.warn(
                        f"Unable to create examples for utterance {key}. Requested chunk size of "
                        f"{chunk.num_frames} but utterance has only {len(values)} frames."
                    )
                    continue
                forms.NNET3.write(_writer(writers, chunk), example)
                num_written += 1
            num_done += 1
        cli.log(
            f"Finished generating examples, successfully processed {num_done} feature files, wrote "
            f"{num_written} examples; {num_failed} files had errors."
        )
        if not num_written:
            raise cli.NothingDoneError("no example was written")
    if num_failed > num_done:
        raise cli.NothingDoneError(
            f"expected more utterances with examples than failed ones, found {num_done} and "
            f"{num_failed}"
        )


def _writer(
    writers: list[nnet3_tables.ObjectWriter], chunk: egs.SpeakerChunk
) -> nnet3_tables.ObjectWriter:
    if chunk.archive >= len(writers):
        raise click.ClickException(
            f"'{chunk.key}' is for table {chunk.archive}; there are {len(writers)}, from 0"
        )
    return writers[chunk.archive]
