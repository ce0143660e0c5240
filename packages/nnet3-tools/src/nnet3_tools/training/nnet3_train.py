"""nnet3-train: trains a network on minibatches of examples."""

from __future__ import annotations

from typing import Any

import click
import nnet3_descriptors
import nnet3_tables
import nnet3_training

from nnet3_tools.ignored_options import OF_OBJECTIVES
from nnet3_tools.kaldi_command import (
    KaldiCommand,
    NothingDoneError,
    chosen_device,
    gpu_option,
    log,
    run_tool,
    warn,
)
from nnet3_tools.objectives.step_options import trainer_options, training_options
from nnet3_tools.profiles import PROFILE, check_overwrites_none, profiled
from nnet3_tools.streams import readable, writable

NAME = "nnet3-train"


def _say(line: str) -> None:
    log(NAME, line)


@click.command(cls=KaldiCommand, ignored=OF_OBJECTIVES)
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("nnet_out", metavar="NNET-OUT")
@training_options
@gpu_option()
@PROFILE
def command(
    nnet_in: str,
    egs_in: str,
    nnet_out: str,
    print_interval: int,
    srand: int,
    binary: bool,
    use_gpu: str,
    profile: str,
    **options: Any,
) -> None:
    """Train the network NNET-IN on the minibatches of EGS-RSPECIFIER, and write it to NNET-OUT.

    nnet3-merge-egs makes minibatches, for example in
    'ark:nnet3-merge-egs --minibatch-size=64 ark:1.egs ark:- |'.
    """
    from nnet3_tools.egs.forms import form_for
    from nnet3_tools.objectives.objective_log import (
        ObjectiveLog,
        say_change,
        say_compiling,
        say_limits,
        say_totals,
    )

    settings = trainer_options(srand, **options)
    if profile:
        check_overwrites_none(profile, [nnet_in, *nnet3_tables.files_of(egs_in), nnet_out])
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    progress = ObjectiveLog(print_interval, _say)
    with profiled(profile) as tracer:
        trainer = nnet3_training.Trainer(nnet, settings, chosen_device(use_gpu), trace=tracer)
        for number, entry in enumerate(form_for(nnet).entries(egs_in)):
            progress.add(number, trainer.train_minibatch(entry.value))
            say_change(trainer, _say)
    say_totals(dict(sorted(trainer.objectives.items())), _say)
    say_limits(trainer, _say)
    if trainer.num_skipped:
        warn(NAME, f"{trainer.num_skipped} changes were not finite.")
    with writable(nnet_out) as target:
        nnet3_descriptors.write_nnet(trainer.nnet, target, binary=binary)
    _say(f"Wrote model to {nnet_out}")
    say_compiling(trainer.compile_seconds, _say)
    if not any(total.weight for total in trainer.objectives.values()):
        raise NothingDoneError(f"'{egs_in}' has no examples with weight")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
