"""Threads that share the work of a program, or run whole programs side by side.

NumPy and BLAS libraries release the interpreter lock while they compute, so calls of theirs can run
on several threads. If they share a program, each runs a lane (`lanes`). Independent programs gain
more: one thread computes each of them from beginning to end.

Handing over a job and waiting for its end costs 6 microseconds with a pair of locks.
`queue.SimpleQueue` takes as long, `threading.Event` 8 microseconds, and `concurrent.futures` 13.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from nnet3_runtime_cuda.arrays.settings import running
from nnet3_runtime_cuda.cpu.threads.blas_threads import LIMIT
from nnet3_runtime_cuda.cpu.threads.shared_tasks import SharedTasks, Task

Calls = Sequence[Callable[[], object]]

PATIENCE = 1.0
"""The most seconds that an interrupted thread waits for the threads beside it."""


class Workers:
    """Threads that compute beside the thread that gives them a job.

    They begin with the first job, and end when this object is closed or is no longer used. If, on
    busy processors, no worker has begun a share when the others are done, the asking thread does
    it.

    Any number of computers may have the same workers: only one thread at a time gets them. Another
    thread that asks meanwhile does all of its job itself, and so does a process that was forked
    during a job.

    Attributes:
        threads: The number of threads that compute at a time, with the asking one.
    """

    def __init__(self, threads: int) -> None:
        """Prepares for a number of threads, at least 2."""
        self.threads = threads
        self._lock = threading.Lock()
        self._crew: _Crew | None = None

    def run(self, shares: Sequence[Calls], *, in_order: Calls | None = None) -> None:
        """Runs the calls of each share in order, and different shares at the same time.

        Args:
            shares: At most `threads`; the first runs in this thread.
            in_order: The calls that this thread runs if it does not get the workers; None for one
                share after another.

        Raises:
            BaseException: the error of a call. Later calls of the same share did not run; all other
                calls did.
        """
        if not self._lock.acquire(blocking=False):
            for calls in shares if in_order is None else [in_order]:
                for call in calls:
                    call()
            return
        try:
            # The crew is taken away meanwhile: if this thread is interrupted while it waits, the
            # crew may still be busy, and must not be used again.
            crew, self._crew = self._crew, None
            if crew is None or crew.process != os.getpid():
                crew = _Crew(self.threads - 1)
            error = crew.run(shares)
            self._crew = crew
        finally:
            self._lock.release()
        if error is not None:
            raise error

    def side_by_side(self, tasks: Sequence[Task]) -> None:
        """Calls tasks, as many at a time as there are threads, each on one thread.

        A thread that is done takes the next task. Products within the tasks run on one thread, too.

        Args:
            tasks: Any number; they must not depend on one another.

        Raises:
            BaseException: the error of the first task that failed. Later tasks may not have been
                called.
        """
        shared = SharedTasks(tasks)
        with LIMIT.at_most(1):
            self.run([[shared.work]] * max(1, min(self.threads, len(tasks))))
        shared.check()

    def close(self) -> None:
        """Ends the threads; a later job would begin new ones."""
        with self._lock:
            self._crew = None


class _Worker:
    """The data that a thread shares with the threads that give it work.

    Attributes:
        calls: Its share of the current job.
        error: The exception of one of them.
        is_dismissed: Whether it is to end.
        begin: Released to wake the thread up.
        claim: The thread that acquires this lock runs the calls.
        done: Released when the thread has run them.
    """

    def __init__(self) -> None:
        self.calls: Calls = ()
        self.error: BaseException | None = None
        self.is_dismissed = False
        self.begin, self.claim, self.done = (threading.Lock() for _ in range(3))
        for lock in (self.begin, self.claim, self.done):
            lock.acquire()

    def wake(self) -> None:
        """Wakes the thread up, unless it is waking up already."""
        if self.begin.locked():
            self.begin.release()

    def offer(self, calls: Calls) -> None:
        """Gives the thread calls to run."""
        self.calls = calls
        self.claim.release()
        self.wake()

    def finish(self) -> BaseException | None:
        """Waits until the calls have run; runs them here if the thread has not begun to.

        Returns:
            The exception of a call.
        """
        if self.claim.acquire(blocking=False):
            self.run()
        else:
            self.done.acquire()
        return self.error

    def run(self) -> None:
        """Runs the calls, and drops them, because they hold arrays."""
        self.error = _error_of(self.calls)
        self.calls = ()


class _Crew:
    """The threads of one process; they end when this object is no longer used."""

    def __init__(self, size: int) -> None:
        self.process = os.getpid()
        self._workers = [_Worker() for _ in range(size)]
        for worker in self._workers:
            threading.Thread(target=_work, args=(worker,), name="nnet3-worker", daemon=True).start()
        weakref.finalize(self, _dismiss, self._workers).atexit = False

    def run(self, shares: Sequence[Calls]) -> BaseException | None:
        """Runs shares; returns an error that a call raised."""
        busy = self._workers[: len(shares) - 1]
        for worker, calls in zip(busy, shares[1:], strict=True):
            worker.offer(calls)
        errors = [_error_of(shares[0])]
        try:
            for worker in busy:
                errors.append(worker.finish())
        except BaseException:
            # After an interruption the other threads still use memory that the next job may use.
            deadline = time.monotonic() + PATIENCE
            for worker in busy[len(errors) - 1 :]:
                worker.done.acquire(timeout=max(deadline - time.monotonic(), 0.0))
            raise
        return next((error for error in errors if error is not None), None)


def _error_of(calls: Calls) -> BaseException | None:
    """Runs calls up to the first one that raises an exception, and returns the exception."""
    try:
        for call in calls:
            call()
    except BaseException as error:
        return error
    return None


def _work(worker: _Worker) -> None:
    """The loop of a thread: it runs the calls that it is given, until it is dismissed."""
    with running():
        while True:
            worker.begin.acquire()
            if worker.is_dismissed:
                return
            if not worker.claim.acquire(blocking=False):
                continue  # too late
            worker.run()
            worker.done.release()


def _dismiss(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.is_dismissed = True
        worker.wake()
