"""What a tape for a device holds until it is bound: working memory, and operations by segment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..tape import Array, Scratch
from . import operations as ops
from .host_values import HostSteps
from .kernels import Plan
from .memory import ShadowMemory, reserved
from .program import DeviceSegment
from .views import View

LARGEST_SCRATCH = 1 << 36
"""Bytes of host addresses that stand for working memory; how many are used is known at the end."""


class DeviceScratch(Scratch):
    """Working memory of commands: gets its place on the device once it is known how much."""

    def __init__(self) -> None:
        super().__init__(np)
        self._block = reserved(LARGEST_SCRATCH)

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialised array that holds its contents until the command has run."""
        array = super().take(shape, dtype)
        self.nbytes = max(self.nbytes, self._used)
        return array

    def place(self, memory: ShadowMemory) -> None:
        """Allocates on the device what is used."""
        if self.nbytes:
            memory.place(self._block[: self.nbytes])

    def contains(self, view: View) -> bool:
        """Whether a view is of this memory."""
        start: int = self._block.__array_interface__["data"][0]
        return start <= view.address < start + LARGEST_SCRATCH


class PendingSegment:
    """The one call of a segment: what was recorded, and once it is bound, what runs.

    Attributes:
        operations: What was recorded.
        host: What the host does first.
        plan: The kernels and products that do it.
        bound: What runs.
    """

    def __init__(self, operations: tuple[ops.Operation, ...], host: HostSteps) -> None:
        self.operations = operations
        self.host = host
        self.plan: Plan | None = None
        self.bound: DeviceSegment | None = None

    def __call__(self) -> None:
        """Runs the segment."""
        assert self.bound is not None, "programs are bound before they run"
        self.bound.run()

    def __len__(self) -> int:
        """The number of steps that the device does."""
        return 0 if self.bound is None else len(self.bound.calls)
