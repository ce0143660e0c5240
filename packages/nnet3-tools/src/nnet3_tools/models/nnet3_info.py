"""nnet3-info: describes a network in text."""

import click
import nnet3_descriptors
from nnet3_descriptors import drawing

from nnet3_tools.colours import is_coloured, paint
from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, common_options, run_tool
from nnet3_tools.streams import print_text, readable

NAME = "nnet3-info"


@click.command(cls=KaldiCommand)
@click.argument("nnet_in", metavar="NNET-IN")
@boolean_option("--tree", help="Print the layers and their nodes as a tree instead.")
@common_options
def command(nnet_in: str, tree: bool) -> None:
    """Print the context, nodes and components of the network in NNET-IN, .raw or .mdl.

    A tree has colours where standard output is a terminal and NO_COLOR is not set.
    """
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    if not tree:
        print_text(nnet.info())
    elif is_coloured():
        print_text(drawing.format_tree(nnet, paint))
    else:
        print_text(drawing.format_tree(nnet))


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
