"""nnet3-chain-shuffle-egs: examples of chain models in random order."""

from nnet3_tools.chain.egs.examples import CHAIN
from nnet3_tools.egs.order import shuffle_command
from nnet3_tools.kaldi_command import run_tool

NAME = "nnet3-chain-shuffle-egs"
command = shuffle_command(NAME, CHAIN)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
