"""The protocol of a machine that runs programs, for lowering, computers and networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from nnet3_computation.computation import NnetComputation

from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.estimate_state import EstimateState
from nnet3_runtime_cuda.operations.natural_gradient import FisherEstimate
from nnet3_runtime_cuda.program import Program


class Threads(Protocol):
    """Threads of the processor that share work."""

    @property
    def threads(self) -> int:
        """The number of threads that compute at a time, with the asking one."""

    def side_by_side(self, tasks: Sequence[Callable[[], object]]) -> None:
        """Calls tasks that do not depend on one another, each on one thread."""


class Machine(Protocol):
    """Makes tapes and arrays, and binds recorded operations.

    On a device arrays are shadows (see `ShadowMemory`): `pull` and `push` move their contents.

    Attributes:
        is_device: Whether it is not the processor.
        workers: The threads of the processor that its programs share, if there are any.
    """

    is_device: ClassVar[bool]
    workers: Threads | None

    @abstractmethod
    def tape(self, dtype: npt.DTypeLike = np.float32, *, is_alone: bool = False) -> Tape:
        """A tape with separate scratch memory.

        Args:
            dtype: Of the values.
            is_alone: Whether the recorded operations run on one thread, beside other programs.
        """

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array of zeros."""

    @abstractmethod
    def bind(self, program: Program, tape: Tape, computation: NnetComputation) -> Program:
        """A lowered program, ready to run.

        Raises:
            DeviceMemoryError: there is not enough memory; the message names a minibatch that would
                fit.
        """

    @abstractmethod
    def finish(self, tape: Tape) -> Callable[[], object]:
        """A call that runs the recorded operations of a tape of this machine."""

    @abstractmethod
    def freeze_estimates(self, on: bool) -> None:
        """Sets whether the estimates of Fisher matrices stay fixed.

        An estimate that no minibatch has changed yet still begins with the next minibatch.
        """

    @abstractmethod
    def keep_estimates(self) -> Callable[[], object]:
        """Keeps the estimates, and the places in streams of random numbers of a device.

        Returns:
            A call that sets them back.
        """

    @abstractmethod
    def estimate_state(self, estimate: FisherEstimate) -> EstimateState:
        """The state of an estimate of a Fisher matrix between two minibatches."""

    @abstractmethod
    def resume_estimate(self, estimate: FisherEstimate, state: EstimateState) -> None:
        """Sets the state of an estimate that no program uses yet."""

    @abstractmethod
    def pull(self, arrays: Iterable[Array]) -> None:
        """Copies the contents of memory into the whole contiguous arrays that stand for it."""

    @abstractmethod
    def push(self, arrays: Iterable[Array]) -> None:
        """Copies contiguous arrays into the memory that they stand for."""
