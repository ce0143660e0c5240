"""nnet3-combine: averages the last networks of a run, as many as give the best objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import nnet3_descriptors

from nnet3_tools.ignored_options import OF_OBJECTIVES
from nnet3_tools.kaldi_command import (
    KaldiCommand,
    boolean_option,
    chosen_device,
    gpu_option,
    log,
    run_tool,
)
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

NAME = "nnet3-combine"


def _say(line: str) -> None:
    log(NAME, line)


@click.command(cls=KaldiCommand, ignored=OF_OBJECTIVES)
@click.argument("nnets_in", metavar="NNET-IN...", nargs=-1, required=True)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("nnet_out", metavar="NNET-OUT")
@boolean_option("--binary", default=True, help="Write the network in binary form.")
@click.option(
    "--max-objective-evaluations",
    type=click.IntRange(min=1),
    default=30,
    help="Number of averages to evaluate.",
)
@boolean_option("--batchnorm-test-mode", help="Use batch-norm with its statistics.")
@boolean_option("--dropout-test-mode", default=True, help="Use dropout in test mode: drop nothing.")
@gpu_option()
def command(
    nnets_in: tuple[str, ...],
    egs_in: str,
    nnet_out: str,
    binary: bool,
    max_objective_evaluations: int,
    batchnorm_test_mode: bool,
    dropout_test_mode: bool,
    use_gpu: str,
) -> None:
    """Average the first networks, as many as give the best objective.

    The objective is that on EGS-RSPECIFIER. Give the last network of the training run first.
    """
    from nnet3_training.recipes import Combination, combine  # slow: loads all of training

    from nnet3_tools.egs.forms import form_for
    from nnet3_tools.objectives.objective_log import say_combination, say_combined
    from nnet3_tools.training.diagnostics import say_evaluation

    examples = [entry.value for entry in form_for(_read(nnets_in[0])).entries(egs_in)]
    _say(f"Read {len(examples)} examples.")
    if not examples:
        raise click.ClickException(f"'{egs_in}' has no examples")
    combined = combine(
        map(_read, nnets_in),
        examples,
        Combination(
            max_objective_evaluations=max_objective_evaluations,
            batchnorm_test_mode=batchnorm_test_mode,
            dropout_test_mode=dropout_test_mode,
        ),
        num_nnets=len(nnets_in),
        device=chosen_device(use_gpu),
        after_evaluation=lambda count, value: say_combination(count, value, _say),
    )
    say_combined(combined, _say)
    if combined.recomputed is not None:
        _say("Recomputing stats on nnet (affects batch-norm)")
        say_evaluation(combined.recomputed, combined.nnet, _say)
        _say("Done recomputing stats.")
    with writable(nnet_out) as target:
        nnet3_descriptors.write_nnet(combined.nnet, target, binary=binary)
    _say(f"Finished combining neural nets, wrote model to {nnet_out}")


def _read(name: str) -> Nnet:
    with readable(name) as source:
        return nnet3_descriptors.read_nnet(source)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
