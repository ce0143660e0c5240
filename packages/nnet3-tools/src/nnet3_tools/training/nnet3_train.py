"""nnet3-train: trains a network on minibatches of examples."""

from __future__ import annotations

from typing import Any

import click
import nnet3_descriptors
import nnet3_training
from nnet3_training.egs import CRandom

from nnet3_tools.chain.objective_log import ObjectiveLog, say_change, say_limits, say_totals
from nnet3_tools.chain.options import ObjectiveCommand
from nnet3_tools.egs.forms import form_for
from nnet3_tools.kaldi_command import (
    boolean_option,
    chosen_device,
    common_options,
    gpu_option,
    log,
    run_tool,
)
from nnet3_tools.streams import readable, writable

NAME = "nnet3-train"

_LARGEST_PHASE = 100_000


def _say(line: str) -> None:
    log(NAME, line)


@click.command(cls=ObjectiveCommand)
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("nnet_out", metavar="NNET-OUT")
@click.option("--momentum", type=float, default=0.0, help="What is kept of the step before.")
@click.option("--max-param-change", type=float, default=2.0, help="Bound of one change of all.")
@click.option("--l2-regularize-factor", type=float, default=1.0, help="Factor of components' l2.")
@click.option("--batchnorm-stats-scale", type=float, default=0.8, help="What is kept of them.")
@click.option(
    "--backstitch-training-scale", type=float, default=0.0, help="Length of the step back."
)
@click.option(
    "--backstitch-training-interval",
    type=click.IntRange(min=1),
    default=1,
    help="Minibatches between two of them.",
)
@boolean_option("--store-component-stats", default=True, help="Record averages of activations.")
@boolean_option("--zero-component-stats", default=True, help="Begin these at zero.")
@click.option(
    "--print-interval", type=click.IntRange(min=1), default=100, help="Minibatches of a log line."
)
@click.option("--srand", default=0, help="Seed of what is drawn.")
@boolean_option("--binary", default=True, help="Write the network in binary form.")
@gpu_option()
@common_options
def command(
    nnet_in: str,
    egs_in: str,
    nnet_out: str,
    print_interval: int,
    srand: int,
    binary: bool,
    use_gpu: str,
    **options: Any,
) -> None:
    """Train the network NNET-IN on the minibatches of EGS-RSPECIFIER, and write it to NNET-OUT.

    nnet3-merge-egs makes minibatches, for example in
    'ark:nnet3-merge-egs --minibatch-size=64 ark:1.egs ark:- |'.
    """
    training_options = nnet3_training.TrainerOptions(
        seed=abs(srand),
        # The number that Kaldi draws first says on which minibatches it steps back.
        backstitch_phase=CRandom(srand).integers(0, _LARGEST_PHASE + 1),
        **options,
    )
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    trainer = nnet3_training.Trainer(nnet, training_options, chosen_device(use_gpu))
    progress = ObjectiveLog(print_interval, _say)
    for number, entry in enumerate(form_for(nnet).entries(egs_in)):
        progress.add(number, trainer.train_minibatch(entry.value))
        say_change(trainer, _say)
    say_totals(dict(sorted(trainer.objectives.items())), _say)
    say_limits(trainer, _say)
    if trainer.num_skipped:
        click.echo(f"WARNING ({NAME}) {trainer.num_skipped} changes were not finite.", err=True)
    with writable(nnet_out) as target:
        nnet3_descriptors.write_nnet(trainer.nnet, target, binary=binary)
    _say(f"Wrote model to {nnet_out}")
    if not any(total.weight for total in trainer.objectives.values()):
        raise click.ClickException(f"'{egs_in}' has no examples with weight")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
