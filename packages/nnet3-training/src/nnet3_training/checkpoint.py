"""Checkpoints: files with everything that a training run needs to continue.

A checkpoint is a safetensors container as those of `Nnet`, with the format "nnet3.trainer": the
network, options, running sums, estimates, the state of random numbers, and counts. It contains its
own digest, by which a reader notices any damage.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Self

import attrs
import numpy.typing as npt
from nnet3_descriptors import Nnet, SerializationError
from nnet3_descriptors.values import Serialized
from nnet3_runtime_cuda.device import TrainingState

from nnet3_training.objectives import ObjectiveSum
from nnet3_training.options import TrainerOptions

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
class Checkpoint(Serialized):
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
    state: TrainingState
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
