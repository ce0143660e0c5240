"""The options of a training run, from scratch or from a trained network, and its iterations.

In each iteration several jobs train the same network, each on its own archive of examples; the next
network is the average of their results, without those of jobs that diverged. The number of jobs
grows from iteration to iteration. The learning rate falls with the number of archives that have
been used (Povey et al., "Parallel training of DNNs with natural gradient and parameter averaging",
2014, https://arxiv.org/abs/1410.7455).

If outputs have a part of the frame rate, each pass over an archive shifts the inputs by another
number of frames. So the network sees every input frame at every place between two outputs.

The help of nnet3-train-recipe reads the options. So modules that only check options are imported
when they are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from nnet3_training import fields
from nnet3_training.chain.options import ChainOptions
from nnet3_training.errors import RecipeError

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

    from nnet3_training.callbacks import DropoutFunction

_MOST_JOBS = 200_000
"""Jobs that a run may have: many times those of Kaldi's largest recipes."""


def _several(values: object) -> tuple[Any, ...]:
    """The values; or the only one, alone in a tuple."""
    several = isinstance(values, Iterable) and not isinstance(values, str)
    return tuple(map(fields.as_integer, cast(Iterable[Any], values) if several else (values,)))


def _is(kind: type, *, optional: bool = False) -> Any:
    """A validator for values of a type."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if not (isinstance(value, kind) or (optional and value is None)):
            raise RecipeError(f"{field.name}: expected {kind.__name__}, found {value!r}")

    return check


def _dropout(_: object, field: attrs.Attribute[Any], value: str) -> None:
    from nnet3_training.callbacks import DropoutFunction

    for text in value.split():
        DropoutFunction.parse(text)


def _rules(_: object, field: attrs.Attribute[Any], value: str) -> None:
    from nnet3_training.merging import MinibatchRules

    MinibatchRules.parse(value)


@attrs.frozen(kw_only=True)
class RecipeOptions:
    """The options of training from scratch; most names are those of Kaldi's scripts.

    Attributes:
        num_epochs: Number of times that each example is used, on average.
        num_jobs_initial: Number of jobs of the first iteration.
        num_jobs_final: Number of jobs of the last iteration. A job has one archive of examples.
        initial_learning_rate: The effective rate at the beginning, which holds for the average of
            all jobs. A job trains with this rate times the number of jobs.
        final_learning_rate: The effective rate at the end; in between it falls by equal factors.
        momentum: See `TrainerOptions`.
        max_param_change: See `TrainerOptions`.
        minibatch_size: Rules for sizes of minibatches; see `MinibatchRules`.
        frames_per_example: Frames of the input that the output of an example covers; several
            lengths if given.
        frames_per_archive: The approximate number of output frames in an archive.
        frame_subsampling_factor: Number of input frames for each output frame.
        shuffle_buffer_size: The number of examples of an archive to hold in memory; the job draws
            the next example from these.
        compress: Whether to compress uncompressed features, with some loss.
        held_out_every: The recipe holds out each utterance whose number is a multiple of this, and
            measures on it.
        diagnostic_examples: The number of training examples, and of held-out examples, on which
            the recipe measures after each iteration, and by which it chooses the best combination.
        max_models_combine: The largest number of last models to average at the end, at most half of
            all. The recipe averages as many models as give the best objective.
        seed: The seed for the order of examples and for the random numbers of training.
        dropout_schedule: The proportion of values that dropout drops, as a function of the data
            that has been used, as Kaldi writes it: "0,0@0.2,0.5@0.5,0"; see
            `DropoutFunction.parse`. The recipe sets it for each iteration. Empty to leave the
            network as it is.
        max_objective_difference: A job has diverged if its objective per frame is worse than that
            of the best job by more than this. The average of an iteration leaves such jobs out.
            With `inf` it leaves out only jobs whose objective is not finite.
        fine_tuning: Whether the network is trained already: batch-norm then computes with its
            statistics, dropout is off, and only parameters change.
        freeze: When fine-tuning, patterns of names of components that do not change; `*` stands for
            any characters.
        chain: The options of LF-MMI, if the network is a 'chain' model; None for the objectives of
            the output nodes.

    Raises:
        RecipeError: a number is out of range, or an option is of another type.
        ExampleError: the rules for minibatches cannot be understood.
        TrainingError: the schedule of dropout cannot be understood.
    """

    num_epochs: float = fields.number(RecipeError, 4.0, above=0.0, below=math.inf)
    num_jobs_initial: int = fields.integer(RecipeError, 1, least=1)
    num_jobs_final: int = fields.integer(RecipeError, 1, least=1)
    initial_learning_rate: float = fields.number(RecipeError, 0.001, above=0.0, below=math.inf)
    final_learning_rate: float = fields.number(RecipeError, 0.0001, above=0.0, below=math.inf)
    momentum: float = fields.number(RecipeError, 0.0, below=1.0)
    max_param_change: float = fields.number(RecipeError, 2.0)
    minibatch_size: str = attrs.field(default="64", validator=[_is(str), _rules])
    frames_per_example: tuple[int, ...] = attrs.field(
        default=(20,),
        converter=_several,
        validator=attrs.validators.deep_iterable(fields.is_integer(RecipeError, 1)),
    )
    frames_per_archive: int = fields.integer(RecipeError, 400_000, least=1)
    shuffle_buffer_size: int = fields.integer(RecipeError, 5000, least=1)
    compress: bool = fields.switch(RecipeError, True)
    held_out_every: int = fields.integer(RecipeError, 20, least=2)
    diagnostic_examples: int = fields.integer(RecipeError, 500, least=1)
    max_models_combine: int = fields.integer(RecipeError, 20, least=1)
    seed: int = fields.integer(RecipeError, 0, least=0)
    frame_subsampling_factor: int = fields.integer(RecipeError, 1, least=1)
    dropout_schedule: str = attrs.field(default="", validator=[_is(str), _dropout])
    max_objective_difference: float = fields.number(RecipeError, 1.0, least=0.0, most=math.inf)
    fine_tuning: bool = fields.switch(RecipeError, False)
    freeze: tuple[str, ...] = attrs.field(
        default=(),
        converter=_several,
        validator=attrs.validators.deep_iterable(_is(str)),
    )
    chain: ChainOptions | None = attrs.field(
        default=None, validator=_is(ChainOptions, optional=True)
    )

    def __attrs_post_init__(self) -> None:
        if self.freeze and not self.fine_tuning:
            raise RecipeError("freeze: components are frozen only when fine-tuning")

    @property
    def values(self) -> dict[str, object]:
        """All options by name; those of `chain` among them, if it is given."""
        found = {name: value for name, value in _fields(self) if name != "chain"}
        return found | dict(_fields(self.chain) if self.chain is not None else ())

    @property
    def dropout(self) -> tuple[DropoutFunction, ...]:
        """The functions of `dropout_schedule`; where patterns fit a name, the last counts."""
        from nnet3_training.callbacks import DropoutFunction

        return tuple(map(DropoutFunction.parse, self.dropout_schedule.split()))


FINE_TUNING: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "num_epochs": 2.0,
        "initial_learning_rate": 1e-5,
        "final_learning_rate": 1e-5,
        # About as many frames in each minibatch, whatever the lengths of utterances.
        "minibatch_size": "150=1:64/300=1:32/600=1:16/1200=1:8/2400=1:4/4800=1:2/9600=1",
        "frames_per_archive": 60_000,  # so that an interruption loses little
        "held_out_every": 10,
        "diagnostic_examples": 100,  # whole utterances
        "fine_tuning": True,
        "chain": ChainOptions(
            leaky_hmm_coefficient=0.1, l2_regularize=0.00005, xent_regularize=0.1
        ),
    }
)
"""The options of `fine_tuning_options` that are no defaults of `RecipeOptions`."""


def fine_tuning_options(nnet: Nnet, **changes: Any) -> RecipeOptions:
    """The options of a run that fine-tunes a trained 'chain' model.

    The objective is that of Kaldi's recipes; with cross-entropy, if the network has that output.

    Args:
        nnet: The network.
        changes: Options of `RecipeOptions` that are to differ.

    Raises:
        RecipeError, ExampleError, TrainingError: an option is not valid.
    """
    chain: ChainOptions = FINE_TUNING["chain"]
    if all(node.name != "output-xent" for node in nnet.output_nodes):
        chain = attrs.evolve(chain, xent_regularize=0.0)
    return RecipeOptions(**{**FINE_TUNING, "chain": chain, **changes})


def _fields(value: attrs.AttrsInstance) -> list[tuple[str, object]]:
    """The fields of a value, with their names."""
    return [(field.name, getattr(value, field.name)) for field in attrs.fields(type(value))]


@attrs.frozen(kw_only=True)
class Iteration:
    """One round of jobs.

    Attributes:
        number: From 0; it makes network `number` + 1 of network `number`.
        archives: The numbers, from 0, of the archives of its jobs.
        learning_rate: The effective rate.
        frame_shifts: For each job, the number of frames by which its inputs are shifted.
        dropout: By pattern of names, the proportion of values that dropout drops.
    """

    number: int
    archives: tuple[int, ...]
    learning_rate: float
    frame_shifts: tuple[int, ...]
    dropout: dict[str, float]


def schedule(options: RecipeOptions, num_archives: int) -> tuple[Iteration, ...]:
    """The iterations of a run with `num_archives` archives.

    Archives are used in turn. The number of jobs grows evenly from the first to the last iteration;
    the last one has as many as archives are left.

    Raises:
        RecipeError: there are fewer archives than jobs, or more than 200,000 jobs in all.
    """
    first, last = options.num_jobs_initial, options.num_jobs_final
    if num_archives < max(first, last):
        raise RecipeError(
            f"expected an archive for each of {max(first, last)} jobs, found {num_archives}"
        )
    total = math.ceil(options.num_epochs * num_archives)
    if total > _MOST_JOBS:
        raise RecipeError(
            f"{options.num_epochs:g} epochs of {num_archives} archives are {total} jobs; expected "
            f"at most {_MOST_JOBS}"
        )
    rounds = max(1, round(2 * total / (first + last)))
    iterations: list[Iteration] = []
    done = 0
    while done < total:
        number = len(iterations)
        jobs = math.floor(0.5 + first + (last - first) * min(number / rounds, 1.0))
        jobs = min(jobs, total - done)
        part = done / total
        rate = options.initial_learning_rate ** (1.0 - part) * options.final_learning_rate**part
        places = [divmod(done + job, num_archives) for job in range(jobs)]
        step = options.frame_subsampling_factor
        iterations.append(
            Iteration(
                number=number,
                archives=tuple(archive for _, archive in places),
                learning_rate=rate,
                frame_shifts=tuple((archive + passed) % step for passed, archive in places),
                dropout={each.pattern: each(done / total) for each in options.dropout},
            )
        )
        done += jobs
    return tuple(iterations)


def first_combined(options: RecipeOptions, num_iterations: int) -> int:
    """The number of the first network that the final average can include."""
    return num_iterations + 1 - max(1, min(options.max_models_combine, num_iterations // 2))
