"""The part of the processor's tape that knows no arithmetic: calls, memory, threads, the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.arrays import running
from nnet3_runtime_cuda.cpu.lanes import Lanes, Op, Round
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.operations import Array, Call, Operand, Tape
from nnet3_runtime_cuda.operations.scratch import Scratch, Workspace, even_parts, part_of

Recorded = Call | Round
"""What is recorded: a call if there is one thread, else the shares of the threads."""
_T = TypeVar("_T")

BLOCK_ELEMENTS = 1 << 16
"""The elements, 256 KiB, that chains of operations process at a time, to stay in the cache."""

SUM_ELEMENTS = 1 << 18
"""The same for chains that sum columns: sums of more rows at a time have smaller errors."""

FEWEST_SHARED = 1 << 12
"""The fewest elements of an operation that threads share."""


class Recorder(Tape):
    """Records calls, in order, and hands out their memory.

    Attributes:
        dtype: The type of the values in the network.
        calls: The recorded calls, in order.
        persistent_bytes: Size of the memory that `persistent` gave out.
    """

    cache_scale: ClassVar[int] = 1

    def __init__(
        self,
        dtype: npt.DTypeLike = np.float32,
        workspace: Workspace | None = None,
        workers: Workers | None = None,
    ) -> None:
        """Starts with nothing recorded.

        Args:
            dtype: Of the values.
            workspace: The memory of matrices and scratch; None for new memory.
            workers: The threads that share the calls; None if one thread runs them.
        """
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.calls: list[Recorded] = []
        self.persistent_bytes = 0
        self._workspace = workspace
        self._scratch = Scratch(workspace)
        self._rows: dict[float, Array] = {}
        self._workers = workers
        # The conditions of `when` within which calls are being recorded.
        self._looked_at: tuple[Array, ...] = ()
        # Whether there is only one thread, or the calls being recorded are the share of one thread.
        self._is_for_one_thread = workers is None
        # The number of operations that `run` has prepared, and the calls it makes.
        self._ready: tuple[int, tuple[Call, ...]] = 0, ()

    @property
    def threads(self) -> int:
        """The number of threads that share the recorded calls."""
        return 1 if self._workers is None else self._workers.threads

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded since the last `take`."""
        return not self.calls

    def record(
        self, call: Call, *, reads: Sequence[Operand] = (), writes: Sequence[Array] = ()
    ) -> None:
        """Records a call.

        Args:
            call: Takes no arguments.
            reads: The arrays that it reads; numbers among them are ignored.
            writes: The arrays that it writes, and may also read.
        """
        if self._looked_at:
            call = partial(_call_if, self._looked_at, call)
        if self._workers is None:
            self.calls.append(call)
            return
        arrays = tuple(operand for operand in reads if isinstance(operand, np.ndarray))
        self.calls.append(((Op(call, (*self._looked_at, *arrays), tuple(writes)),),))

    def take(self) -> tuple[Call, ...]:
        """The calls recorded since the last `take`."""
        taken, self.calls = self._bound(), []
        return taken

    def run(self) -> None:
        """Runs the recorded calls."""
        if self._ready[0] != len(self.calls):
            self._ready = len(self.calls), self._bound()
        with running():
            for call in self._ready[1]:
                call()

    def _bound(self) -> tuple[Call, ...]:
        """The recorded calls, ready to be called."""
        rounds = [one for one in self.calls if isinstance(one, tuple)]
        if self._workers is None or all(len(one) == 1 for one in rounds):
            return tuple(_plain(self.calls))
        return (Lanes(self._workers, rounds),)

    # ---- memory ----

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Uninitialised memory of the program."""
        if self._workspace is not None:
            return self._workspace.matrices(math.prod(shape), dtype).reshape(shape)
        array: Array = np.empty(shape, dtype=dtype)
        return array

    def persistent(self, *shape: int, dtype: npt.DTypeLike | None = None) -> Array:
        """A zeroed array that keeps its content from one command to later ones."""
        array: Array = np.zeros(shape, dtype=self.dtype if dtype is None else dtype)
        self.persistent_bytes += array.nbytes
        return array

    def ones(self, length: int) -> Array:
        """(1, length) of ones; not to be written to."""
        return self.row(1.0, length)[None]

    def row(self, value: float, length: int) -> Array:
        """(length,) of the same number; not to be written to."""
        if value not in self._rows or len(self._rows[value]) < length:
            self._rows[value] = np.full(length, value, dtype=self.dtype)
        return self._rows[value][:length]

    # ---- work for several threads ----

    def independent(self, items: Sequence[_T]) -> Iterator[_T]:
        """The items, for a loop whose iterations may run on several threads at the same time."""
        if self._is_for_one_thread or len(items) < 2:
            yield from self._scratch.in_turn(items)
            return
        parts = even_parts(len(items), self.threads)
        yield from self._in_lanes([items[part] for part in parts])

    def shared(self, length: int, work: int) -> Iterator[slice]:
        """Slices that cover a range, for a loop whose iterations may run at the same time."""
        if self._is_for_one_thread or work < FEWEST_SHARED:
            yield from self._scratch.in_turn([slice(0, length)])
            return
        yield from self._in_lanes([[part] for part in even_parts(length, self.threads)])

    def _in_lanes(self, groups: Sequence[Sequence[_T]]) -> Iterator[_T]:
        """The items of all groups; the calls recorded in between become a round."""
        mark, outer = self._scratch.mark, self.calls
        shares: list[tuple[Op, ...]] = []
        end, self._is_for_one_thread = mark, True
        try:
            for group in groups:
                self.calls, self._scratch.farthest = [], end
                for item in group:
                    self._scratch.mark = end
                    yield item
                # Loops within a round have given back their scratch, but not to other threads.
                end = self._scratch.farthest
                shares.append(_ops(self.calls))
        finally:
            self.calls, self._is_for_one_thread, self._scratch.mark = outer, False, mark
        self.calls.append(tuple(shares))

    def rows_per_sum(self, array: Array, *, arrays: int = 1) -> int:
        """The number of rows to sum at a time, if blocks of rows are summed."""
        return _block_rows(array, SUM_ELEMENTS // arrays)

    def row_blocks(self, *arrays: Array, rows: int | None = None) -> Iterator[tuple[Array, ...]]:
        """Blocks of the same rows of several arrays, small enough to stay in the cache."""
        if rows is not None:
            for start in self.independent(range(0, len(arrays[0]), rows)):
                yield tuple(array[start : start + rows] for array in arrays)
            return
        rows = _block_rows(arrays[0], BLOCK_ELEMENTS)
        for part in self.shared(len(arrays[0]), arrays[0].size):
            for start in range(part.start, part.stop, rows):
                with self.passing():
                    yield tuple(array[start : min(start + rows, part.stop)] for array in arrays)

    def _shares(self, *arrays: Array) -> Iterator[tuple[Array, ...]]:
        """Arrays with equal numbers of rows: whole, or cut by rows into as many parts as pay."""
        for rows in self.shared(len(arrays[0]), arrays[0].size):
            yield tuple(array[rows] for array in arrays)

    def _broadcast_shares(self, out: Array, *operands: Operand) -> Iterable[tuple[Any, ...]]:
        """An output and operands broadcast to it, cut into as many parts as pay."""
        if self._is_for_one_thread or out.size < FEWEST_SHARED:
            return ((out, *operands),)
        return self._cut_broadcast(out, *operands)

    def _cut_broadcast(self, out: Array, *operands: Operand) -> Iterator[tuple[Any, ...]]:
        """An output and operands broadcast to it, cut into a part for each thread."""
        axis = int(np.argmax(out.shape[:-1])) if out.ndim > 1 else 0
        for part in self.shared(out.shape[axis], out.size):
            yield tuple(part_of(a, part, axis - out.ndim, out.shape) for a in (out, *operands))

    # ---- decisions of the host ----

    def host(
        self, fill: Callable[[Array], object], *shape: int, dtype: npt.DTypeLike | None = None
    ) -> Array:
        """An array that the host fills in each run, before anything reads it."""
        array: Array = np.zeros(shape, dtype=self.dtype if dtype is None else dtype)
        self.record(partial(fill, array), writes=(array,))
        return array

    def note(self, function: Callable[[], object]) -> None:
        """Has the host call a function in each run."""
        self.record(function)

    def value(self, function: Callable[[], float]) -> Array:
        """(1,) float64: what the function returns in each run; see `host`."""

        def fill(array: Array) -> None:
            array[0] = function()

        return self.host(fill, 1, dtype=np.float64)

    @contextmanager
    def when(self, condition: Array) -> Iterator[None]:
        """Calls recorded within run only if the single element of an array is not 0."""
        # Each call checks the element itself, because threads share the calls.
        before, self._looked_at = self._looked_at, (*self._looked_at, condition)
        try:
            yield
        finally:
            self._looked_at = before

    def within_range(self, record: Callable[[np.dtype[Any]], None], result: Array) -> None:
        """Records operations, and again in double precision for when the result is not finite."""
        record(self.dtype)
        if self.dtype == np.float64:
            return
        outer, is_alone, self.calls, self._is_for_one_thread = (
            self.calls,
            self._is_for_one_thread,
            [],
            True,
        )
        try:
            with self.passing():
                record(np.dtype(np.float64))
        finally:
            again, self.calls, self._is_for_one_thread = self.calls, outer, is_alone
        is_finite = np.empty(result.shape, dtype=np.bool_)
        ops = _ops(again) if self._workers is not None else ()
        self.record(
            partial(_unless_finite, result, is_finite, _plain(again)),
            reads=[array for op in ops for array in op.reads],
            writes=[result, *(array for op in ops for array in op.writes)],
        )


def _unless_finite(result: Array, is_finite: Array, calls: Sequence[Call]) -> None:
    np.isfinite(result, is_finite)
    if not is_finite.all():
        for call in calls:
            call()


def _ops(recorded: Sequence[Recorded]) -> tuple[Op, ...]:
    """The recorded operations, which were all recorded for one of several threads."""
    return tuple(op for one in recorded if isinstance(one, tuple) for op in one[0])


def _plain(recorded: Sequence[Recorded]) -> list[Call]:
    """The calls that were recorded for one thread only, although there may be several."""
    calls: list[Call] = []
    for one in recorded:
        calls += [op.call for op in one[0]] if isinstance(one, tuple) else [one]
    return calls


def _call_if(conditions: Sequence[Array], call: Call) -> None:
    if all(condition.item() for condition in conditions):
        call()


def _block_rows(array: Array, elements: int) -> int:
    """The number of rows with about `elements` elements."""
    size = max(1, elements // max(math.prod(array.shape[1:]), 1))
    count = -(-len(array) // size)
    # An even number of blocks, so that two threads have equal work.
    return -(-len(array) // (count + count % 2)) if count > 1 else max(len(array), 1)
