"""Where programs run: what lowering, computers and networks need of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from nnet3_compiler.computation import NnetComputation

from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.estimate_state import EstimateState
from nnet3_runtime_cuda.operations.natural_gradient import FisherEstimate
from nnet3_runtime_cuda.program import Program


class Threads(Protocol):
    """Threads of the processor that share work."""

    @property
    def threads(self) -> int:
        """How many compute at a time, with the one that asks."""

    def side_by_side(self, tasks: Sequence[Callable[[], object]]) -> None:
        """Calls tasks that do not depend on one another, each on one thread of its own."""


class Machine(Protocol):
    """Makes tapes and arrays, and binds what was recorded.

    On a device arrays are shadows (see `ShadowMemory`): `pull` and `push` move what they stand for.

    Attributes:
        is_device: Whether it is another machine than the processor.
        workers: The threads of the processor that its programs share, if there are any.
    """

    is_device: ClassVar[bool]
    workers: Threads | None

    @abstractmethod
    def tape(self, dtype: npt.DTypeLike = np.float32, *, is_alone: bool = False) -> Tape:
        """A tape with scratch memory of its own.

        Args:
            dtype: Of the values.
            is_alone: Whether what it records is to run on one thread, beside other programs.
        """

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array of zeros."""

    @abstractmethod
    def bind(self, program: Program, tape: Tape, computation: NnetComputation) -> Program:
        """A lowered program, ready to run.

        Raises:
            DeviceMemoryError: there is not enough memory; the message says what would fit.
        """

    @abstractmethod
    def finish(self, tape: Tape) -> Callable[[], object]:
        """A call that runs what was recorded on a tape of this machine."""

    @abstractmethod
    def freeze_estimates(self, on: bool) -> None:
        """Says whether minibatches leave the estimates of Fisher matrices as they are.

        Those that no minibatch has changed yet begin with the next one all the same.
        """

    @abstractmethod
    def estimate_state(self, estimate: FisherEstimate) -> EstimateState:
        """An estimate of a Fisher matrix as it is between two minibatches."""

    @abstractmethod
    def resume_estimate(self, estimate: FisherEstimate, state: EstimateState) -> None:
        """Lets an estimate that no program uses yet go on from a state."""

    @abstractmethod
    def pull(self, arrays: Iterable[Array]) -> None:
        """Makes whole contiguous arrays show what they stand for."""

    @abstractmethod
    def push(self, arrays: Iterable[Array]) -> None:
        """Makes what contiguous arrays stand for the same as what they show."""
