"""nnet3-copy: copies a network, changed as the options say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import nnet3_descriptors

from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, log, run_tool
from nnet3_tools.models.model_changes import ModelChanges, model_change_options
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

NAME = "nnet3-copy"


def _with_batchnorm_test_mode(nnet: Nnet, on: bool) -> Nnet:
    from nnet3_descriptors.components import BatchNormComponent  # with all other types

    return nnet.with_components(
        {
            name: component.with_test_mode(on)
            for name, component in zip(nnet.component_names, nnet.components, strict=True)
            if isinstance(component, BatchNormComponent)
        }
    )


@click.command(cls=KaldiCommand)
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("nnet_out", metavar="NNET-OUT")
@boolean_option("--binary", default=True, help="Write the network in binary form.")
@model_change_options
@boolean_option(
    "--batchnorm-test-mode",
    help="Test mode of batch-norm components, unless --prepare-for-test sets it.",
)
def command(
    nnet_in: str, nnet_out: str, binary: bool, batchnorm_test_mode: bool, **options: Any
) -> None:
    """Copy the network in NNET-IN, .raw or .mdl, to NNET-OUT, a .raw file.

    The options apply in this order: --nnet-config, --learning-rate, --scale, --edits-config,
    --edits, --prepare-for-test. A file may be "-", "command |" or "| command".
    """
    changes = ModelChanges(tool=NAME, **options)
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    nnet = changes.scaled(changes.with_learning_rate(changes.with_config(nnet)))
    nnet = changes.with_edits(nnet)
    if changes.prepare_for_test:
        nnet = changes.prepared(nnet)
    else:
        nnet = _with_batchnorm_test_mode(nnet, batchnorm_test_mode)
    with writable(nnet_out) as target:
        nnet3_descriptors.write_nnet(nnet, target, binary=binary)
    log(NAME, f"Copied raw neural net from {nnet_in} to {nnet_out}")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
