"""Tools that train networks on examples and average them, also 'chain' models; their options."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import attrs
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


Chain = tuple[str, nnet3_training.ChainOptions]
"""The file of the denominator of a 'chain' model, and the options of its objective."""

_TRAINING = (*STEP_OPTIONS, flags.GPU, flags.PROFILE, flags.CACHE_DIR)


@cli.tool(
    "nnet3-train",
    "NNET-IN EGS-RSPECIFIER NNET-OUT",
    *_TRAINING,
    ignored=flags.OF_OBJECTIVES,
)
def nnet3_train(nnet_in: str, egs_in: str, nnet_out: str, **options: Any) -> None:
    """Train the network NNET-IN on the minibatches of EGS-RSPECIFIER, and write it to NNET-OUT.

    nnet3-merge-egs makes minibatches, for example in
    'ark:nnet3-merge-egs --minibatch-size=64 ark:1.egs ark:- |'.
    """
    _train(nnet_in, egs_in, nnet_out, **options)


@cli.tool(
    "nnet3-chain-train",
    "NNET-IN DEN-FST EGS-RSPECIFIER NNET-OUT",
    *CHAIN_OPTIONS,
    cli.boolean_option("--apply-deriv-weights", "Multiply by the weights of frames.", default=True),
    *_TRAINING,
    ignored=flags.OF_OBJECTIVES,
)
def nnet3_chain_train(
    nnet_in: str,
    den_fst: str,
    egs_in: str,
    nnet_out: str,
    apply_deriv_weights: bool,
    **options: Any,
) -> None:
    """Train the network NNET-IN on the minibatches of EGS-RSPECIFIER, and write it to NNET-OUT.

    DEN-FST is the denominator. nnet3-chain-merge-egs makes minibatches, for example in
    'ark:nnet3-chain-merge-egs --minibatch-size=64 ark:1.cegs ark:- |'.
    """
    objective = attrs.evolve(taken(options), apply_deriv_weights=apply_deriv_weights)
    _train(nnet_in, egs_in, nnet_out, (den_fst, objective), **options)


def _train(
    nnet_in: str,
    egs_in: str,
    nnet_out: str,
    chain: Chain | None = None,
    *,
    print_interval: int,
    srand: int,
    binary: bool,
    use_gpu: str,
    profile: str,
    **options: Any,
) -> None:
    """Trains a network, for its own objectives or for that of a 'chain' model; logs and writes it.

    Raises:
        NothingDoneError: no example had weight.
        Nnet3Error: a file cannot be read or written, or examples do not fit the network.
    """
    from nnet3_tools.training import objective_log as logs

    settings = trainer_options(srand, **options)
    if profile:
        read = [nnet_in, *(chain or ())[:1], *nnet3_tables.files_of(egs_in)]
        flags.check_overwrites_none(profile, [*read, nnet_out])
    nnet = streams.read_nnet(nnet_in)
    form, objective, kind = forms.form_for(nnet), None, "model"
    if chain is not None:
        den_fst, given = chain
        objective = nnet3_training.ChainTraining(nnet, read_den_fst(den_fst), given)
        form, kind = forms.CHAIN, "raw model"
    device, progress = flags.device(use_gpu), logs.ObjectiveLog(print_interval)
    with flags.profiled(profile) as tracer:
        trainer = nnet3_training.Trainer(nnet, settings, device, objective=objective, trace=tracer)
        for number, entry in enumerate(form.entries(egs_in)):
            progress.add(number, trainer.train_minibatch(entry.value))
            if chain is None:
                logs.say_change(trainer)
    totals = trainer.objectives
    logs.say_totals(dict(sorted(totals.items())) if chain is None else totals)
    logs.say_limits(trainer)
    if objective is not None:
        count = max(trainer.num_minibatches, 1)
        for number, what in (
            (objective.objective.num_failed, "objectives that could not be computed"),
            (trainer.num_skipped, "changes that were not finite"),
        ):
            if number:
                cli.warn(f"{number} of {count} minibatches had {what}.")
    elif trainer.num_skipped:
        cli.warn(f"{trainer.num_skipped} changes were not finite.")
    streams.write_nnet(trainer.nnet, nnet_out, binary=binary)
    cli.log(f"Wrote {kind} to {nnet_out}")
    logs.say_compiling(trainer.compile_seconds)
    if not any(total.weight for total in totals.values()):
        raise cli.NothingDoneError(f"'{egs_in}' has no examples with weight")


_ANY_XENT = 0.1


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
def nnet3_combine(nnets_in: tuple[str, ...], egs_in: str, nnet_out: str, **options: Any) -> None:
    """Average the first networks, as many as give the best objective.

    The objective is that on EGS-RSPECIFIER. Give the last network of the training run first.
    """
    _combine(nnets_in, egs_in, nnet_out, **options)


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
def nnet3_chain_combine(den_fst: str, names: tuple[str, ...], **options: Any) -> None:
    """Average the networks NNET-IN..., as many of the first as give the best objective.

    The objective is that on EGS-RSPECIFIER. Give the last network of a run first. DEN-FST is the
    denominator.
    """
    if len(names) < 3:
        raise cli.ArgumentCountError(f"expected four arguments at least, got {len(names) + 1}")
    *nnets_in, egs_in, nnet_out = names
    _combine(nnets_in, egs_in, nnet_out, (den_fst, taken(options)), **options)


def _combine(
    nnets_in: Sequence[str],
    egs_in: str,
    nnet_out: str,
    chain: Chain | None = None,
    *,
    binary: bool,
    use_gpu: str,
    **options: Any,
) -> None:
    """Averages networks, for their own objectives or for that of a 'chain' model.

    Raises:
        click.ClickException: there are no examples.
        Nnet3Error: a file cannot be read or written, or networks or examples do not fit each other.
    """
    from nnet3_tools.training import objective_log as logs

    first = streams.read_nnet(nnets_in[0])
    form, objective, stats_objective = forms.form_for(first), None, None
    if chain is not None:
        denominator, given = read_den_fst(chain[0]), chain[1]
        # Not 0, so that the cross-entropy output gets statistics, too.
        with_xent = attrs.evolve(given, xent_regularize=given.xent_regularize or _ANY_XENT)
        objective = nnet3_training.ChainTraining(first, denominator, given)
        stats_objective = nnet3_training.ChainTraining(first, denominator, with_xent)
        form = forms.CHAIN
    examples = [entry.value for entry in form.entries(egs_in)]
    cli.log(f"Read {len(examples)} examples.")
    if chain is None and not examples:
        raise click.ClickException(f"'{egs_in}' has no examples")
    combined = recipes.combine(
        itertools.chain([first], map(streams.read_nnet, nnets_in[1:])),
        examples,
        num_nnets=len(nnets_in),
        **options,
        objective=objective,
        stats_objective=stats_objective,
        device=flags.device(use_gpu),
        after_evaluation=logs.say_combination,
    )
    say = functools.partial(logs.say_evaluation, nnet=combined.nnet)
    logs.say_combined(combined, say if chain is None else logs.say_log_probabilities)
    streams.write_nnet(combined.nnet, nnet_out, binary=binary)
    cli.log(f"Finished combining neural nets, wrote model to {nnet_out}")
