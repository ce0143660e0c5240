"""A device as the place where programs run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import ClassVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation.computation import NnetComputation

from nnet3_runtime_cuda.cuda.bind.binder import Binder
from nnet3_runtime_cuda.cuda.bind.exchange import Exchange
from nnet3_runtime_cuda.cuda.fuse.launch_list import launch_list
from nnet3_runtime_cuda.cuda.memory.program_memory import ProgramMemory
from nnet3_runtime_cuda.cuda.memory.shadow_memory import ShadowMemory
from nnet3_runtime_cuda.cuda.platform.platform import Platform
from nnet3_runtime_cuda.cuda.record.device_tape import DeviceTape
from nnet3_runtime_cuda.cuda.record.estimates import Estimates
from nnet3_runtime_cuda.cuda.record.unbound_segments import PendingSegment
from nnet3_runtime_cuda.errors import DeviceError
from nnet3_runtime_cuda.machine import KeptArrays, Machine, Program
from nnet3_runtime_cuda.operations import Array, Call, Tape
from nnet3_runtime_cuda.operations.gradients import EstimateState, FisherEstimate


class DeviceMachine(Machine):
    """Runs programs on a platform.

    Attributes:
        memory: The memory of the network.
    """

    is_device: ClassVar[bool] = True

    def __init__(self, platform: Platform) -> None:
        """Uses a platform; nothing is allocated yet."""
        self.workers = None
        self.memory = ShadowMemory(platform)
        self._estimates = Estimates(self.memory)
        self._kept = KeptArrays()
        weakref.finalize(self, self.memory.close).atexit = False

    def tape(self, dtype: npt.DTypeLike = np.float32, *, is_alone: bool = False) -> DeviceTape:
        """A tape that keeps operations; threads of the processor do not matter.

        Raises:
            DeviceError: the dtype is not float32.
        """
        if np.dtype(dtype) != np.float32:
            raise DeviceError(f"expected values of float32 on a device, found {np.dtype(dtype)}")
        return DeviceTape(ProgramMemory(self.memory), self.finish, self._estimates)

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """The shadow of zeros."""
        return self.memory.zeros(shape, dtype)

    def bind(self, program: Program, tape: Tape, computation: NnetComputation) -> Program:
        """Compiles the kernels of all segments as one module, and binds them.

        Raises:
            DeviceMemoryError: there is not enough memory; the message names a minibatch that would
                fit.
        """
        assert isinstance(tape, DeviceTape)
        pending = [call for call in program.calls if isinstance(call, PendingSegment)]
        self._bind(tape, pending, computation)
        bound = attrs.evolve(
            program,
            memory_bytes=tape.memory.nbytes,
            transfer=Exchange(tape.memory),
        )
        weakref.finalize(bound, tape.memory.close).atexit = False
        return bound

    def finish(self, tape: Tape) -> Callable[[], object]:
        """A call that runs the recorded operations."""
        assert isinstance(tape, DeviceTape)
        calls: tuple[Call, ...] = tape.take()
        pending = [call for call in calls if isinstance(call, PendingSegment)]
        self._bind(tape, pending)

        def run() -> None:
            for call in calls:
                call()

        weakref.finalize(run, tape.memory.close).atexit = False
        return run

    def _bind(
        self,
        tape: DeviceTape,
        pending: list[PendingSegment],
        computation: NnetComputation | None = None,
    ) -> None:
        tape.device_scratch.place(tape.memory)
        lists = [launch_list(segment.operations, segment.scratch.contains) for segment in pending]
        binder = Binder(tape.memory, lists, computation)
        for segment, launches in zip(pending, lists, strict=True):
            segment.bound = binder.segment(launches, segment.host)
        # The uploads must be done before any stream runs the program.
        self.memory.platform.synchronize()

    def freeze_estimates(self, on: bool) -> None:
        """Sets whether the estimates of Fisher matrices stay fixed."""
        self._estimates.clock.is_frozen = on

    def keep_estimates(self) -> Callable[[], object]:
        """Keeps estimates and counts of the host; the call that it returns sets them back."""
        arrays, clock = self._kept.keep(self, self._estimates.arrays), self._estimates.clock.keep()

        def restore() -> None:
            arrays()
            clock()

        return restore

    def estimate_state(self, estimate: FisherEstimate) -> EstimateState:
        """Downloads an estimate, between two minibatches."""
        return self._estimates.state(estimate)

    def resume_estimate(self, estimate: FisherEstimate, state: EstimateState) -> None:
        """Sets the state from which an estimate, which no program uses yet, continues."""
        self._estimates.resume(estimate, state)

    def pull(self, arrays: Iterable[Array]) -> None:
        """Downloads the contents of arrays into their shadows."""
        self.memory.pull(arrays)

    def push(self, arrays: Iterable[Array]) -> None:
        """Uploads the contents of shadows."""
        self.memory.push(arrays)

    def _address(self, array: Array) -> int:
        return self.memory.address_of(array)
