"""Options shared by the tools that train on minibatches, for any objective."""

from __future__ import annotations

from typing import Any

import click
import nnet3_optimizer
import nnet3_training
from nnet3_training import egs

from nnet3_tools import cli, flags

_LARGEST_PHASE = 100_000

_NO_TIME = 2**31 - 1
"""Times of this magnitude or a larger one, such as the least 32-bit number, set no limit."""
_LIMITS = ("min_deriv_time", "max_deriv_time", "max_deriv_time_relative")

STEP_OPTIONS = (
    click.option(
        "--momentum",
        type=float,
        default=0.0,
        help="Share of the last change of parameters to add to the next.",
    ),
    click.option(
        "--max-param-change",
        type=float,
        default=2.0,
        help="Largest change of all parameters in one step (2-norm).",
    ),
    click.option(
        "--l2-regularize-factor",
        type=float,
        default=1.0,
        help="Multiplies the l2 terms of components.",
    ),
    click.option(
        "--batchnorm-stats-scale",
        type=float,
        default=0.8,
        help="Multiplies the statistics of batch-norm after each minibatch.",
    ),
    click.option(
        "--backstitch-training-scale",
        type=float,
        default=0.0,
        help="Length of backstitch's step back; 0 for none.",
    ),
    click.option(
        "--backstitch-training-interval",
        type=click.IntRange(min=1),
        default=1,
        help="Minibatches from one step back to the next.",
    ),
    cli.boolean_option(
        "--store-component-stats", default=True, help="Record averages of activations."
    ),
    cli.boolean_option(
        "--zero-component-stats",
        default=True,
        help="Forget the averages of activations of earlier training.",
    ),
    click.option(
        "--print-interval",
        type=click.IntRange(min=1),
        default=100,
        help="Minibatches between two log lines.",
    ),
    click.option("--srand", default=0, help="Seed of the random numbers."),
    click.option(
        "--optimization.min-deriv-time",
        "min_deriv_time",
        default=-_NO_TIME,
        help="Derivatives are taken to be zero before this t.",
    ),
    click.option(
        "--optimization.max-deriv-time",
        "max_deriv_time",
        default=_NO_TIME,
        help="Derivatives are taken to be zero after this t.",
    ),
    click.option(
        "--optimization.max-deriv-time-relative",
        "max_deriv_time_relative",
        default=_NO_TIME,
        help="Like --optimization.max-deriv-time, counted from the last t of an output.",
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
