"""nnet3-chain-copy-egs: copies examples of chain models, changed as the options say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nnet3_tools.egs.copying import ContextCutter, Copying, CopyOptions, copy_options
from nnet3_tools.kaldi_command import KaldiCommand, run_tool

if TYPE_CHECKING:
    from nnet3_training import TrainingExample
    from nnet3_training.egs import CRandom

NAME = "nnet3-chain-copy-egs"


@click.command(cls=KaldiCommand)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER...", nargs=-1, required=True)
@copy_options
def command(egs_in: str, egs_out: tuple[str, ...], **given: Any) -> None:
    """Copy the examples of EGS-RSPECIFIER to one table, or by turns to several.

    Unchanged parts are written back byte for byte, unless a table changes from text to binary or
    back.
    """
    from nnet3_training.chain import shifted, with_output_name, with_weight

    from nnet3_tools.chain.egs.examples import CHAIN

    options = CopyOptions.given(**given)
    context = ContextCutter(NAME, options)

    def change(example: TrainingExample, rng: CRandom) -> TrainingExample:
        weight, name = options.relabelled(example.key)
        if weight is not None:
            example = with_weight(example, weight)
        if name is not None:
            example = with_output_name(example, name)
        return context.cut(shifted(example, options.frame_shift))

    Copying(tool=NAME, form=CHAIN, options=options, change=change).run(egs_in, egs_out)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
