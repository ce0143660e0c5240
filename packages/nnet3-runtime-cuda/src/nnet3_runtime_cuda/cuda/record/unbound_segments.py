"""What a tape for a device holds until it is bound: working memory, and operations by segment."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cuda.memory.shadow_memory import ShadowMemory, reserved
from nnet3_runtime_cuda.cuda.record.host_values import HostSteps
from nnet3_runtime_cuda.cuda.recorded import recorded_operations as ops
from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.scratch import Scratch

LARGEST_SCRATCH = 1 << 36
"""Bytes of host addresses that stand for working memory; how many are used is known at the end."""

RING, SMALL = 1 << 20, 1 << 15
"""Bytes that arrays of up to so many bytes take in turn."""


class DeviceScratch(Scratch):
    """Working memory of commands: gets its place on the device once it is known how much.

    Small arrays, sums of columns for one, go round in a ring of their own: operations of commands
    that follow one another could not share a kernel if they used the same memory differently.
    """

    def __init__(self) -> None:
        super().__init__()
        # The ring, and behind it what all other arrays are taken from.
        self._memory = reserved(LARGEST_SCRATCH)
        self._blocks = [self._memory[RING:]]
        self._next_in_ring = 0
        self.begin()

    def begin(self) -> None:
        """Gives everything taken so far back, and what was lent: a new command starts."""
        super().begin()
        self._left_in_ring = RING

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialised array that holds its contents until the command has run."""
        kind = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        start = self._place_in_ring(-(-nbytes // 64) * 64) if nbytes <= SMALL else None
        if start is None:
            array = super().take(shape, kind)
            if self.mark[0] == len(self._lent):
                self.nbytes = max(self.nbytes, RING + self.mark[1])
            return array
        self.nbytes = max(self.nbytes, start + nbytes)
        small: Array = self._memory[start : start + nbytes].view(kind).reshape(shape)
        return small

    def _place_in_ring(self, size: int) -> int | None:
        """Where the next bytes of the ring are, unless the command has taken all of it."""
        start = self._next_in_ring
        skipped = RING - start if start + size > RING else 0
        if size + skipped > self._left_in_ring:
            return None
        self._left_in_ring -= size + skipped
        start = 0 if skipped else start
        self._next_in_ring = start + size
        return start

    def place(self, memory: ShadowMemory) -> None:
        """Allocates on the device what is used."""
        if self.nbytes:
            memory.place(self._memory[: self.nbytes])

    def contains(self, view: View) -> bool:
        """Whether a view is of this memory."""
        start: int = self._memory.__array_interface__["data"][0]
        return start <= view.address < start + LARGEST_SCRATCH


class BoundSegment(Protocol):
    """A segment that is bound to a device."""

    @property
    def num_calls(self) -> int:
        """How many launches and products it may run."""

    def run(self) -> None:
        """Runs it."""


class PendingSegment:
    """The one call of a segment: what was recorded, and once it is bound, what runs.

    Attributes:
        operations: What was recorded.
        host: What the host does first.
        scratch: The working memory of commands.
        bound: What runs.
    """

    def __init__(
        self, operations: tuple[ops.Operation, ...], host: HostSteps, scratch: DeviceScratch
    ) -> None:
        self.operations = operations
        self.host = host
        self.scratch = scratch
        self.bound: BoundSegment | None = None

    def __call__(self) -> None:
        """Runs the segment."""
        assert self.bound is not None, "programs are bound before they run"
        self.bound.run()

    def __len__(self) -> int:
        """The number of launches and products that the device does."""
        return 0 if self.bound is None else self.bound.num_calls
