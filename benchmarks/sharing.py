"""The gain by a second thread, for whole sequences and element-wise work, and its cost.

    python benchmarks/sharing.py

The first table has the time of one and eight sequences of the benchmark networks, and of a training
step of eight, on two threads; times are relative to the processor time of one thread. The table
also has the number of times that threads sleep in a run, waiting for one another or for the
interpreter's lock. (Only Unix systems count sleeps.) The second table has the time to hand a call
to a waiting thread and to learn that it ran, by kind of hand-over. The third has the time of a
chain of four operations over a matrix by row blocks, on one thread and shared, by size of blocks.
Times are the least of many, by the clock: the second thread needs its own processor.
"""

from __future__ import annotations

import os
import queue
import resource
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_computation import NnetComputation
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.arrays import running
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import LIMIT, Workers
from workload import FIRST_STEPS, Call, Workload, flat, least

ROWS, COLUMNS = 1600, 1536


def separate(cpu: int) -> None:
    """Keeps this thread on one processor, if the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})


def forever(turn: Call) -> None:
    """Starts a thread that repeats a call."""

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
    """Microseconds of ((b - a m) + a m) m by blocks of `rows` rows."""
    rng = np.random.default_rng(0)
    a, b = (rng.random((ROWS, COLUMNS), dtype=np.float32) for _ in range(2))
    m = np.ones(COLUMNS, dtype=np.float32)
    tape = NumpyTape(workers=workers)
    for x, y in tape.row_blocks(a, b, rows=rows):
        term = tape.scratch(*x.shape)
        tape.multiply(x, m, term)
        tape.subtract(y, term, y)
        tape.add(y, term, y)
        tape.multiply(y, m, y)
    calls = tape.take()
    with running():
        return least(lambda: [call() for call in calls], 100)


def print_sequences(name: str) -> None:
    """Prints the times of one and eight sequences on two threads, relative to one thread."""
    for sequences in (1, 8):
        work = Workload.make(name, "infer", sequences)
        inputs = flat(work.inputs)
        nnet = DeviceNnet(work.nnet, threads=2)
        computation = CachingCompiler(work.nnet).compile(work.request)
        alone, shared = (
            partial(computer.forward, inputs)
            for computer in (
                NnetComputer(nnet, computation, threads=1),
                NnetComputer(nnet, computation),
            )
        )
        unit = least_alone(alone)
        print_ratio(f"{name}, infer {sequences}", shared, unit, 20)
    work = Workload.make(name, "train", 8)
    computation = CachingCompiler(work.nnet).compile(work.request)
    unit = least(training_step(work, computation, threads=1), 8, time.thread_time)
    print_ratio(f"{name}, train 8", training_step(work, computation, threads=2), unit, 8)


def least_alone(call: Call) -> float:
    """Microseconds on one thread, also of the BLAS library."""
    with LIMIT.at_most(1):
        return least(call, 20, time.thread_time)


def training_step(work: Workload, computation: NnetComputation, *, threads: int) -> Call:
    """A training step, after the first ones, which update the estimates each time."""
    nnet = DeviceNnet(work.nnet, trainable=True, natural_gradient=True, threads=threads)
    computer = NnetComputer(nnet, computation)
    inputs, derivatives = flat(work.inputs), flat(work.derivatives)

    def run() -> None:
        with LIMIT.at_most(threads):
            computer.forward(inputs)
            computer.backward(derivatives)
            nnet.take_step()

    for _ in range(FIRST_STEPS):
        run()
    return run


def print_ratio(name: str, run: Call, unit: float, count: int) -> None:
    """Prints the time of two threads, relative to `unit` microseconds, and how often they sleep."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    ratio = least(run, count) / unit
    sleeps = (resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before) / count
    print(f"{name}: {ratio:.2f} of the time of one thread, {sleeps:.0f} sleeps", flush=True)


def main() -> None:
    """Prints all figures."""
    for name in BENCHMARKS:
        print_sequences(name)
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
