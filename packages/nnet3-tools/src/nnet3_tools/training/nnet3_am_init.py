"""nnet3-am-init: makes an acoustic model from a network and a transition model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import nnet3_descriptors
import nnet3_graph

from nnet3_tools.kaldi_command import (
    ArgumentCountError,
    KaldiCommand,
    boolean_option,
    log,
    run_tool,
)
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    from nnet3_descriptors.model_files import TransitionModel

NAME = "nnet3-am-init"


@click.command(cls=KaldiCommand)
@click.argument("names", metavar="TREE TOPOLOGY NNET-IN MODEL-OUT", nargs=-1)
@boolean_option("--binary", default=True, help="Write the model in binary form.")
def command(names: tuple[str, ...], binary: bool) -> None:
    """Make the acoustic model MODEL-OUT, a .mdl file, from the network NNET-IN, a .raw file.

    The transition model is made from TREE and TOPOLOGY. If only one file stands before NNET-IN, it
    must begin with a transition model, and the tool takes that. The model has no priors. A file can
    be "-", "command |" or "| command".
    """
    if len(names) not in (3, 4):
        raise ArgumentCountError(f"expected three or four files, got {len(names)}")
    *origin, nnet_in, model_out = names
    transition_model = _transition_model(origin)
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    left_context, right_context = nnet3_graph.compute_context(nnet)
    model = nnet3_descriptors.AcousticModel(
        transition_model=transition_model,
        nnet=nnet,
        left_context=left_context,
        right_context=right_context,
        priors=(),
    )
    with writable(model_out) as target:
        nnet3_descriptors.write_acoustic_model(model, target, binary=binary)
    log(NAME, f"Initialized am-nnet (neural net acoustic model) and wrote to {model_out}")


def _transition_model(origin: list[str]) -> TransitionModel:
    from nnet3_speech.hmm import read_transitions, read_tree
    from nnet3_training.hmm import initial_transition_model, read_hmm_topology

    if len(origin) == 1:
        with readable(origin[0]) as source:
            return read_transitions(source).model
    with readable(origin[0]) as source:
        tree = read_tree(source)
    with readable(origin[1]) as source:
        topology = read_hmm_topology(source)
    return initial_transition_model(tree, topology)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
