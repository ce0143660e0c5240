"""What it costs to share element-wise work with a second thread, and what it brings.

    python benchmarks/sharing.py

First the time to hand a call over to a thread that waits and to be told that it ran, by kind of
hand-over; then a chain of four operations over a matrix by row blocks, alone and shared, by size of
blocks. Least times of many, by the clock: the second thread needs a processor of its own.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from nnet3_runtime_cuda.running import running
from nnet3_runtime_cuda.scratch import Scratch
from nnet3_runtime_cuda.tape import Tape
from nnet3_runtime_cuda.workers import Workers

ROWS, COLUMNS = 1600, 1536
Call = Callable[[], object]


def least(call: Call, count: int = 400) -> float:
    """Microseconds of the fastest of many calls."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * min(times)


def separate(cpu: int) -> None:
    """Keeps this thread on one processor, where that can be done."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})


def forever(turn: Call) -> None:
    """Starts a thread that takes turns."""

    def loop() -> None:
        separate(1)
        while True:
            turn()

    threading.Thread(target=loop, daemon=True).start()


def with_locks() -> Call:
    """A pair of locks."""
    begin, done = threading.Lock(), threading.Lock()
    begin.acquire()
    done.acquire()
    forever(lambda: (begin.acquire(), done.release()))
    return lambda: (begin.release(), done.acquire())


def with_queues() -> Call:
    """A pair of queues."""
    begin: queue.SimpleQueue[None] = queue.SimpleQueue()
    done: queue.SimpleQueue[None] = queue.SimpleQueue()
    forever(lambda: (begin.get(), done.put(None)))
    return lambda: (begin.put(None), done.get())


def with_events() -> Call:
    """A pair of events."""
    begin, done = threading.Event(), threading.Event()
    forever(lambda: (begin.wait(), begin.clear(), done.set()))
    return lambda: (begin.set(), done.wait(), done.clear())


def with_executor() -> Call:
    """A thread of concurrent.futures."""
    executor = ThreadPoolExecutor(1, initializer=separate, initargs=(1,))
    return lambda: executor.submit(int).result()


def chain(rows: int, workers: Workers | None) -> float:
    """Microseconds of ((b - a m) + a m) m by blocks of so many rows."""
    rng = np.random.default_rng(0)
    a, b = (rng.random((ROWS, COLUMNS), dtype=np.float32) for _ in range(2))
    m = np.ones(COLUMNS, dtype=np.float32)
    tape = Tape(scratch=Scratch(np), workers=workers)
    for x, y in tape.row_blocks(a, b, rows=rows):
        term = tape.scratch(*x.shape)
        tape.multiply(x, m, term)
        tape.subtract(y, term, y)
        tape.add(y, term, y)
        tape.multiply(y, m, y)
    calls = tape.take()
    with running():
        return least(lambda: [call() for call in calls], 100)


def main() -> None:
    """Prints both tables."""
    separate(0)
    for kind in (with_locks, with_queues, with_events, with_executor):
        print(f"{kind.__name__:14s} {least(kind()):6.1f} us there and back")
    workers = Workers(2)
    workers.run([[int], [partial(separate, 1)]])
    for rows in (42, 85, 170, 340):
        alone, shared = chain(rows, None), chain(rows, workers)
        size = f"blocks of {rows * COLUMNS >> 10} Ki elements"
        print(f"{size}: {alone:.0f} us, shared {shared / alone:.2f} of it")


if __name__ == "__main__":
    main()
