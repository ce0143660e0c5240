"""nnet3-info: describes a network in text."""

import click
from nnet3_descriptors import read_nnet

from nnet3_tools.kaldi_command import KaldiCommand, common_options, run_tool
from nnet3_tools.streams import print_text, readable

NAME = "nnet3-info"


@click.command(cls=KaldiCommand)
@click.argument("nnet_in", metavar="NNET-IN")
@common_options
def command(nnet_in: str) -> None:
    """Print the context, nodes and components of the network in NNET-IN, .raw or .mdl."""
    with readable(nnet_in) as source:
        nnet = read_nnet(source)
    print_text(nnet.info())


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
