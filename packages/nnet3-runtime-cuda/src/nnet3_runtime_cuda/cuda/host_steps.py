"""The work of the host before a segment runs: decisions by counting, and small arrays for kernels.

An estimate of the natural gradient begins with the first minibatch that uses it, moves on each of
the next few, and then on one in a period. A segment uses many estimates, so it makes the decisions
for all of them at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cuda.memory import ShadowMemory
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import INITIAL_UPDATES

ALWAYS = -1
"""The number for no decision: operations with it always run."""

BLOCK = 1 << 16
"""The size of the blocks that arrays are packed into; each block is one upload."""

VALUES = 1 << 10
"""The most numbers of the host that lie together."""

Flags = npt.NDArray[np.bool_]


class Clock:
    """Counts the minibatches that have used each estimate of a network, and random draws.

    Attributes:
        minibatches: (estimates,).
        draws: For each operation that draws random numbers, how often it has.
        is_frozen: Whether estimates stay fixed after they have begun.
    """

    def __init__(self) -> None:
        """Starts without estimates."""
        self.minibatches = np.zeros(0, dtype=np.int64)
        self.draws: list[int] = []
        self.is_frozen = False

    def add(self) -> int:
        """A new estimate; returns its number."""
        self.minibatches = np.append(self.minibatches, 0)
        return len(self.minibatches) - 1

    def new_draws(self) -> Callable[[], float]:
        """Counts the draws of a further operation: calls give 0, 1, 2, ..."""
        number = len(self.draws)
        self.draws.append(0)

        def count() -> float:
            self.draws[number] += 1
            return float(self.draws[number] - 1)

        return count

    def keep(self) -> Callable[[], object]:
        """Keeps all counts; the call that it returns sets them back."""
        minibatches, draws = self.minibatches.copy(), self.draws.copy()

        def restore() -> None:
            self.minibatches[: len(minibatches)] = minibatches
            self.draws[: len(draws)] = draws

        return restore


class Use(NamedTuple):
    """The decisions about one of the times that a segment uses an estimate, by number.

    Attributes:
        begins: Whether the estimate begins.
        moves: Whether it moves.
    """

    begins: int
    moves: int


class Schedule:
    """The decisions of one segment: asked for in the order of recording, then made in each run.

    Attributes:
        length: Number of decisions.
    """

    def __init__(self, clock: Clock) -> None:
        """Starts without decisions; `clock` counts for the estimates."""
        self.length = 0
        self._clock = clock
        self._times: Counter[int] = Counter()
        # For each use the estimate, its earlier uses in the same run, its period, and `begins`.
        self._uses: list[tuple[int, int, int, int]] = []
        self._unions: list[tuple[int, list[int]]] = []

    def use(self, estimate: int, period: int) -> Use:
        """The decisions about the next use of an estimate that moves once in a period."""
        self._uses.append((estimate, self._times[estimate], period, self.length))
        self._times[estimate] += 1
        self.length += 2
        return Use(self.length - 2, self.length - 1)

    def any_of(self, decisions: Sequence[int]) -> int:
        """The decision whether any of these is positive; `ALWAYS` if there are none."""
        if not decisions:
            return ALWAYS
        if len(decisions) == 1:
            return decisions[0]
        self._unions.append((self.length, list(decisions)))
        self.length += 1
        return self.length - 1

    @property
    def starts(self) -> frozenset[int]:
        """Numbers of the decisions that are positive only when an estimate begins."""
        return frozenset(begins for *_, begins in self._uses)

    @cached_property
    def _flags(self) -> Flags:
        return np.zeros(self.length, dtype=np.bool_)

    @cached_property
    def _columns(self) -> tuple[npt.NDArray[np.int64], ...]:
        """For each use what `_uses` has, and for each estimate its uses in a run."""
        estimates, *others = np.array(self._uses, dtype=np.int64).reshape(-1, 4).T
        return estimates, *others, np.bincount(estimates)

    def next(self) -> Flags:
        """Makes the decisions for the coming run, which is counted; (decisions,), until the next.

        Returns:
            For each decision whether it is positive.
        """
        flags = self._flags
        if not len(flags):
            return flags
        estimates, before, periods, begins, uses = self._columns
        minibatches = self._clock.minibatches
        seen = minibatches[estimates] + before
        flags[begins] = seen == 0
        since = seen - INITIAL_UPDATES
        is_time = (since <= 0) | (since % periods == 0)
        flags[begins + 1] = is_time & (not self._clock.is_frozen)
        for number, members in self._unions:
            flags[number] = flags[members].any()
        minibatches[: len(uses)] += uses
        return flags


class HostSteps:
    """The work of the host before a segment runs: collected by the tape, then done in each run.

    Attributes:
        schedule: The decisions of the segment, which are made first.
    """

    def __init__(self, memory: ShadowMemory, clock: Clock) -> None:
        """Starts without anything to do.

        Args:
            memory: The memory of the arrays.
            clock: Counts the minibatches on which the decisions depend.
        """
        self.schedule = Schedule(clock)
        self._memory = memory
        self._functions: list[Callable[[], Any]] = []
        self._values: list[tuple[Array, list[int]]] = []  # arrays, for the results of functions
        self._flagged: list[tuple[Array, npt.NDArray[np.int64]]] = []  # arrays, for decisions
        self._blocks: list[npt.NDArray[np.uint8]] = []
        self._used = 0  # bytes of the last block

    def array(
        self, fill: Callable[[Array], object], shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> Array:
        """A zeroed array that a function fills before each run."""
        array = self._zeros(shape, dtype)
        self.note(lambda: fill(array))
        return array

    def value(self, function: Callable[[], float]) -> Array:
        """(1,) float64: the result of a function that is called before each run."""
        if not self._values or len(self._values[-1][1]) == VALUES:
            self._values.append((self._zeros((VALUES,), np.float64), []))
        array, functions = self._values[-1]
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
        self._flagged.append((table[:, -1], np.array(decisions, dtype=np.int64)))
        return table

    @property
    def is_used(self) -> bool:
        """Whether the host has anything to do."""
        return bool(self._functions or self.schedule.length)

    def _zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        kind = np.dtype(dtype)
        nbytes = int(np.prod(shape)) * kind.itemsize
        size = -(-max(nbytes, 1) // 16) * 16
        if not self._blocks or self._used + size > self._blocks[-1].nbytes:
            self._blocks[-1:] = [block[: self._used] for block in self._blocks[-1:]]
            self._blocks.append(np.zeros(max(BLOCK, size), dtype=np.uint8))
            self._memory.place(self._blocks[-1])
            self._used = 0
        start, self._used = self._used, self._used + size
        array: Array = self._blocks[-1][start : start + nbytes].view(kind).reshape(shape)
        return array

    @cached_property
    def _results(self) -> list[tuple[Array, Callable[[list[Any]], Any]]]:
        """For each array of numbers what takes them, in one call, out of all results."""
        return [(array[: len(chosen)], itemgetter(*chosen)) for array, chosen in self._values]

    @cached_property
    def _uploads(self) -> list[tuple[int, Array]]:
        """The address and the used part of each block; programs are bound before they run."""
        self._blocks[-1:] = [block[: self._used] for block in self._blocks[-1:]]
        return [(self._memory.address_of(block), block) for block in self._blocks]

    def run(self) -> Flags:
        """Does the work; returns the decisions, (decisions,), which hold until the next run."""
        flags = self.schedule.next()
        results = [function() for function in self._functions]
        for array, chosen in self._results:
            array[...] = chosen(results)
        for array, numbers in self._flagged:
            array[...] = flags[numbers]
        for address, block in self._uploads:
            self._memory.platform.upload(address, block)
        return flags
