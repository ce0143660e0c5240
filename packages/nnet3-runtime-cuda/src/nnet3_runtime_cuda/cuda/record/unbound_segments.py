"""The contents of a device's tape before it is bound: working memory, and operations by segment."""

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
"""Bytes of reserved host addresses that stand for working memory; it uses the first of them."""

RING, SMALL = 1 << 20, 1 << 15
"""Bytes of the ring for small arrays, and the most bytes of a small array."""


class DeviceScratch(Scratch):
    """Working memory of commands, placed on the device when its size is known.

    Small arrays, such as sums of columns, take turns in a separate ring. If neighbouring commands
    used the same memory for different arrays, their operations could not share a kernel.
    """

    def __init__(self) -> None:
        super().__init__()
        # The ring, followed by the memory for all other arrays.
        self._memory = reserved(LARGEST_SCRATCH)
        self._blocks = [self._memory[RING:]]
        self._next_in_ring = 0
        self.begin()

    def begin(self) -> None:
        """Starts a new command: frees all arrays, and forgets lent memory."""
        super().begin()
        self._left_in_ring = RING

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialised array that keeps its contents until the command has run."""
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
        """The place of the next `size` bytes of the ring; None if the command has used it up."""
        start, skipped = self._next_in_ring, 0
        if start + size > RING:
            # Nothing is skipped if the arrays so far end where the ring ends.
            start, skipped = 0, RING - start
        if size + skipped > self._left_in_ring:
            return None
        self._left_in_ring -= size + skipped
        self._next_in_ring = start + size
        return start

    def place(self, memory: ShadowMemory) -> None:
        """Allocates the used part on the device."""
        if self.nbytes:
            memory.place(self._memory[: self.nbytes])

    def contains(self, view: View) -> bool:
        """Whether a view lies in this memory."""
        start: int = self._memory.__array_interface__["data"][0]
        return start <= view.address < start + LARGEST_SCRATCH


class BoundSegment(Protocol):
    """A segment that is bound to a device."""

    @property
    def num_calls(self) -> int:
        """The most launches and products that it runs."""

    def run(self) -> None:
        """Runs the segment."""


class PendingSegment:
    """The one call of a segment: the recorded operations and, once bound, the bound segment.

    Attributes:
        operations: The recorded operations.
        host: The host's work before them.
        scratch: The working memory of commands.
        bound: The bound segment, if any.
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
        """Number of launches and products of the device."""
        return 0 if self.bound is None else self.bound.num_calls
