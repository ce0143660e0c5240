"""nnet3-combine: the average of the last networks of a training run, of as many as are best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import click
from nnet3_descriptors import Nnet, read_nnet, write_nnet
from nnet3_descriptors.components import BatchNormComponent
from nnet3_descriptors.editing import weighted_sum
from nnet3_training import Evaluator, TrainingExample, zero_component_stats

from nnet3_tools.chain.options import ObjectiveCommand
from nnet3_tools.egs.forms import form_for
from nnet3_tools.kaldi_command import boolean_option, common_options, log, run_tool
from nnet3_tools.streams import readable, writable
from nnet3_tools.training.diagnostics import say_evaluation

NAME = "nnet3-combine"


def _say(line: str) -> None:
    log(NAME, line)


@click.command(cls=ObjectiveCommand)
@click.argument("nnets_in", metavar="NNET-IN...", nargs=-1, required=True)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("nnet_out", metavar="NNET-OUT")
@boolean_option("--binary", default=True, help="Write the network in binary form.")
@click.option(
    "--max-objective-evaluations",
    type=click.IntRange(min=1),
    default=30,
    help="So many averages are evaluated.",
)
@boolean_option("--batchnorm-test-mode", help="Batch-norm with its statistics.")
@boolean_option("--dropout-test-mode", default=True, help="Nothing is dropped.")
@click.option("--use-gpu", hidden=True, expose_value=False)
@common_options
def command(
    nnets_in: tuple[str, ...],
    egs_in: str,
    nnet_out: str,
    binary: bool,
    max_objective_evaluations: int,
    batchnorm_test_mode: bool,
    dropout_test_mode: bool,
) -> None:
    """Average the first networks of those given, of as many as give the best objective.

    Give the last network of the training run first. Examples are those of EGS-RSPECIFIER.
    """
    average = _read(nnets_in[0])
    examples = [entry.value for entry in form_for(average).entries(egs_in)]
    _say(f"Read {len(examples)} examples.")
    if not examples:
        raise click.ClickException(f"'{egs_in}' has no examples")

    def objective(nnet: Nnet) -> float:
        tested = _in_test_mode(nnet, batchnorm=batchnorm_test_mode, dropout=dropout_test_mode)
        return _objective(tested, examples)

    first = best = objective(average)
    best_nnet, best_count = average, 1
    _say(f"objective function using the last model is {first:.6g}")
    step = -(-len(nnets_in) // max_objective_evaluations)
    for number, name in enumerate(nnets_in[1:], 1):
        share = 1.0 / (number + 1)
        average = weighted_sum([average, _read(name)], [1.0 - share, share])
        if (number - 1) % step == step - 1 or number == len(nnets_in) - 1:
            found = objective(average)
            _say(f"Combining last {number + 1} models, objective function is {found:.6g}")
            if found > best:
                best, best_nnet, best_count = found, average, number + 1
    _say(f"Combining {best_count} nnets, objective function changed from {first:.6g} to {best:.6g}")
    if any(isinstance(component, BatchNormComponent) for component in best_nnet.components):
        best_nnet = _with_new_stats(best_nnet, examples)
    with writable(nnet_out) as target:
        write_nnet(best_nnet, target, binary=binary)
    _say(f"Finished combining neural nets, wrote model to {nnet_out}")


def _read(name: str) -> Nnet:
    with readable(name) as source:
        return read_nnet(source)


def _in_test_mode(nnet: Nnet, *, batchnorm: bool, dropout: bool) -> Nnet:
    return nnet.with_components(
        {
            name: component.with_test_mode(True)
            for name, component in zip(nnet.component_names, nnet.components, strict=True)
            if (batchnorm if isinstance(component, BatchNormComponent) else dropout)
        }
    )


def _objective(nnet: Nnet, examples: Sequence[TrainingExample]) -> float:
    """The objective of all outputs per frame; -inf if it is not finite."""
    evaluator = Evaluator(nnet)
    for example in examples:
        evaluator.add(example)
    weight = sum(each.weight for each in evaluator.objectives.values())
    if not weight:
        raise click.ClickException("the examples have no weight")
    total = sum(each.total for each in evaluator.objectives.values())
    return total / weight if math.isfinite(total) else -math.inf


def _with_new_stats(nnet: Nnet, examples: Sequence[TrainingExample]) -> Nnet:
    """The network with the statistics of these examples."""
    _say("Recomputing stats on nnet (affects batch-norm)")
    evaluator = Evaluator(zero_component_stats(nnet), component_stats=True)
    for example in examples:
        evaluator.add(example)
    say_evaluation(evaluator, nnet, _say)
    _say("Done recomputing stats.")
    return evaluator.nnet


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
