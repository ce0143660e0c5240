"""A device as the place where programs run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import DeviceError
from ..machine import Machine
from ..program import Program
from ..tape import Array, Call, Tape
from .kernels import Plan, plan_steps
from .memory import ShadowMemory
from .platform import Platform
from .program import Binder, DeviceSegment
from .tape import DeviceTape, PendingSegment


class DeviceMachine(Machine):
    """Runs programs on a platform.

    Attributes:
        memory: That of the device.
    """

    def __init__(self, platform: Platform) -> None:
        """Uses a platform; nothing is allocated yet."""
        self.memory = ShadowMemory(platform)

    def tape(self, dtype: npt.DTypeLike = np.float32) -> DeviceTape:
        """A tape that keeps operations.

        Raises:
            DeviceError: the dtype is not float32.
        """
        if np.dtype(dtype) != np.float32:
            raise DeviceError(f"expected values of float32 on a device, found {np.dtype(dtype)}")
        return DeviceTape(self.memory, self.finish)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """The shadow of uninitialised memory."""
        return self.memory.reserve(shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """The shadow of zeros."""
        return self.memory.zeros(shape, dtype)

    def bind(self, program: Program, tape: Tape) -> Program:
        """Compiles the kernels of all segments as one module, and binds them."""
        assert isinstance(tape, DeviceTape)
        segments = [*program.forward, *([program.backward] if program.backward else [])]
        calls = [call for segment in segments for call in segment.calls]
        self._bind(tape, [call for call in calls if isinstance(call, PendingSegment)])
        return attrs.evolve(program, memory_bytes=program.memory_bytes)

    def finish(self, tape: Tape) -> Callable[[], object]:
        """A call that runs what was recorded."""
        assert isinstance(tape, DeviceTape)
        calls: tuple[Call, ...] = tape.take()
        pending = [call for call in calls if isinstance(call, PendingSegment)]
        self._bind(tape, pending)

        def run() -> None:
            for call in calls:
                call()

        return run

    def _bind(self, tape: DeviceTape, pending: list[PendingSegment]) -> None:
        tape.device_scratch.place(self.memory)
        plans = [self._plan(tape, segment) for segment in pending]
        binder = Binder(self.memory, plans)
        for segment, plan in zip(pending, plans, strict=True):
            bound: DeviceSegment = binder.segment(plan, segment.host)
            segment.bound = bound

    def _plan(self, tape: DeviceTape, segment: PendingSegment) -> Plan:
        return plan_steps(segment.operations, tape.device_scratch.contains)

    def write(self, array: Array, values: npt.NDArray[Any]) -> None:
        """Uploads values to a contiguous array."""
        if array.size:
            contiguous = np.ascontiguousarray(values, dtype=array.dtype)
            self.memory.platform.upload(self._address(array), contiguous)

    def read(self, array: Array) -> Array:
        """Downloads a contiguous array."""
        values = np.empty(array.shape, dtype=array.dtype)
        if array.size:
            self.memory.platform.download(self._address(array), values)
        return values

    def clear(self, array: Array) -> None:
        """Sets a contiguous array to zero."""
        if array.size:
            self.memory.platform.clear(self._address(array), array.nbytes)

    def pull(self, arrays: Iterable[Array]) -> None:
        """Downloads arrays to where they show."""
        self.memory.pull(arrays)

    def push(self, arrays: Iterable[Array]) -> None:
        """Uploads what arrays show."""
        self.memory.push(arrays)

    def _address(self, array: Array) -> int:
        return self.memory.address(array.__array_interface__["data"][0])
