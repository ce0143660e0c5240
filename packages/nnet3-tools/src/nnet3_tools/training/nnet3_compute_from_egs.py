"""nnet3-compute-from-egs: the output of a network for each example."""

from __future__ import annotations

import click
import nnet3_descriptors
import nnet3_tables
import nnet3_training
import numpy as np

from nnet3_tools.chain.options import ObjectiveCommand
from nnet3_tools.egs.forms import check_files, form_for
from nnet3_tools.kaldi_command import boolean_option, common_options, log, run_tool
from nnet3_tools.streams import readable

NAME = "nnet3-compute-from-egs"


@click.command(cls=ObjectiveCommand)
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("matrices_out", metavar="MATRICES-WSPECIFIER")
@boolean_option("--binary", default=True, hidden=True, expose_value=False)
@boolean_option("--apply-exp", help="Write the exponentials of outputs.")
@click.option("--output-name", default="output", show_default=True, help="The output to write.")
@click.option("--use-gpu", hidden=True, expose_value=False)
@common_options
def command(
    nnet_in: str, egs_in: str, matrices_out: str, apply_exp: bool, output_name: str
) -> None:
    """Write the output of the network NNET-IN for each example of EGS-RSPECIFIER."""
    check_files(egs_in, matrices_out)
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    evaluator = nnet3_training.Evaluator(nnet)
    count = 0
    with nnet3_tables.MatrixWriter(matrices_out) as writer:
        for entry in form_for(nnet).entries(egs_in):
            outputs = evaluator.outputs(entry.value)
            if output_name not in outputs:
                raise click.ClickException(f"example '{entry.key}' has no output '{output_name}'")
            values = outputs[output_name]
            writer.write(entry.key, np.exp(values) if apply_exp else values)
            count += 1
    log(NAME, f"Processed {count} examples.")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
