"""The processor as a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.arrays import running
from nnet3_runtime_cuda.cpu.natural_gradient import OnlineNaturalGradient
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.machine import Machine, all_of
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.gradients import EstimateState, FisherEstimate
from nnet3_runtime_cuda.operations.scratch import Workspace


class CpuMachine(Machine):
    """The processor: arrays are NumPy arrays, and a program is the recorded calls.

    All its programs update the same estimates of the natural gradient.
    """

    is_device: ClassVar[bool] = False

    def __init__(self, threads: int = 1) -> None:
        """Runs programs on `threads` threads."""
        self.workers = Workers(threads) if threads > 1 else None
        self._estimates: dict[FisherEstimate, OnlineNaturalGradient] = {}
        self._are_frozen = False

    def tape(
        self,
        dtype: npt.DTypeLike = np.float32,
        *,
        is_alone: bool = False,
        workspace: Workspace | None = None,
    ) -> NumpyTape:
        """A tape with memory of its own, or that of a workspace."""
        workers = None if is_alone else self.workers
        return NumpyTape(dtype, workspace, workers, self.online)

    def online(self, estimate: FisherEstimate) -> OnlineNaturalGradient:
        """What has an estimate, made on first use."""
        if estimate not in self._estimates:
            self._estimates[estimate] = OnlineNaturalGradient(estimate)
            self._estimates[estimate].is_frozen = self._are_frozen
        return self._estimates[estimate]

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array of zeros."""
        return np.zeros(shape, dtype=dtype)

    def finish(self, tape: Tape) -> Callable[[], object]:
        """A call that runs the recorded calls of a tape of this machine."""
        calls = tape.take()

        def run() -> None:
            with running():
                for call in calls:
                    call()

        return run

    def freeze_estimates(self, on: bool) -> None:
        """Sets whether the estimates of Fisher matrices stay fixed."""
        self._are_frozen = on
        for each in self._estimates.values():
            each.is_frozen = on

    def keep_estimates(self) -> Callable[[], object]:
        """Keeps the estimates; the call that it returns sets them back."""
        return all_of([each.keep() for each in self._estimates.values()])

    def estimate_state(self, estimate: FisherEstimate) -> EstimateState:
        """The state of an estimate between two minibatches."""
        return self.online(estimate).state

    def resume_estimate(self, estimate: FisherEstimate, state: EstimateState) -> None:
        """Continues an estimate from a state."""
        self.online(estimate).state = state

    def pull(self, arrays: Iterable[Array]) -> None:
        """Does nothing: the arrays are the memory of the machine."""

    def push(self, arrays: Iterable[Array]) -> None:
        """Does nothing, for the same reason."""
