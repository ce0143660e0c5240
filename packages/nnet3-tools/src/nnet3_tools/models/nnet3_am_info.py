"""nnet3-am-info: describes an acoustic model in text."""

import click
import nnet3_descriptors

from nnet3_tools.kaldi_command import KaldiCommand, run_tool
from nnet3_tools.models.context import context_of
from nnet3_tools.streams import print_text, readable

NAME = "nnet3-am-info"


@click.command(cls=KaldiCommand)
@click.argument("model_in", metavar="MODEL-IN")
def command(model_in: str) -> None:
    """Print dimensions, priors and the network of the acoustic model MODEL-IN, a .mdl file."""
    with readable(model_in) as source:
        model = nnet3_descriptors.read_acoustic_model(source)
    print_text(model.info(context_of(model.nnet)))


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
