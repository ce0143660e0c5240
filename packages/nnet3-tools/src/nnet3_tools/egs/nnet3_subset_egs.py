"""nnet3-subset-egs: some of many examples."""

from nnet3_tools.egs.forms import NNET3
from nnet3_tools.egs.order import subset_command
from nnet3_tools.kaldi_command import run_tool

NAME = "nnet3-subset-egs"
command = subset_command(NAME, NNET3)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
