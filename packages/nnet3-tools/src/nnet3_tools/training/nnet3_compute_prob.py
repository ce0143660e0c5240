"""nnet3-compute-prob: the objective and the accuracy of a network on examples."""

from __future__ import annotations

import click
import nnet3_descriptors
import nnet3_training

from nnet3_tools.ignored_options import OF_OBJECTIVES
from nnet3_tools.kaldi_command import KaldiCommand, NothingDoneError, boolean_option, log, run_tool
from nnet3_tools.streams import readable

NAME = "nnet3-compute-prob"
_PLACE = f"{NAME}:PrintTotalStats():nnet-diagnostics.cc:0"
"""The place in Kaldi's source that its scripts expect in log lines with objectives."""


@click.command(cls=KaldiCommand, ignored=OF_OBJECTIVES | {"--collapse-model": "the optimizer"})
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@boolean_option("--batchnorm-test-mode", default=True, help="Use batch-norm with its statistics.")
@boolean_option("--dropout-test-mode", default=True, help="Use dropout in test mode: drop nothing.")
@boolean_option("--compute-accuracy", default=True, help="Print the accuracy, too.")
@boolean_option("--compute-per-dim-accuracy", help="Print the accuracy of each class, too.")
def command(
    nnet_in: str,
    egs_in: str,
    batchnorm_test_mode: bool,
    dropout_test_mode: bool,
    compute_accuracy: bool,
    compute_per_dim_accuracy: bool,
) -> None:
    """Print the objective per frame of the network NNET-IN on the examples of EGS-RSPECIFIER."""
    from nnet3_tools.egs.forms import form_for
    from nnet3_tools.objectives.objective_log import say_compiling
    from nnet3_tools.training.diagnostics import say_evaluation

    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    nnet = nnet3_training.in_test_mode(
        nnet, batchnorm=batchnorm_test_mode, dropout=dropout_test_mode
    )
    evaluator = nnet3_training.Evaluator(nnet)
    for entry in form_for(nnet).entries(egs_in):
        evaluator.add(entry.value)
    if not compute_accuracy:
        evaluator.accuracies.clear()
    say_evaluation(
        evaluator, nnet, lambda line: log(_PLACE, line), per_column=compute_per_dim_accuracy
    )
    say_compiling(evaluator.compile_seconds, lambda line: log(NAME, line))
    if not any(total.weight > 0.0 for total in evaluator.objectives.values()):
        raise NothingDoneError(f"'{egs_in}' has no examples with weight")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
