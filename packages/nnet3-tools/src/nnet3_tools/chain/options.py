"""Options shared by the tools that compute the objective of chain models."""

from __future__ import annotations

from typing import Any

import attrs
import click
import nnet3_training

from nnet3_tools import cli, streams

CHAIN_NUMBERS = {
    "l2_regularize": "Factor of the l2 term of the output.",
    "out_of_range_regularize": "Factor of the penalty on outputs beyond -30 and 30.",
    "leaky_hmm_coefficient": "Probability of a jump from a state of the denominator to any other.",
    "xent_regularize": "Factor of cross-entropy at the output 'output-xent'; 0 for none.",
}
"""The options of `ChainOptions` that are numbers, with their help."""


def _only_zero(context: click.Context, parameter: click.Parameter, value: float) -> None:
    """Refuses options of learning without forgetting, which is not implemented."""
    if value:
        raise click.ClickException(
            f"{parameter.opts[0]}: expected 0, found {value:g}; learning without forgetting "
            "is not supported"
        )


def _number(name: str, default: Any) -> cli.Parameter:
    option = f"--{name.replace('_', '-')}"
    text = CHAIN_NUMBERS[name]
    return cli.option(option, default, text, shown=True, type=float)


def _forgetting(name: str) -> cli.Parameter:
    text = "0: learning without forgetting is not supported."
    return cli.option(name, 0.0, text, expose_value=False, callback=_only_zero)


CHAIN_OPTIONS = (
    *map(_forgetting, ("--lwf-den-scale", "--lwf-scale")),
    *(
        _number(field.name, field.default)
        for field in reversed(attrs.fields(nnet3_training.ChainOptions))
        if field.name in CHAIN_NUMBERS
    ),
)
"""The options of the objective."""


def taken(options: dict[str, Any]) -> nnet3_training.ChainOptions:
    """Removes the options of the objective from all options of a command, and returns them.

    Raises:
        TrainingError: A number is out of range.
    """
    return nnet3_training.ChainOptions(**{name: options.pop(name) for name in CHAIN_NUMBERS})


def read_den_fst(name: str) -> nnet3_training.Fst:
    """The denominator FST: from a file, "-" or "command |".

    Raises:
        ModelFileError, FileError: The FST cannot be read.
        click.ClickException: The command failed.
    """
    return streams.read(nnet3_training.read_fst, name)
