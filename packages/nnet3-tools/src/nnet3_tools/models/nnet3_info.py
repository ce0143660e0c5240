"""nnet3-info: describes a network in text."""

import click
import nnet3_descriptors
import nnet3_report as drawing

from nnet3_tools.colours import is_coloured, paint
from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, run_tool
from nnet3_tools.models.context import context_of
from nnet3_tools.streams import print_text, readable, terminal_width

NAME = "nnet3-info"


@click.command(cls=KaldiCommand)
@click.argument("nnet_in", metavar="NNET-IN")
@boolean_option(
    "--tree",
    help="Print the layers and their nodes as a tree instead. (-3?): a layer reads the frame 3 "
    "before its own, but also works without it.",
)
def command(nnet_in: str, tree: bool) -> None:
    """Print the context, nodes and components of the network in NNET-IN, .raw or .mdl.

    On a terminal a tree has colours, unless NO_COLOR is set, and keeps to the terminal's width.
    """
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    if not tree:
        print_text(nnet.info(context_of(nnet)))
    elif is_coloured():
        print_text(drawing.format_tree(nnet, paint, width=terminal_width()))
    else:
        print_text(drawing.format_tree(nnet, width=terminal_width()))


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
