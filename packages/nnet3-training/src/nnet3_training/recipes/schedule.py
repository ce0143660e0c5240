"""What a run of training does: its options, and the iterations that follow from them.

In each iteration several jobs train the same network, each on another archive of examples; the next
network is the average of theirs. The number of jobs grows from iteration to iteration, and the
learning rate falls with the archives that have been used (Povey et al., "Parallel training of DNNs
with natural gradient and parameter averaging", 2014, https://arxiv.org/abs/1410.7455).
"""

from __future__ import annotations

import math
from typing import Any

import attrs

from nnet3_training.errors import RecipeError
from nnet3_training.minibatch_rules import MinibatchRules


def _integer(least: int) -> Any:
    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise RecipeError(f"{field.name} must be an integer >= {least} (got {value!r})")

    return check


def _positive(_: object, field: attrs.Attribute[Any], value: float) -> None:
    if not 0.0 < value < math.inf:
        raise RecipeError(f"{field.name} must be above 0 and finite (got {value!r})")


def _rules(_: object, field: attrs.Attribute[Any], value: str) -> None:
    MinibatchRules.parse(value)


@attrs.frozen(kw_only=True)
class RecipeOptions:
    """How a network is trained from scratch; most names are those of Kaldi's scripts.

    Attributes:
        num_epochs: How often each example is used, on average.
        num_jobs_initial: Jobs of the first iteration.
        num_jobs_final: Jobs of the last one. A job has one archive of examples.
        initial_learning_rate: The effective rate at the beginning: that of the average of all jobs.
            A job trains with it times the number of jobs.
        final_learning_rate: That at the end; in between it falls by equal factors.
        momentum: See `TrainerOptions`.
        max_param_change: See `TrainerOptions`.
        minibatch_size: Rules for sizes of minibatches; see `MinibatchRules`.
        frames_per_example: Frames of the output of an example; several lengths if given.
        frames_per_archive: The approximate number of output frames in an archive.
        shuffle_buffer_size: The number of examples of an archive to hold in memory; the job draws
            the next example from these.
        compress: Whether to compress features that are not, with some loss.
        held_out_every: The recipe holds out each utterance whose number is a multiple of this, and
            measures on it.
        diagnostic_examples: The number of training examples, and of held-out examples, on which
            the recipe measures after each iteration, and by which it chooses the best combination.
        max_models_combine: The largest number of last models to average at the end, at most half of
            all. The recipe averages the number of models that is best.
        seed: The seed for the order of examples and for the random numbers of training.

    Raises:
        RecipeError: a number is out of range.
        ExampleError: the rules for minibatches cannot be understood.
    """

    num_epochs: float = attrs.field(default=4.0, validator=_positive)
    num_jobs_initial: int = attrs.field(default=1, validator=_integer(1))
    num_jobs_final: int = attrs.field(default=1, validator=_integer(1))
    initial_learning_rate: float = attrs.field(default=0.001, validator=_positive)
    final_learning_rate: float = attrs.field(default=0.0001, validator=_positive)
    momentum: float = 0.0
    max_param_change: float = 2.0
    minibatch_size: str = attrs.field(default="64", validator=_rules)
    frames_per_example: tuple[int, ...] = attrs.field(
        default=(20,), converter=tuple, validator=attrs.validators.deep_iterable(_integer(1))
    )
    frames_per_archive: int = attrs.field(default=400_000, validator=_integer(1))
    shuffle_buffer_size: int = attrs.field(default=5000, validator=_integer(1))
    compress: bool = True
    held_out_every: int = attrs.field(default=20, validator=_integer(2))
    diagnostic_examples: int = attrs.field(default=500, validator=_integer(1))
    max_models_combine: int = attrs.field(default=20, validator=_integer(1))
    seed: int = attrs.field(default=0, validator=_integer(0))


@attrs.frozen(kw_only=True)
class Iteration:
    """One round of jobs.

    Attributes:
        number: From 0; it makes network `number` + 1 of network `number`.
        archives: The numbers, from 0, of the archives of its jobs.
        learning_rate: The effective rate.
    """

    number: int
    archives: tuple[int, ...]
    learning_rate: float


def schedule(options: RecipeOptions, num_archives: int) -> tuple[Iteration, ...]:
    """The iterations of a run with so many archives.

    Archives are used in turn. The number of jobs grows evenly from the first to the last iteration;
    the last one has as many as archives are left.

    Raises:
        RecipeError: there are fewer archives than jobs.
    """
    first, last = options.num_jobs_initial, options.num_jobs_final
    if num_archives < max(first, last):
        raise RecipeError(
            f"expected an archive for each of {max(first, last)} jobs, found {num_archives}"
        )
    total = math.ceil(options.num_epochs * num_archives)
    rounds = max(1, round(2 * total / (first + last)))
    falls_by = math.log(options.final_learning_rate / options.initial_learning_rate)
    iterations: list[Iteration] = []
    done = 0
    while done < total:
        number = len(iterations)
        jobs = math.floor(0.5 + first + (last - first) * min(number / rounds, 1.0))
        jobs = min(jobs, total - done)
        rate = options.initial_learning_rate * math.exp(falls_by * done / total)
        archives = tuple((done + job) % num_archives for job in range(jobs))
        iterations.append(Iteration(number=number, archives=archives, learning_rate=rate))
        done += jobs
    return tuple(iterations)


def first_combined(options: RecipeOptions, num_iterations: int) -> int:
    """The number of the first network of those that may be averaged at the end."""
    return num_iterations + 1 - max(1, min(options.max_models_combine, num_iterations // 2))
