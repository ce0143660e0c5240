"""Options shared by the tools that train on minibatches, for any objective."""

from __future__ import annotations

from typing import Any

import nnet3_optimizer
import nnet3_training
from nnet3_training import egs

from nnet3_tools import cli, flags

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
