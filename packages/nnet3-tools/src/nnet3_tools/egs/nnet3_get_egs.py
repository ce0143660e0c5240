"""nnet3-get-egs: makes examples of features and posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import nnet3_tables

from nnet3_tools.egs.splitting import (
    ExampleMaker,
    labels_option,
    posteriors_of,
    split_options,
)
from nnet3_tools.kaldi_command import KaldiCommand, run_tool

if TYPE_CHECKING:
    from nnet3_training import SparsePosteriors

NAME = "nnet3-get-egs"


@click.command(cls=KaldiCommand)
@click.argument("features_in", metavar="FEATURES-RSPECIFIER")
@click.argument("posteriors_in", metavar="POSTERIORS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
@click.option("--num-pdfs", type=click.IntRange(min=1), required=True, help="Number of classes.")
@split_options
@labels_option
def command(
    features_in: str, posteriors_in: str, egs_out: str, num_pdfs: int, **options: Any
) -> None:
    """Make examples of the utterances of FEATURES-RSPECIFIER, and write them to EGS-WSPECIFIER.

    POSTERIORS-RSPECIFIER has the classes of each output frame, with weights.
    """
    from nnet3_training.egs import read_posterior

    table = nnet3_tables.ObjectLookup(posteriors_in, read_posterior)

    def supervision(key: str) -> SparsePosteriors | None:
        frames = table.take(key)
        return posteriors_of(key, frames, num_pdfs, posteriors_in) if frames else None

    maker = ExampleMaker(
        tool=NAME, what="pdf-level posterior", supervision=supervision, options=options
    )
    maker.run(features_in, egs_out, posteriors_in)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
