"""Tools that train 'chain' models on examples, evaluate and average them; their options."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_tables
import nnet3_training
from nnet3_training import recipes

from nnet3_tools import cli, flags, streams
from nnet3_tools.egs import forms
from nnet3_tools.training.train import STEP_OPTIONS, trainer_options

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


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


@cli.tool(
    "nnet3-chain-train",
    "NNET-IN DEN-FST EGS-RSPECIFIER NNET-OUT",
    *CHAIN_OPTIONS,
    cli.boolean_option("--apply-deriv-weights", "Multiply by the weights of frames.", default=True),
    *STEP_OPTIONS,
    flags.GPU,
    flags.PROFILE,
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES,
)
def nnet3_chain_train(
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
    from nnet3_tools.training.objective_log import ObjectiveLog, say_compiling

    objective = attrs.evolve(taken(options), apply_deriv_weights=apply_deriv_weights)
    settings = trainer_options(srand, **options)
    if profile:
        read = [nnet_in, den_fst, *nnet3_tables.files_of(egs_in)]
        flags.check_overwrites_none(profile, [*read, nnet_out])
    nnet = streams.read_nnet(nnet_in)
    training = nnet3_training.ChainTraining(nnet, read_den_fst(den_fst), objective)
    device = flags.device(use_gpu)
    progress = ObjectiveLog(print_interval)
    with flags.profiled(profile) as tracer:
        trainer = nnet3_training.Trainer(nnet, settings, device, objective=training, trace=tracer)
        for number, entry in enumerate(forms.CHAIN.entries(egs_in)):
            progress.add(number, trainer.train_minibatch(entry.value))
    _say_all(trainer, training)
    _write(trainer.nnet, nnet_out, binary=binary)
    say_compiling(trainer.compile_seconds)
    if not any(total.weight for total in trainer.objectives.values()):
        raise cli.NothingDoneError(f"'{egs_in}' has no examples with weight")


def _say_all(trainer: nnet3_training.Trainer, training: nnet3_training.ChainTraining) -> None:
    """Logs the objectives and limits after all minibatches."""
    from nnet3_tools.training.objective_log import say_limits, say_totals

    say_totals(trainer.objectives)
    count = max(trainer.num_minibatches, 1)
    say_limits(trainer)
    for number, what in (
        (training.objective.num_failed, "objectives that could not be computed"),
        (trainer.num_skipped, "changes that were not finite"),
    ):
        if number:
            cli.warn(f"{number} of {count} minibatches had {what}.")


def _write(nnet: Nnet, nnet_out: str, *, binary: bool) -> None:
    streams.write_nnet(nnet, nnet_out, binary=binary)
    cli.log(f"Wrote raw model to {nnet_out}")


_PLACE = "nnet3-chain-compute-prob:PrintTotalStats():nnet-chain-diagnostics.cc:0"
"""The place in Kaldi's source that its scripts expect in log lines with objectives."""


@cli.tool(
    "nnet3-chain-compute-prob",
    "NNET-IN DEN-FST EGS-RSPECIFIER",
    *CHAIN_OPTIONS,
    *flags.test_modes(batchnorm=True),
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES | flags.unused("--compute-accuracy", "--compute-per-dim-accuracy"),
)
def nnet3_chain_compute_prob(nnet_in: str, den_fst: str, egs_in: str, **options: Any) -> None:
    """Print the objective per frame of the network NNET-IN on the examples of EGS-RSPECIFIER."""
    from nnet3_tools.training.objective_log import say_compiling, say_log_probabilities

    nnet = streams.read_nnet(nnet_in)
    training = nnet3_training.ChainTraining(nnet, read_den_fst(den_fst), taken(options))
    tested = flags.in_test_mode(nnet, **options)
    evaluator = nnet3_training.Evaluator(tested, objective=training)
    for entry in forms.CHAIN.entries(egs_in):
        evaluator.add(entry.value)
    say_log_probabilities(evaluator, place=_PLACE)
    say_compiling(evaluator.compile_seconds)
    if not any(total.weight > 0.0 for total in evaluator.objectives.values()):
        raise cli.NothingDoneError(f"'{egs_in}' has no examples with weight")


_ANY_XENT = 0.1


@cli.tool(
    "nnet3-chain-combine",
    "DEN-FST",
    click.argument("names", metavar="NNET-IN... EGS-RSPECIFIER NNET-OUT", nargs=-1),
    *CHAIN_OPTIONS,
    cli.option(
        "--max-objective-evaluations", 30, "About how often to compute the objective.", least=1
    ),
    *flags.test_modes(batchnorm=False),
    flags.BINARY,
    flags.GPU,
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES,
)
def nnet3_chain_combine(
    den_fst: str, names: tuple[str, ...], binary: bool, use_gpu: str, **options: Any
) -> None:
    """Average the networks NNET-IN..., as many of the first as give the best objective.

    The objective is that on EGS-RSPECIFIER. Give the last network of a run first. DEN-FST is the
    denominator.
    """
    from nnet3_tools.training.objective_log import (
        say_combination,
        say_combined,
        say_log_probabilities,
    )

    if len(names) < 3:
        raise cli.ArgumentCountError(f"expected four arguments at least, got {len(names) + 1}")
    *inputs, egs_in, nnet_out = names
    objective = taken(options)
    examples = [entry.value for entry in forms.CHAIN.entries(egs_in)]
    cli.log(f"Read {len(examples)} examples.")
    first, denominator = streams.read_nnet(inputs[0]), read_den_fst(den_fst)
    training = nnet3_training.ChainTraining(first, denominator, objective)
    # Not 0, so that the cross-entropy output gets statistics, too.
    with_xent = attrs.evolve(objective, xent_regularize=objective.xent_regularize or _ANY_XENT)
    combined = recipes.combine(
        itertools.chain([first], map(streams.read_nnet, inputs[1:])),
        examples,
        num_nnets=len(inputs),
        **options,
        objective=training,
        stats_objective=nnet3_training.ChainTraining(first, denominator, with_xent),
        device=flags.device(use_gpu),
        after_evaluation=say_combination,
    )
    say_combined(combined, say_log_probabilities)
    streams.write_nnet(combined.nnet, nnet_out, binary=binary)
    cli.log(f"Finished combining neural nets, wrote model to {nnet_out}")
