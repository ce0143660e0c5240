"""Tools that make examples of features, and of what is known of their frames."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click
import nnet3_tables
from nnet3_training import egs

from nnet3_tools import cli, streams
from nnet3_tools.egs import forms, splitting

if TYPE_CHECKING:
    from nnet3_training import SparsePosteriors


@cli.tool(
    "nnet3-get-egs",
    "FEATURES-RSPECIFIER POSTERIORS-RSPECIFIER EGS-WSPECIFIER",
    cli.option("--num-pdfs", None, "Number of classes.", type=click.IntRange(min=1), required=True),
    *splitting.SPLIT_OPTIONS,
    splitting.LABELS_OPTION,
)
def nnet3_get_egs(
    features_in: str, posteriors_in: str, egs_out: str, num_pdfs: int, **options: Any
) -> None:
    """Make examples of the utterances of FEATURES-RSPECIFIER, and write them to EGS-WSPECIFIER.

    POSTERIORS-RSPECIFIER has the classes of each output frame, with weights.
    """
    table = nnet3_tables.ObjectLookup(posteriors_in, egs.read_posterior)

    def supervision(key: str) -> SparsePosteriors | None:
        frames = table.take(key)
        return splitting.posteriors_of(key, frames, num_pdfs, posteriors_in) if frames else None

    maker = splitting.ExampleMaker(
        what="pdf-level posterior", supervision=supervision, options=options
    )
    maker.run(features_in, egs_out, posteriors_in)


@cli.tool(
    "nnet3-get-egs-dense-targets",
    "FEATURES-RSPECIFIER TARGETS-RSPECIFIER EGS-WSPECIFIER",
    cli.option("--num-targets", -1, "Columns that targets must have; -1 for any."),
    *splitting.SPLIT_OPTIONS,
    splitting.LABELS_OPTION,
)
def nnet3_get_egs_dense_targets(
    features_in: str, targets_in: str, egs_out: str, num_targets: int, **options: Any
) -> None:
    """Make examples of the utterances of FEATURES-RSPECIFIER, and write them to EGS-WSPECIFIER.

    TARGETS-RSPECIFIER has a matrix for each utterance, with a row for each output frame.
    """
    table = nnet3_tables.ObjectLookup(targets_in, egs.read_stored_matrix)

    def supervision(key: str) -> splitting.Known | None:
        matrix = table.take(key)
        if matrix is None or not matrix.shape[0]:
            return None
        if 0 <= num_targets != matrix.shape[1]:
            raise click.ClickException(
                f"the targets of '{key}' have {matrix.shape[1]} columns, not {num_targets}"
            )
        return splitting.known_of(matrix)

    maker = splitting.ExampleMaker(what="target matrix", supervision=supervision, options=options)
    maker.run(features_in, egs_out, targets_in)


@cli.tool("nnet3-get-egs-simple", "NAME=MATRICES-RSPECIFIER... EGS-WSPECIFIER")
def nnet3_get_egs_simple(tables: tuple[str, ...], egs_out: str) -> None:
    """Make an example of whole matrices for each key of the first table.

    NAME is the input or output that the rows of a matrix belong to, for t = 0, 1, ... Names of
    outputs begin with "output". Of several tables, all but the first may have further keys.
    """
    (first, first_in), *others = map(_split, tables)
    for table in (first_in, *(each for _, each in others)):
        forms.check_files(table, egs_out)
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
    cli.option(
        "--num-pdfs", None, "Number of speakers.", type=click.IntRange(min=1), required=True
    ),
)
def nnet3_xvector_get_egs(
    ranges_in: str, features_in: str, egs_out: tuple[str, ...], compress: bool, num_pdfs: int
) -> None:
    """Write the stretches that the file RANGES names to tables of examples.

    Each line has an utterance, the number of the table from 0, a number that is not used, the first
    frame, the number of frames, and the number of the speaker.
    """
    forms.check_files(features_in, *egs_out)
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
