"""Lanes: a recorded program for several threads, each of which runs a part of it from end to end.

A tape for several threads records rounds: shares of one operation, or of a loop, that may run at
the same time. Share k goes to lane k, which one thread runs in order. Lanes do not meet after each
round. Lane a waits for lane b only if its next call reads memory that b has written since, or
writes memory that b has used. The last such call of b releases a lock, and lane a acquires it
before its call. The memory of the operands tells these calls beforehand. If threads have the same
rows in one operation after another, they hardly ever wait.

A thread that has gone to sleep takes 15 to 45 microseconds to wake up.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nnet3_runtime_cuda.cpu.threads import LIMIT, Workers
from nnet3_runtime_cuda.operations import Array, Call

Span = tuple[int, int, int, int]
"""The place of rows of a matrix, or of parts of rows: the address of the first byte, the address
behind the last byte, the distance of rows, and the number of bytes of each row."""

MOST_REMEMBERED = 16
"""The number of shares of a lane whose memory is known in detail; older shares are known only as a
whole."""


class Op(NamedTuple):
    """A call and the memory that it works on.

    Attributes:
        call: Takes no arguments.
        reads: The places that it reads.
        writes: The places that it writes, and may read.
    """

    call: Call
    reads: tuple[Array, ...]
    writes: tuple[Array, ...]


_Locks = Mapping[tuple[int, int], list[threading.Lock]]

Round = tuple[tuple[Op, ...], ...]
"""Operations that may run at the same time: those of each lane, in order; some may be empty."""


class Lanes:
    """A call that runs rounds on several threads.

    Each product within runs on one BLAS thread: further threads of the BLAS library would have to
    wait for busy processors.
    """

    def __init__(self, workers: Workers, rounds: Sequence[Round]) -> None:
        """Plans the calls of each thread, and the waits between threads.

        Args:
            workers: The threads.
            rounds: In order.
        """
        self._workers = workers
        self._rounds = tuple(rounds)
        self._in_order = [op.call for one in rounds for share in one for op in share]
        self.lanes = _planned(workers.threads, self._rounds)

    def __call__(self) -> None:
        """Runs all rounds.

        Raises:
            BaseException: a call has raised it. Some later calls may have run.
        """
        with LIMIT.at_most(1):
            try:
                self._workers.run(self.lanes, in_order=self._in_order)
            except BaseException:
                # Some locks are released already, and a thread that this one could not wait for may
                # still release others. So new locks are needed.
                self.lanes = _planned(self._workers.threads, self._rounds)
                raise

    def __len__(self) -> int:
        """The number of calls of all lanes, without waits."""
        return len(self._in_order)


class Lane(tuple[Call, ...]):
    """The calls of one thread in order, with the calls that release and acquire locks.

    Attributes:
        posts: The locks that these release.
    """

    posts: tuple[threading.Lock, ...] = ()

    def give_up(self) -> None:
        """Releases them after an error, so that the other lanes do not wait for ever."""
        for lock in self.posts:
            if lock.locked():
                lock.release()


class _Use(NamedTuple):
    """The memory that a share of a lane uses.

    Attributes:
        position: The position of the call that ends the share.
        reads, writes: Memory.
    """

    position: int
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]

    @classmethod
    def of(cls, share: Sequence[Op], position: int) -> _Use:
        """The memory that the operations of a share use."""
        reads = {span_of(array) for op in share for array in op.reads}
        writes = {span_of(array) for op in share for array in op.writes}
        return cls(position, tuple(reads - writes), tuple(writes))

    def hinders(self, other: _Use) -> bool:
        """Whether another share must wait for this one."""
        return (
            _overlap(self.writes, other.writes)
            or _overlap(self.writes, other.reads)
            or _overlap(self.reads, other.writes)
        )


def _planned(count: int, rounds: Sequence[Round]) -> tuple[Lane, ...]:
    """The calls of each thread; none waits for another share of the same round.

    Args:
        count: Number of threads.
        rounds: In order.
    """
    calls: list[list[Call]] = [[] for _ in range(count)]
    # For each pair of lanes the memory that the second has used since the first last waited for it.
    unknown: dict[tuple[int, int], list[_Use]] = {
        pair: [] for pair in itertools.permutations(range(count), 2)
    }
    # By lane and position of a call: locks to acquire before it, and to release behind it.
    waits: dict[tuple[int, int], list[threading.Lock]] = defaultdict(list)
    posts: dict[tuple[int, int], list[threading.Lock]] = defaultdict(list)
    for one in rounds:
        uses = {
            lane: _Use.of(share, len(calls[lane]) + len(share) - 1)
            for lane, share in enumerate(one)
            if share
        }
        for (lane, other), earlier in unknown.items():
            last = _last_hindrance(earlier, uses[lane]) if lane in uses else None
            if last is not None:
                lock = threading.Lock()
                lock.acquire()
                waits[lane, len(calls[lane])].append(lock)
                posts[other, earlier[last].position].append(lock)
                del earlier[: last + 1]
        for lane in uses:
            calls[lane] += [op.call for op in one[lane]]
        for (_, other), earlier in unknown.items():
            if other in uses:
                earlier.append(uses[other])
                if len(earlier) > MOST_REMEMBERED:
                    earlier[:] = [_together(earlier[:-1]), earlier[-1]]
    return tuple(_lane(number, own, waits, posts) for number, own in enumerate(calls))


def _last_hindrance(earlier: Sequence[_Use], use: _Use) -> int | None:
    """The number of the last share that another share must wait for."""
    numbers = reversed(range(len(earlier)))
    return next((number for number in numbers if earlier[number].hinders(use)), None)


def _lane(number: int, own: Sequence[Call], waits: _Locks, posts: _Locks) -> Lane:
    """A lane from its calls, and the locks before and behind them."""
    calls: list[Call] = []
    released: list[threading.Lock] = []
    for position, call in enumerate(own):
        behind = posts.get((number, position), [])
        calls += [lock.acquire for lock in waits.get((number, position), [])]
        calls += [call, *(lock.release for lock in behind)]
        released += behind
    lane = Lane(calls)
    lane.posts = tuple(released)
    return lane


def _together(uses: Sequence[_Use]) -> _Use:
    """The memory of several shares, roughly: from the first byte to the last."""
    return _Use(
        uses[-1].position,
        _hull([span for use in uses for span in use.reads]),
        _hull([span for use in uses for span in use.writes]),
    )


def _hull(spans: Sequence[Span]) -> tuple[Span, ...]:
    if not spans:
        return ()
    first, end = min(span[0] for span in spans), max(span[1] for span in spans)
    return ((first, end, end - first, end - first),)


def _overlap(some: Sequence[Span], others: Sequence[Span]) -> bool:
    for first, end, distance, size in some:
        for first2, end2, distance2, size2 in others:
            if first < end2 and first2 < end:
                # Columns of the same matrix may lie beside one another.
                shift = (first2 - first) % distance
                if distance != distance2 or shift < size or shift + size2 > distance:
                    return True
    return False


def span_of(array: Array) -> Span:
    """The place of the elements of an array."""
    first: int = array.__array_interface__["data"][0]
    size, shape, strides = array.itemsize, array.shape, array.strides
    if array.flags.c_contiguous:
        return first, first + array.nbytes, max(array.nbytes, 1), array.nbytes
    if len(shape) == 2 and strides[0] >= strides[1] > 0 < len(array):
        row = (shape[1] - 1) * strides[1] + size
        distance = strides[0]
        return first, first + (shape[0] - 1) * distance + row, distance, min(row, distance)
    axes = sorted(
        (abs(stride), stride, length) for stride, length in zip(strides, shape, strict=True)
    )
    for distance, stride, length in axes[:-1]:
        size += (length - 1) * distance
        first += min(stride, 0) * (length - 1)
    distance, stride, length = axes[-1]
    first += min(stride, 0) * (length - 1)
    distance = max(distance, size)
    return first, first + (length - 1) * abs(stride) + size, distance, size
