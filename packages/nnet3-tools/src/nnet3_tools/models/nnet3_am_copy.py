"""nnet3-am-copy: copies an acoustic model, changed as the options say."""

from typing import Any

import click
import nnet3_descriptors
import nnet3_graph
from nnet3_descriptors import editing

from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, log, run_tool, warn
from nnet3_tools.models.model_changes import ModelChanges, model_change_options
from nnet3_tools.streams import readable, writable

NAME = "nnet3-am-copy"


@click.command(cls=KaldiCommand)
@click.argument("model_in", metavar="MODEL-IN")
@click.argument("model_out", metavar="MODEL-OUT")
@boolean_option("--binary", default=True, help="Write the model in binary form.")
@boolean_option("--raw", help="Write the network only, a .raw file.")
@click.option(
    "--set-raw-nnet", default="", metavar="NNET", help="Take the network from this .raw file."
)
@boolean_option(
    "--convert-repeated-to-block", help="Make repeated affine components block-affine ones."
)
@model_change_options
def command(
    model_in: str,
    model_out: str,
    binary: bool,
    raw: bool,
    set_raw_nnet: str,
    convert_repeated_to_block: bool,
    **options: Any,
) -> None:
    """Copy the acoustic model MODEL-IN, a .mdl file, to MODEL-OUT.

    The options apply in this order: --set-raw-nnet, --nnet-config, --convert-repeated-to-block,
    --learning-rate, --edits-config, --edits, --scale, --prepare-for-test. The context is computed
    again, and priors that no longer fit are removed. A file may be "-", "command |" or "| command".
    """
    changes = ModelChanges(tool=NAME, **options)
    with readable(model_in) as source:
        model = nnet3_descriptors.read_acoustic_model(source)
    nnet = model.nnet
    if set_raw_nnet:
        with readable(set_raw_nnet) as source:
            nnet = nnet3_descriptors.read_nnet(source)
    nnet = changes.with_config(nnet)
    if convert_repeated_to_block:
        nnet = editing.convert_repeated_to_block(nnet)
    nnet = changes.with_edits(changes.with_learning_rate(nnet))
    nnet = changes.prepared(changes.scaled(nnet))
    changed = model.with_nnet(nnet, context=nnet3_graph.compute_context(nnet))
    if changed.priors.size != model.priors.size:
        warn(
            NAME,
            f"Removing priors, of which there are {model.priors.size}: the "
            f"output of the network now has dimension {changed.nnet.node_dim('output')}",
        )
    with writable(model_out) as target:
        if raw:
            nnet3_descriptors.write_nnet(changed.nnet, target, binary=binary)
        else:
            nnet3_descriptors.write_acoustic_model(changed, target, binary=binary)
    form = "to raw format as" if raw else "to"
    log(NAME, f"Copied neural net from {model_in} {form} {model_out}")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
