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
    from nnet3_tools.objectives.objective_log import log_probability, say_compiling

    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    training = nnet3_training.ChainTraining(nnet, read_den_fst(den_fst), taken(options))
    tested = nnet3_training.in_test_mode(
        nnet, batchnorm=batchnorm_test_mode, dropout=dropout_test_mode
    )
    evaluator = nnet3_training.Evaluator(tested, objective=training)
    for entry in CHAIN.entries(egs_in):
        evaluator.add(entry.value)
    for name, total in evaluator.objectives.items():
        log(_PLACE, log_probability(name, total))
    say_compiling(evaluator.compile_seconds, lambda line: log(NAME, line))
    if not any(total.weight > 0.0 for total in evaluator.objectives.values()):
        raise NothingDoneError(f"'{egs_in}' has no examples with weight")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
