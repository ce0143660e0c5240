"""nnet3-chain-combine: averages the last models of a run, as many as give the best objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_descriptors
import nnet3_training

from nnet3_tools.chain.options import chain_options, read_den_fst, taken
from nnet3_tools.ignored_options import OF_OBJECTIVES
from nnet3_tools.kaldi_command import (
    ArgumentCountError,
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

NAME = "nnet3-chain-combine"

_ANY_XENT = 0.1


@click.command(cls=KaldiCommand, ignored=OF_OBJECTIVES)
@click.argument("den_fst", metavar="DEN-FST")
@click.argument("names", metavar="NNET-IN... EGS-RSPECIFIER NNET-OUT", nargs=-1)
@chain_options
@click.option(
    "--max-objective-evaluations", default=30, help="About how often to compute the objective."
)
@boolean_option("--batchnorm-test-mode", help="Use batch-norm with its statistics.")
@boolean_option("--dropout-test-mode", default=True, help="Use dropout in test mode: drop nothing.")
@boolean_option("--binary", default=True, help="Write the network in binary form.")
@gpu_option()
def command(
    den_fst: str,
    names: tuple[str, ...],
    max_objective_evaluations: int,
    batchnorm_test_mode: bool,
    dropout_test_mode: bool,
    binary: bool,
    use_gpu: str,
    **options: Any,
) -> None:
    """Average the networks NNET-IN..., as many of the first as give the best objective.

    The objective is that on EGS-RSPECIFIER. Give the last network of a run first. DEN-FST is the
    denominator.
    """
    from nnet3_training.recipes import Combination, combine  # slow: loads all of training

    from nnet3_tools.chain.egs.examples import CHAIN
    from nnet3_tools.objectives.objective_log import log_probability, say_combination, say_combined

    if len(names) < 3:
        raise ArgumentCountError(f"expected four arguments at least, got {len(names) + 1}")
    *inputs, egs_in, nnet_out = names
    settings = Combination(
        max_objective_evaluations=max_objective_evaluations,
        batchnorm_test_mode=batchnorm_test_mode,
        dropout_test_mode=dropout_test_mode,
    )
    examples = [entry.value for entry in CHAIN.entries(egs_in)]
    log(NAME, f"Read {len(examples)} examples.")
    first, denominator, chain = _read(inputs[0]), read_den_fst(den_fst), taken(options)
    training = nnet3_training.ChainTraining(first, denominator, chain)
    # Not 0, so that the cross-entropy output gets statistics, too.
    with_xent = attrs.evolve(chain, xent_regularize=chain.xent_regularize or _ANY_XENT)
    combined = combine(
        map(_read, inputs),
        examples,
        settings,
        num_nnets=len(inputs),
        objective=training,
        stats_objective=nnet3_training.ChainTraining(first, denominator, with_xent),
        device=chosen_device(use_gpu),
        after_evaluation=lambda count, value: say_combination(count, value, _say),
    )
    say_combined(combined, _say)
    if combined.recomputed is not None:
        _say("Recomputing stats on nnet (affects batch-norm)")
        for name, total in combined.recomputed.objectives.items():
            _say(log_probability(name, total))
        _say("Done recomputing stats.")
    with writable(nnet_out) as target:
        nnet3_descriptors.write_nnet(combined.nnet, target, binary=binary)
    log(NAME, f"Finished combining neural nets, wrote model to {nnet_out}")


def _say(line: str) -> None:
    log(NAME, line)


def _read(name: str) -> Nnet:
    with readable(name) as source:
        return nnet3_descriptors.read_nnet(source)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
