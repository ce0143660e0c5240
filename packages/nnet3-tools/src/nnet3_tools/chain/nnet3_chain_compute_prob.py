"""nnet3-chain-compute-prob: the objective of a chain model on examples."""

from __future__ import annotations

from typing import Any

import click
import nnet3_descriptors
import nnet3_training

from nnet3_tools.chain.options import chain_options, read_den_fst, taken
from nnet3_tools.ignored_options import OF_OBJECTIVES, unused
from nnet3_tools.kaldi_command import KaldiCommand, NothingDoneError, boolean_option, log, run_tool
from nnet3_tools.streams import readable

NAME = "nnet3-chain-compute-prob"
_PLACE = f"{NAME}:PrintTotalStats():nnet-chain-diagnostics.cc:0"
"""The place in Kaldi's source that its scripts expect in log lines with objectives."""


@click.command(
    cls=KaldiCommand,
    ignored=OF_OBJECTIVES | unused("--compute-accuracy", "--compute-per-dim-accuracy"),
)
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("den_fst", metavar="DEN-FST")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@chain_options
@boolean_option("--batchnorm-test-mode", default=True, help="Use batch-norm with its statistics.")
@boolean_option("--dropout-test-mode", default=True, help="Use dropout in test mode: drop nothing.")
def command(
    nnet_in: str,
    den_fst: str,
    egs_in: str,
    batchnorm_test_mode: bool,
    dropout_test_mode: bool,
    **options: Any,
) -> None:
    """Print the objective per frame of the network NNET-IN on the examples of EGS-RSPECIFIER."""
    from nnet3_tools.chain.egs.examples import CHAIN
    from nnet3_tools.objectives.objective_log import value

    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    training = nnet3_training.ChainTraining(nnet, read_den_fst(den_fst), taken(options))
    totals = nnet3_training.compute_chain_prob(
        nnet,
        training,
        (entry.value for entry in CHAIN.entries(egs_in)),
        batchnorm_test_mode=batchnorm_test_mode,
        dropout_test_mode=dropout_test_mode,
    )
    for name, total in totals.items():
        line = value(total).replace(" over ", " per frame, over ")
        log(_PLACE, f"Overall log-probability for '{name}' {line}")
    if not any(total.weight > 0.0 for total in totals.values()):
        raise NothingDoneError(f"'{egs_in}' has no examples with weight")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
