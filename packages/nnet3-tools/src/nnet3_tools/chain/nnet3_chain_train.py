"""nnet3-chain-train: trains a chain model on minibatches of examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_descriptors
import nnet3_tables
import nnet3_training

from nnet3_tools.chain.options import chain_options, read_den_fst, taken
from nnet3_tools.ignored_options import OF_OBJECTIVES
from nnet3_tools.kaldi_command import (
    KaldiCommand,
    NothingDoneError,
    boolean_option,
    chosen_device,
    gpu_option,
    log,
    run_tool,
    warn,
)
from nnet3_tools.objectives.step_options import trainer_options, training_options
from nnet3_tools.profiles import PROFILE, check_overwrites_none, profiled
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_training import ChainTraining, Trainer

NAME = "nnet3-chain-train"


def _say(line: str) -> None:
    log(NAME, line)


def _warn(line: str) -> None:
    warn(NAME, line)


@click.command(cls=KaldiCommand, ignored=OF_OBJECTIVES)
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("den_fst", metavar="DEN-FST")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("nnet_out", metavar="NNET-OUT")
@chain_options
@boolean_option("--apply-deriv-weights", default=True, help="Multiply by the weights of frames.")
@training_options
@gpu_option()
@PROFILE
def command(
    nnet_in: str,
    den_fst: str,
    egs_in: str,
    nnet_out: str,
    apply_deriv_weights: bool,
    print_interval: int,
    srand: int,
    binary: bool,
    use_gpu: str,
    profile: str,
    **options: Any,
) -> None:
    """Train the network NNET-IN on the minibatches of EGS-RSPECIFIER, and write it to NNET-OUT.

    DEN-FST is the denominator. nnet3-chain-merge-egs makes minibatches, for example in
    'ark:nnet3-chain-merge-egs --minibatch-size=64 ark:1.cegs ark:- |'.
    """
    from nnet3_tools.chain.egs.examples import CHAIN
    from nnet3_tools.objectives.objective_log import ObjectiveLog, say_compiling

    objective = attrs.evolve(taken(options), apply_deriv_weights=apply_deriv_weights)
    settings = trainer_options(srand, **options)
    if profile:
        read = [nnet_in, den_fst, *nnet3_tables.files_of(egs_in)]
        check_overwrites_none(profile, [*read, nnet_out])
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    training = nnet3_training.ChainTraining(nnet, read_den_fst(den_fst), objective)
    device = chosen_device(use_gpu)
    progress = ObjectiveLog(print_interval, _say)
    with profiled(profile) as tracer:
        trainer = nnet3_training.Trainer(nnet, settings, device, objective=training, trace=tracer)
        for number, entry in enumerate(CHAIN.entries(egs_in)):
            progress.add(number, trainer.train_minibatch(entry.value))
    _say_all(trainer, training)
    _write(trainer.nnet, nnet_out, binary=binary)
    say_compiling(trainer.compile_seconds, _say)
    if not any(total.weight for total in trainer.objectives.values()):
        raise NothingDoneError(f"'{egs_in}' has no examples with weight")


def _say_all(trainer: Trainer, training: ChainTraining) -> None:
    """Logs the objectives and limits after all minibatches."""
    from nnet3_tools.objectives.objective_log import say_limits, say_totals

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
