"""nnet3-get-egs-dense-targets: makes examples of features and of dense targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import nnet3_tables
import nnet3_training

from nnet3_tools.egs.splitting import (
    ExampleMaker,
    labels_option,
    split_options,
)
from nnet3_tools.kaldi_command import KaldiCommand, run_tool

if TYPE_CHECKING:
    from nnet3_tools.egs.splitting import Known

NAME = "nnet3-get-egs-dense-targets"


@click.command(cls=KaldiCommand)
@click.argument("features_in", metavar="FEATURES-RSPECIFIER")
@click.argument("targets_in", metavar="TARGETS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
@click.option("--num-targets", default=-1, help="Columns that targets must have; -1 for any.")
@split_options
@labels_option
def command(
    features_in: str, targets_in: str, egs_out: str, num_targets: int, **options: Any
) -> None:
    """Make examples of the utterances of FEATURES-RSPECIFIER, and write them to EGS-WSPECIFIER.

    TARGETS-RSPECIFIER has a matrix for each utterance, with a row for each output frame.
    """
    from nnet3_training.egs import read_stored_matrix

    table = nnet3_tables.ObjectLookup(targets_in, read_stored_matrix)

    def supervision(key: str) -> Known | None:
        matrix = table.take(key)
        if matrix is None or not matrix.shape[0]:
            return None
        if 0 <= num_targets != matrix.shape[1]:
            raise click.ClickException(
                f"the targets of '{key}' have {matrix.shape[1]} columns, not {num_targets}"
            )
        return (
            matrix
            if isinstance(matrix, nnet3_training.SparsePosteriors)
            else nnet3_training.DenseTargets(values=matrix)
        )

    maker = ExampleMaker(tool=NAME, what="target matrix", supervision=supervision, options=options)
    maker.run(features_in, egs_out, targets_in)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
