"""nnet3-shuffle-egs: examples in random order."""

from nnet3_tools.egs.forms import NNET3
from nnet3_tools.egs.order import shuffle_command
from nnet3_tools.kaldi_command import run_tool

NAME = "nnet3-shuffle-egs"
command = shuffle_command(NAME, NNET3)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
