"""Tools that train networks on examples and average them, and the options of a step."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import click
import nnet3_optimizer
import nnet3_tables
import nnet3_training
from nnet3_training import egs, recipes

from nnet3_tools import cli, flags, streams
from nnet3_tools.egs import forms

_LARGEST_PHASE = 100_000

_NO_TIME = 2**31 - 1
"""Times of this magnitude or a larger one, such as the least 32-bit number, set no limit."""
_LIMITS = ("min_deriv_time", "max_deriv_time", "max_deriv_time_relative")

STEP_OPTIONS = (
    cli.option("--momentum", 0.0, "Share of the last change of parameters to add to the next."),
    cli.option("--max-param-change", 2.0, "Largest change of all parameters in one step (2-norm)."),
    cli.option("--l2-regularize-factor", 1.0, "Multiplies the l2 terms of components."),
    cli.option(
        "--batchnorm-stats-scale",
        0.8,
        "Multiplies the statistics of batch-norm after each minibatch.",
    ),
    cli.option("--backstitch-training-scale", 0.0, "Length of backstitch's step back; 0 for none."),
    cli.option(
        "--backstitch-training-interval", 1, "Minibatches from one step back to the next.", least=1
    ),
    cli.boolean_option("--store-component-stats", "Record averages of activations.", default=True),
    cli.boolean_option(
        "--zero-component-stats",
        "Forget the averages of activations of earlier training.",
        default=True,
    ),
    cli.option("--print-interval", 100, "Minibatches between two log lines.", least=1),
    cli.option("--srand", 0, "Seed of the random numbers."),
    cli.option(
        "--optimization.min-deriv-time min_deriv_time",
        -_NO_TIME,
        "Derivatives are taken to be zero before this t.",
    ),
    cli.option(
        "--optimization.max-deriv-time max_deriv_time",
        _NO_TIME,
        "Derivatives are taken to be zero after this t.",
    ),
    cli.option(
        "--optimization.max-deriv-time-relative max_deriv_time_relative",
        _NO_TIME,
        "Like --optimization.max-deriv-time, counted from the last t of an output.",
    ),
    flags.BINARY,
)
"""The options of training steps, including some that `trainer_options` does not take."""


def trainer_options(srand: int, **options: Any) -> nnet3_training.TrainerOptions:
    """The options of a Trainer; a seed has the effect that it has in Kaldi's tools.

    The first random number chooses the minibatches with a step back.

    Raises:
        TrainingError: An option is out of range.
    """
    limits = {name: options.pop(name) for name in _LIMITS}
    optimize_options = nnet3_optimizer.OptimizeOptions(
        **{name: time for name, time in limits.items() if abs(time) < _NO_TIME}
    )
    phase = egs.CRandom(srand).integers(0, _LARGEST_PHASE + 1)
    return nnet3_training.TrainerOptions(
        seed=abs(srand), backstitch_phase=phase, optimize_options=optimize_options, **options
    )


@cli.tool(
    "nnet3-train",
    "NNET-IN EGS-RSPECIFIER NNET-OUT",
    *STEP_OPTIONS,
    flags.GPU,
    flags.PROFILE,
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES,
)
def nnet3_train(
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
    from nnet3_tools.training.objective_log import (
        ObjectiveLog,
        say_change,
        say_compiling,
        say_limits,
        say_totals,
    )

    settings = trainer_options(srand, **options)
    if profile:
        flags.check_overwrites_none(profile, [nnet_in, *nnet3_tables.files_of(egs_in), nnet_out])
    nnet = streams.read_nnet(nnet_in)
    progress = ObjectiveLog(print_interval)
    with flags.profiled(profile) as tracer:
        trainer = nnet3_training.Trainer(nnet, settings, flags.device(use_gpu), trace=tracer)
        for number, entry in enumerate(forms.form_for(nnet).entries(egs_in)):
            progress.add(number, trainer.train_minibatch(entry.value))
            say_change(trainer)
    say_totals(dict(sorted(trainer.objectives.items())))
    say_limits(trainer)
    if trainer.num_skipped:
        cli.warn(f"{trainer.num_skipped} changes were not finite.")
    streams.write_nnet(trainer.nnet, nnet_out, binary=binary)
    cli.log(f"Wrote model to {nnet_out}")
    say_compiling(trainer.compile_seconds)
    if not any(total.weight for total in trainer.objectives.values()):
        raise cli.NothingDoneError(f"'{egs_in}' has no examples with weight")


@cli.tool(
    "nnet3-combine",
    "NNET-IN... EGS-RSPECIFIER NNET-OUT",
    flags.BINARY,
    cli.option("--max-objective-evaluations", 30, "Number of averages to evaluate.", least=1),
    *flags.test_modes(batchnorm=False),
    flags.GPU,
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES,
)
def nnet3_combine(
    nnets_in: tuple[str, ...],
    egs_in: str,
    nnet_out: str,
    binary: bool,
    use_gpu: str,
    **options: Any,
) -> None:
    """Average the first networks, as many as give the best objective.

    The objective is that on EGS-RSPECIFIER. Give the last network of the training run first.
    """
    from nnet3_tools.training.objective_log import say_combination, say_combined, say_evaluation

    first = streams.read_nnet(nnets_in[0])
    examples = [entry.value for entry in forms.form_for(first).entries(egs_in)]
    cli.log(f"Read {len(examples)} examples.")
    if not examples:
        raise click.ClickException(f"'{egs_in}' has no examples")
    combined = recipes.combine(
        itertools.chain([first], map(streams.read_nnet, nnets_in[1:])),
        examples,
        num_nnets=len(nnets_in),
        **options,
        device=flags.device(use_gpu),
        after_evaluation=say_combination,
    )
    say_combined(combined, functools.partial(say_evaluation, nnet=combined.nnet))
    streams.write_nnet(combined.nnet, nnet_out, binary=binary)
    cli.log(f"Finished combining neural nets, wrote model to {nnet_out}")
