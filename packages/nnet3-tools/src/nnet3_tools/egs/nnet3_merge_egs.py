"""nnet3-merge-egs: merges examples into minibatches."""

import click

from nnet3_tools.egs.merging import IGNORED, merge, merge_options
from nnet3_tools.ignored_options import unused
from nnet3_tools.kaldi_command import KaldiCommand, run_tool

NAME = "nnet3-merge-egs"


@click.command(cls=KaldiCommand, ignored=IGNORED | unused("--multilingual-eg"))
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
@merge_options(minibatch_size="256")
def command(egs_in: str, egs_out: str, minibatch_size: str, compress: bool) -> None:
    """Merge the examples of EGS-RSPECIFIER into minibatches, and write them to EGS-WSPECIFIER."""
    from nnet3_tools.egs.forms import NNET3

    merge(NAME, NNET3, egs_in, egs_out, minibatch_size, compress=compress)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
