"""The values that the host sets before a run: decisions, and small arrays for kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cuda.memory.shadow_memory import ShadowMemory
from nnet3_runtime_cuda.cuda.record.estimate_schedule import Clock, Decisions, Flags, Schedule
from nnet3_runtime_cuda.operations import Array

BLOCK = 1 << 16
"""The size of the blocks that arrays are packed into; each block is one upload."""

VALUES = 1 << 10
"""The most numbers of the host that lie together."""


@attrs.frozen(eq=False)
class _Block:
    """Host memory that is copied to the device before a run."""

    memory: npt.NDArray[np.uint8]
    used: list[int]


@attrs.frozen(eq=False)
class _Values:
    """The array for numbers that functions return.

    Attributes:
        array: (at least as many,) float64.
        functions: Numbers of the functions.
    """

    array: Array
    functions: list[int]


@attrs.frozen(eq=False)
class _Flagged:
    """An array that is to hold decisions of these numbers."""

    array: Array
    numbers: npt.NDArray[np.int64]


class HostSteps:
    """The work of the host before a segment runs.

    Attributes:
        decisions: The decisions, which are made first.
    """

    def __init__(
        self,
        memory: ShadowMemory,
        decisions: Decisions,
        functions: Sequence[Callable[[], Any]],
        values: Sequence[_Values],
        flagged: Sequence[_Flagged],
        blocks: Sequence[_Block],
    ) -> None:
        """Takes the arrays and functions of a segment."""
        self.decisions = decisions
        self._functions = tuple(functions)
        # One call takes all numbers of an array out of the results.
        self._values = [(v.array[: len(v.functions)], itemgetter(*v.functions)) for v in values]
        self._flagged = tuple(flagged)
        self._blocks = tuple(block.memory[: block.used[0]] for block in blocks)
        self._memory = memory
        self._uploads: list[tuple[int, Array]] | None = None

    def run(self) -> Flags:
        """Does the work; returns the decisions, (decisions,), which hold until the next run."""
        flags = self.decisions.next()
        results = [function() for function in self._functions]
        for array, chosen in self._values:
            array[...] = chosen(results)
        for flagged in self._flagged:
            flagged.array[...] = flags[flagged.numbers]
        if self._uploads is None:  # memory has addresses by now
            self._uploads = [(self._memory.address_of(block), block) for block in self._blocks]
        for address, block in self._uploads:
            self._memory.platform.upload(address, block)
        return flags


class HostValues:
    """Collects the work of the host for the segments of one program.

    Attributes:
        schedule: The decisions of the segment.
    """

    def __init__(self, memory: ShadowMemory, clock: Clock) -> None:
        """Starts without anything to do.

        Args:
            memory: The memory of the arrays.
            clock: Counts the minibatches on which the decisions depend.
        """
        self._memory = memory
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self.schedule = Schedule(self._clock)
        self._functions: list[Callable[[], Any]] = []
        self._values: list[_Values] = []
        self._flagged: list[_Flagged] = []
        self._blocks: list[_Block] = []

    def array(
        self, fill: Callable[[Array], object], shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> Array:
        """A zeroed array that a function fills before each run."""
        array = self._zeros(shape, dtype)
        self.note(lambda: fill(array))
        return array

    def value(self, function: Callable[[], float]) -> Array:
        """(1,) float64: the result of a function that is called before each run."""
        if not self._values or len(self._values[-1].functions) == VALUES:
            self._values.append(_Values(self._zeros((VALUES,), np.float64), []))
        array, functions = self._values[-1].array, self._values[-1].functions
        functions.append(len(self._functions))
        self.note(function)
        return array[len(functions) - 1 : len(functions)]

    def note(self, function: Callable[[], object]) -> None:
        """A function to be called before each run."""
        self._functions.append(function)

    def table(self, known: Array, decisions: Sequence[int]) -> Array:
        """A copy of a table, (rows, columns) float64, with decisions in its last column.

        Args:
            known: The table.
            decisions: For each row the number of the decision that is put there before each run.
        """
        table = self._zeros(known.shape, known.dtype)
        table[...] = known
        self._flagged.append(_Flagged(table[:, -1], np.array(decisions, dtype=np.int64)))
        return table

    @property
    def is_used(self) -> bool:
        """Whether the host has anything to do."""
        return bool(self._functions or self.schedule.length)

    def take_steps(self) -> HostSteps:
        """The work that was added since the last call."""
        steps = HostSteps(
            self._memory,
            self.schedule.decisions(),
            self._functions,
            self._values,
            self._flagged,
            self._blocks,
        )
        self._begin()
        return steps

    def _zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        kind = np.dtype(dtype)
        nbytes = int(np.prod(shape)) * kind.itemsize
        size = -(-max(nbytes, 1) // 16) * 16
        if not self._blocks or self._blocks[-1].used[0] + size > self._blocks[-1].memory.nbytes:
            memory = np.zeros(max(BLOCK, size), dtype=np.uint8)
            self._memory.place(memory)
            self._blocks.append(_Block(memory, [0]))
        block = self._blocks[-1]
        start = block.used[0]
        block.used[0] += size
        return block.memory[start : start + nbytes].view(kind).reshape(shape)
