"""The options of training, and checkpoints: files with all that a run needs to continue.

A checkpoint is a safetensors container as those of `Nnet`, with the format "nnet3.trainer": the
network, options, running sums, estimates, the state of random numbers, and counts. It contains its
own digest, by which a reader notices any damage.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Self

import attrs
import numpy.typing as npt
from nnet3_compiler import CompilerOptions
from nnet3_descriptors import Nnet, SerializationError, values
from nnet3_optimizer import OptimizeOptions
from nnet3_runtime_cuda import TrainingError, device

from nnet3_training import evaluation, fields
from nnet3_training.objectives import ObjectiveSum


@attrs.frozen(kw_only=True)
class TrainerOptions:
    """The options of training; names and defaults are those of Kaldi's nnet3-train.

    Learning rates, max-change, l2 and orthonormal constraint of single components are fields of the
    components.

    Attributes:
        learning_rate: If given, replaces the rates of all components; each is multiplied by the
            component's learning_rate_factor.
        momentum: The factor of the last change in the next one; the trainer multiplies changes by 1
            - momentum, so that learning rates keep their effect in the long run.
        max_param_change: Bound of the Euclidean norm of one change of all parameters; 0 for none.
        l2_regularize_factor: Multiplies the l2 of components.
        batchnorm_stats_scale: The factor of the statistics of batch-norm at each step, so that
            statistics of old parameters fade.
        natural_gradient: Whether components use the natural gradient, if their type can.
        store_component_stats: Whether components record averages of activations and derivatives,
            which self-repair uses.
        zero_component_stats: Whether these averages begin at zero.
        orthonormal_period: Number of minibatches from one step towards a component's orthonormal
            constraint to the next (Kaldi: at random, as often on average).
        print_interval: Number of minibatches from one log line of the objective to the next.
        backstitch_training_scale: The length of a step back before a longer one ahead, both on the
            same minibatch (Y. Wang et al., "Backstitch", Interspeech 2017); 0 for none. Not
            together with momentum.
        backstitch_training_interval: Number of minibatches from one such step to the next.
        backstitch_phase: The first minibatch with such a step, from 0 (Kaldi: at random).
        seed: The seed for dropout, and for the choice of minibatches whose statistics are recorded.
        max_computations: Number of minibatch shapes whose programs are kept, each with its own
            memory. The least recently used program is dropped first.
        compiler_options: The options of the compiler.
        optimize_options: The options of the optimizer.

    Raises:
        TrainingError: a number is out of range, a switch is neither True nor False, or there are
            both backstitch and momentum.
    """

    learning_rate: float | None = fields.number(TrainingError, None)
    momentum: float = fields.number(TrainingError, 0.0, below=1.0)
    max_param_change: float = fields.number(TrainingError, 2.0)
    l2_regularize_factor: float = fields.number(TrainingError, 1.0)
    batchnorm_stats_scale: float = fields.number(TrainingError, 0.8, most=1.0)
    natural_gradient: bool = fields.switch(TrainingError, True)
    store_component_stats: bool = fields.switch(TrainingError, True)
    zero_component_stats: bool = fields.switch(TrainingError, True)
    orthonormal_period: int = fields.integer(TrainingError, 4, least=1)
    print_interval: int = fields.integer(TrainingError, 100, least=1)
    backstitch_training_scale: float = fields.number(TrainingError, 0.0)
    backstitch_training_interval: int = fields.integer(TrainingError, 1, least=1)
    backstitch_phase: int = fields.integer(TrainingError, 0, least=0)
    seed: int = fields.integer(TrainingError, 0, least=0)
    max_computations: int = fields.integer(TrainingError, evaluation.MOST_COMPUTERS, least=1)
    compiler_options: CompilerOptions = attrs.field(factory=CompilerOptions)
    optimize_options: OptimizeOptions = attrs.field(factory=OptimizeOptions)

    def __attrs_post_init__(self) -> None:
        if self.backstitch_training_scale and self.momentum:
            raise TrainingError("backstitch cannot be combined with momentum")


_UNKNOWN = "0" * 64
"""Stands for the digest while it is computed."""


@attrs.frozen(kw_only=True, eq=False)
class Progress:
    """The counts and sums of a trainer; see the attributes of `Trainer` with these names.

    Attributes:
        phase: The objectives since they were last logged.
    """

    num_minibatches: int = 0
    num_updates: int = 0
    num_skipped: int = 0
    num_globally_limited: int = 0
    num_limited: dict[str, int] = attrs.field(factory=dict)
    objectives: dict[str, ObjectiveSum] = attrs.field(factory=dict)
    phase: dict[str, ObjectiveSum] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True, eq=False)
class Checkpoint(values.Serialized):
    """A training run between two minibatches.

    Attributes:
        nnet: The network with its current parameters, statistics and options.
        options: The options of the trainer.
        has_own_objective: Whether the trainer was given an objective.
        objective_name: Name of that objective, if it has one.
        running_sum: (num_parameters,), the running sum of directions for momentum; (0,) without.
        sum_rates: For each group of parameters, the factor of the running sum.
        state: Everything else that training has changed on the device.
        progress: Counts and sums.
        digest: BLAKE2b digest of the container, computed with zeros in its place: 64 hexadecimal
            digits.
    """

    FORMAT: ClassVar[str] = "nnet3.trainer"
    VERSION: ClassVar[int] = 1

    nnet: Nnet
    options: TrainerOptions
    has_own_objective: bool
    objective_name: str | None
    running_sum: npt.NDArray[Any]
    sum_rates: tuple[float, ...]
    state: device.TrainingState
    progress: Progress
    digest: str = _UNKNOWN

    def to_bytes(self) -> bytes:
        """Returns the value as a safetensors container; equal values give equal bytes."""
        data = super().to_bytes()
        return _with_digest(data, _digest(data), instead_of=_UNKNOWN)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads what `to_bytes` has written.

        Raises:
            SerializationError: The bytes are not such a container, or were changed.
        """
        checkpoint = super().from_bytes(data)
        known = checkpoint.digest
        if _digest(_with_digest(data, _UNKNOWN, instead_of=known)) != known:
            raise SerializationError(
                "the checkpoint is damaged: its digest does not match its content"
            )
        return checkpoint


def _with_digest(data: bytes, digest: str, *, instead_of: str) -> bytes:
    before, after = (f'\\"digest\\":\\"{each}\\"'.encode() for each in (instead_of, digest))
    return data.replace(before, after, 1)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=len(_UNKNOWN) // 2).hexdigest()
