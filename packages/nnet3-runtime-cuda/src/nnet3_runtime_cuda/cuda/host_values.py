"""What the host knows before a run: flags and small arrays that kernels read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..tape import Array
from .memory import ShadowMemory

BLOCK = 1 << 16
"""Arrays are packed into blocks of so many bytes, each one upload."""


@attrs.frozen(eq=False)
class _Block:
    """Host memory that is copied to the device before a run."""

    memory: npt.NDArray[np.uint8]
    used: list[int]


@attrs.define(eq=False)
class Phase:
    """A decision of the host on which a part of a program depends.

    Attributes:
        number: Of the decision, in its segment.
        decides: Makes it.
        value: What it was for the coming run.
    """

    number: int
    decides: Callable[[], bool]
    value: bool = False


@attrs.define
class HostSteps:
    """What the host does before a segment runs.

    Attributes:
        phases: Its decisions, in order; they are made first.
        fills: Functions to call, in order.
        uploads: Arrays to copy to the device afterwards.
    """

    memory: ShadowMemory
    phases: tuple[Phase, ...]
    fills: tuple[Callable[[], object], ...]
    uploads: tuple[Array, ...]

    def run(self) -> tuple[bool, ...]:
        """Makes the decisions, fills the arrays and uploads them; returns the decisions."""
        for phase in self.phases:
            phase.value = bool(phase.decides())
        for fill in self.fills:
            fill()
        self.memory.push(self.uploads)
        return tuple(phase.value for phase in self.phases)


class HostValues:
    """The arrays that the host fills for the segments of one program."""

    def __init__(self, memory: ShadowMemory) -> None:
        self._memory = memory
        self._phases: list[Phase] = []
        self._fills: list[Callable[[], object]] = []
        self._blocks: list[_Block] = []

    def array(
        self, fill: Callable[[Array], object], shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> Array:
        """A zeroed array that a function fills before each run."""
        kind = np.dtype(dtype)
        array = self._take(int(np.prod(shape)) * kind.itemsize).view(kind).reshape(shape)
        self._fills.append(lambda: fill(array))
        return array

    def phase(self, decides: Callable[[], bool]) -> Phase:
        """A decision that is made before each run."""
        self._phases.append(Phase(len(self._phases), decides))
        return self._phases[-1]

    def note(self, function: Callable[[], object]) -> None:
        """A function to be called before each run."""
        self._fills.append(function)

    @property
    def is_used(self) -> bool:
        """Whether the host has anything to do."""
        return bool(self._fills or self._phases)

    def take_steps(self) -> HostSteps:
        """What was asked for since the last call."""
        steps = HostSteps(
            self._memory,
            tuple(self._phases),
            tuple(self._fills),
            tuple(b.memory[: b.used[0]] for b in self._blocks),
        )
        self._phases, self._fills, self._blocks = [], [], []
        return steps

    def _take(self, nbytes: int) -> npt.NDArray[Any]:
        size = -(-max(nbytes, 1) // 16) * 16
        if not self._blocks or self._blocks[-1].used[0] + size > self._blocks[-1].memory.nbytes:
            memory = np.zeros(max(BLOCK, size), dtype=np.uint8)
            self._memory.place(memory)
            self._blocks.append(_Block(memory, [0]))
        block = self._blocks[-1]
        start = block.used[0]
        block.used[0] += size
        return block.memory[start : start + nbytes]
