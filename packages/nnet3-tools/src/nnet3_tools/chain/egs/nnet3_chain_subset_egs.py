"""nnet3-chain-subset-egs: some of many examples of chain models."""

from nnet3_tools.chain.egs.examples import CHAIN
from nnet3_tools.egs.order import subset_command
from nnet3_tools.kaldi_command import run_tool

NAME = "nnet3-chain-subset-egs"
command = subset_command(NAME, CHAIN)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
