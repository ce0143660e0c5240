"""nnet3-xvector-get-egs: makes examples of stretches of utterances and of their speakers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click
import nnet3_tables

from nnet3_tools.kaldi_command import (
    KaldiCommand,
    NothingDoneError,
    boolean_option,
    log,
    run_tool,
    warn,
)
from nnet3_tools.streams import read_text

if TYPE_CHECKING:
    from nnet3_tables import ObjectWriter
    from nnet3_training.egs import SpeakerChunk

NAME = "nnet3-xvector-get-egs"


@click.command(cls=KaldiCommand)
@click.argument("ranges_in", metavar="RANGES")
@click.argument("features_in", metavar="FEATURES-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER...", nargs=-1, required=True)
@boolean_option("--compress", default=True, help="Compress features.")
@click.option("--num-pdfs", type=click.IntRange(min=1), required=True, help="Number of speakers.")
def command(
    ranges_in: str, features_in: str, egs_out: tuple[str, ...], compress: bool, num_pdfs: int
) -> None:
    """Write the stretches that the file RANGES names to tables of examples.

    Each line has an utterance, the number of the table from 0, a number that is not used, the first
    frame, the number of frames, and the number of the speaker.
    """
    from nnet3_training.egs import parse_ranges

    from nnet3_tools.egs.forms import NNET3, check_files

    check_files(features_in, *egs_out)
    ranges = parse_ranges(read_text(ranges_in).splitlines())
    num_done = num_failed = num_written = 0
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(nnet3_tables.ObjectWriter(name)) for name in egs_out]
        for key, features in nnet3_tables.read_matrices(features_in):
            if key not in ranges:
                _warn(
                    f"Could not create examples from utterance {key} because it has no entry in "
                    "the ranges input file."
                )
                num_failed += 1
                continue
            values = features()
            for chunk in ranges[key]:
                example = chunk.example(values, num_pdfs, compress=compress)
                if example is None:
                    _warn(
                        f"Unable to create examples for utterance {key}. Requested chunk size of "
                        f"{chunk.num_frames} but utterance has only {len(values)} frames."
                    )
                    continue
                NNET3.write(_writer(writers, chunk), example)
                num_written += 1
            num_done += 1
        log(
            NAME,
            f"Finished generating examples, successfully processed {num_done} feature files, wrote "
            f"{num_written} examples; {num_failed} files had errors.",
        )
        if not num_written:
            raise NothingDoneError("no example was written")
    if num_failed > num_done:
        raise NothingDoneError(
            f"expected more utterances with examples than failed ones, found {num_done} and "
            f"{num_failed}"
        )


def _writer(writers: list[ObjectWriter], chunk: SpeakerChunk) -> ObjectWriter:
    if chunk.archive >= len(writers):
        raise click.ClickException(
            f"'{chunk.key}' is for table {chunk.archive}; there are {len(writers)}, from 0"
        )
    return writers[chunk.archive]


def _warn(line: str) -> None:
    warn(NAME, line)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
