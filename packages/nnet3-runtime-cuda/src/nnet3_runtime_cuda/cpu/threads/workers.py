"""Threads that share the work of a program, or run whole programs side by side.

NumPy and BLAS libraries release the interpreter lock while they compute, so calls of theirs can run
on several threads. Of one program each runs a lane (`lanes`). Programs that do not depend on one
another gain more: one thread computes each from beginning to end.

Handing a job over costs 6 microseconds there and back with a pair of locks; with
`queue.SimpleQueue` as much, `threading.Event` 8, and `concurrent.futures` 13.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from nnet3_runtime_cuda.cpu.threads.blas_threads import LIMIT
from nnet3_runtime_cuda.cpu.threads.shared_tasks import SharedTasks, Task
from nnet3_runtime_cuda.numpy_settings import running

Calls = Sequence[Callable[[], object]]

PATIENCE = 1.0
"""So many seconds, at most, a thread that is interrupted waits for those that work beside it."""


class Workers:
    """Threads that compute beside the one that asks them to.

    They begin with the first job, and end when this object is closed or is no longer used. On busy
    processors a share that no worker has begun when the others are done is done by the thread that
    asks.

    Any number of computers may have the same workers: only one thread at a time gets them, another
    that asks meanwhile does all of its job itself, as does a process that was forked during a job.

    Attributes:
        threads: How many compute at a time, with the one that asks.
    """

    def __init__(self, threads: int) -> None:
        """Prepares for so many threads; at least 2."""
        self.threads = threads
        self._lock = threading.Lock()
        self._crew: _Crew | None = None

    def run(self, shares: Sequence[Calls], *, in_order: Calls | None = None) -> None:
        """Runs the calls of each share in order, and different shares at the same time.

        Args:
            shares: At most `threads`; the first runs in this thread.
            in_order: What this thread runs instead if it does not get the workers; None for one
                share after another.

        Raises:
            BaseException: what a call raised. The calls of the same share behind it did not run;
                all others did.
        """
        if not self._lock.acquire(blocking=False):
            for calls in shares if in_order is None else [in_order]:
                for call in calls:
                    call()
            return
        try:
            # Taken away meanwhile: if this thread is interrupted while it waits, the crew, which
            # may not be done, is not used again.
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
        """Calls tasks, as many at a time as there are threads, each on one thread of its own.

        Threads that are done take what is left, in order. Products within run on one thread, too.

        Args:
            tasks: Any number; they must not depend on one another.

        Raises:
            BaseException: what a task raised, of those that did the first one. Tasks behind it may
                not have been called.
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
    """What a thread and those who give it work have in common.

    Attributes:
        calls: Its share of the current job.
        error: What one of them raised.
        is_dismissed: Whether it is to end.
        begin: Released to wake the thread up.
        claim: Whoever acquires this runs the calls.
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
            What a call raised.
        """
        if self.claim.acquire(blocking=False):
            self.run()
        else:
            self.done.acquire()
        return self.error

    def run(self) -> None:
        """Runs the calls, and lets go of them, as they hold arrays."""
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
            # Interrupted while it waits: the others still use memory that the next job may use.
            deadline = time.monotonic() + PATIENCE
            for worker in busy[len(errors) - 1 :]:
                worker.done.acquire(timeout=max(deadline - time.monotonic(), 0.0))
            raise
        return next((error for error in errors if error is not None), None)


def _error_of(calls: Calls) -> BaseException | None:
    """Runs calls, up to one that raises something, which is returned."""
    try:
        for call in calls:
            call()
    except BaseException as error:
        return error
    return None


def _work(worker: _Worker) -> None:
    """What a thread does: the calls that it is given, until it is dismissed."""
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
