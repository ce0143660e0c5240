"""nnet3-chain-train: trains a chain model on minibatches of examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_descriptors
import nnet3_training

from nnet3_tools.chain.examples import read_entries
from nnet3_tools.chain.objective_log import ObjectiveLog, say_limits, say_totals
from nnet3_tools.chain.options import ObjectiveCommand, chain_options, read_den_fst, taken
from nnet3_tools.kaldi_command import (
    boolean_option,
    chosen_device,
    common_options,
    gpu_option,
    log,
    run_tool,
)
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_training import ChainTraining, Trainer

NAME = "nnet3-chain-train"


def _say(line: str) -> None:
    log(NAME, line)


def _warn(line: str) -> None:
    click.echo(f"WARNING ({NAME}) {line}", err=True)


@click.command(cls=ObjectiveCommand)
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("den_fst", metavar="DEN-FST")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("nnet_out", metavar="NNET-OUT")
@chain_options
@boolean_option("--apply-deriv-weights", default=True, help="Multiply by the weights of frames.")
@click.option("--momentum", type=float, default=0.0, help="What is kept of the step before.")
@click.option("--max-param-change", type=float, default=2.0, help="Bound of one change of all.")
@click.option("--l2-regularize-factor", type=float, default=1.0, help="Factor of components' l2.")
@click.option("--batchnorm-stats-scale", type=float, default=0.8, help="What is kept of them.")
@boolean_option("--store-component-stats", default=True, help="Record averages of activations.")
@boolean_option("--zero-component-stats", default=True, help="Begin these at zero.")
@click.option(
    "--print-interval", type=click.IntRange(min=1), default=100, help="Minibatches of a log line."
)
@click.option("--srand", default=0, help="Seed of what is drawn.")
@boolean_option("--binary", default=True, help="Write the network in binary form.")
@click.option("--backstitch-training-scale", type=float, default=0.0, hidden=True)
@click.option("--backstitch-training-interval", type=int, default=1, hidden=True)
@gpu_option("yes", "no", "wait")
@common_options
def command(
    nnet_in: str,
    den_fst: str,
    egs_in: str,
    nnet_out: str,
    apply_deriv_weights: bool,
    print_interval: int,
    srand: int,
    binary: bool,
    backstitch_training_scale: float,
    backstitch_training_interval: int,
    use_gpu: str,
    **options: Any,
) -> None:
    """Train the network NNET-IN on the minibatches of EGS-RSPECIFIER, and write it to NNET-OUT.

    DEN-FST is the denominator. nnet3-chain-merge-egs makes minibatches, for example in
    'ark:nnet3-chain-merge-egs --minibatch-size=64 ark:1.cegs ark:- |'.
    """
    if backstitch_training_scale:
        raise click.ClickException("--backstitch-training-scale: there is no backstitch here")
    objective = attrs.evolve(taken(options), apply_deriv_weights=apply_deriv_weights)
    training_options = nnet3_training.TrainerOptions(seed=abs(srand), **options)
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    training = nnet3_training.ChainTraining(nnet, read_den_fst(den_fst), objective)
    device = chosen_device(use_gpu)
    trainer = nnet3_training.Trainer(nnet, training_options, device, objective=training)
    progress = ObjectiveLog(print_interval, _say)
    for number, entry in enumerate(read_entries(egs_in)):
        progress.add(number, trainer.train_minibatch(entry.value))
    _say_all(trainer, training)
    _write(trainer.nnet, nnet_out, binary=binary)
    if not trainer.num_minibatches:
        raise click.ClickException(f"'{egs_in}' has no examples")


def _say_all(trainer: Trainer, training: ChainTraining) -> None:
    """Says what there is to say when all minibatches are done."""
    say_totals(trainer.objectives, _say)
    count = max(trainer.num_minibatches, 1)
    say_limits(trainer, _say)
    for number, what in (
        (training.objective.num_failed, "objectives that could not be computed"),
        (trainer.num_skipped, "changes that were not finite"),
    ):
        if number:
            _warn(f"{number} of {count} minibatches had {what}.")


def _write(nnet: Nnet, nnet_out: str, *, binary: bool) -> None:
    with writable(nnet_out) as target:
        nnet3_descriptors.write_nnet(nnet, target, binary=binary)
    _say(f"Wrote raw model to {nnet_out}")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
