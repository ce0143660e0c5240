"""Threads that share the work of a program, or run whole programs side by side.

NumPy and BLAS libraries release the interpreter lock while they compute, so calls of theirs can run
on several threads. If they share a program, each runs a lane (`lanes`). Independent programs gain
more: one thread computes each of them from beginning to end.

Handing over a job and waiting for its end costs 6 microseconds with a pair of locks.
`queue.SimpleQueue` takes as long, `threading.Event` 8 microseconds, and `concurrent.futures` 13.

The number of threads that the BLAS library may use for a product belongs to the process. If several
callers want different numbers at the same time, they get the smallest. When the last caller is
done, the library has its first setting again.
"""

from __future__ import annotations

import contextvars
import functools
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from threadpoolctl import LibController, ThreadpoolController

from nnet3_runtime_cuda.arrays import running
from nnet3_runtime_cuda.cpu import products

_MKL = "mkl"
"""Its name in threadpoolctl."""


@functools.cache
def _libraries() -> tuple[LibController, ...]:
    """The BLAS libraries of this process."""
    products.library_name()  # must be loaded before the search for libraries
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


def blas_threads() -> int:
    """The number of threads that the BLAS library uses at present; 1 if it is not known."""
    return max((library.num_threads or 1 for library in _libraries()), default=1)


def _set(library: LibController, threads: int) -> None:
    """Sets the number of threads of a library, whichever thread asks.

    Since 3.8, threadpoolctl lets only the thread that set a limit first set another one for an
    OpenBLAS with a pool of its own, and ignores all others. The limit here belongs to the process,
    so the thread in control is dismissed before and after; earlier versions have no such thread.
    Of MKL, threadpoolctl 3.8 sets the limit of the calling thread alone.
    """
    if library.internal_api == _MKL:
        library.dynlib.MKL_Set_Num_Threads(threads)
        return
    dismiss = getattr(library, "clear_controlling_thread", None)
    if dismiss is not None:
        dismiss(force=True)
    library.set_num_threads(threads)
    if dismiss is not None:
        dismiss(force=True)


@contextmanager
def _without_own_limit() -> Iterator[None]:
    """Within, the calling thread has the limit of the process; with MKL it may have its own."""
    libraries = [library.dynlib for library in _libraries() if library.internal_api == _MKL]
    own = [library.MKL_Set_Num_Threads_Local(0) for library in libraries]
    try:
        yield
    finally:
        for library, threads in zip(libraries, own, strict=True):
            library.MKL_Set_Num_Threads_Local(threads)


class ThreadLimit:
    """The limits that callers ask for, and the limit in force."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wishes: Counter[int] = Counter()
        self._in_force = 0
        self._before: list[int] = []

    @contextmanager
    def at_most(self, threads: int | None) -> Iterator[None]:
        """Within, no product uses more threads; None asks for no limit."""
        if threads is None:
            yield
            return
        is_wish = False
        with _without_own_limit():
            try:
                with self._lock:
                    self._wishes[threads] += 1
                    is_wish = True  # at once: Ctrl-C comes after calls
                    self._apply()
                yield
            finally:
                with self._lock:
                    # A process that was forked meanwhile has forgotten the wish.
                    if is_wish and self._wishes[threads]:
                        self._wishes[threads] -= 1
                    self._apply()

    def _apply(self) -> None:
        """Puts the smallest wish in force; the lock must be held."""
        smallest = min((+self._wishes).keys(), default=0)
        if smallest == self._in_force:
            return
        if not self._in_force:
            self._before = [library.num_threads for library in _libraries()]
        self._in_force = -1  # none of them, should Ctrl-C come now
        for library, before in zip(_libraries(), self._before, strict=True):
            _set(library, smallest or before)
        self._in_force = smallest

    def forget_others(self) -> None:
        """Begins anew in a forked process, which has no other callers.

        The limit in force ends when the next caller is done.
        """
        self._lock = threading.Lock()
        self._wishes.clear()


LIMIT = ThreadLimit()
"""The limits of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LIMIT.forget_others)


Task = Callable[[], object]
"""A piece of work; nobody looks at what it returns."""


class SharedTasks:
    """Tasks for several threads: each thread takes the next task that nobody has taken."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Begins with all of them waiting."""
        self._waiting = deque(enumerate(tasks))
        self._errors: dict[int, Exception] = {}

    def work(self) -> None:
        """Does tasks until none is left; after a failure, the other tasks are left out."""
        while self._waiting:
            try:
                number, task = self._waiting.popleft()
            except IndexError:
                return  # another thread took the last one
            try:
                task()
            except Exception as error:
                self._errors[number] = error
                self.cancel()
            except BaseException:
                self.cancel()
                raise

    def cancel(self) -> None:
        """Leaves out the tasks that nobody has begun."""
        self._waiting.clear()

    def check(self) -> None:
        """Raises the exception of the first task that failed."""
        if self._errors:
            raise self._errors[min(self._errors)]


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
        The tasks run in the context of the caller, with its limits.

        Args:
            tasks: Any number; they must not depend on one another.

        Raises:
            BaseException: the error of the first task that failed. Later tasks may not have been
                called.
        """
        shared = SharedTasks(tasks)
        count = max(1, min(self.threads, len(tasks)))
        contexts = [contextvars.copy_context() for _ in range(count)]
        with LIMIT.at_most(1):
            self.run([[functools.partial(each.run, shared.work)] for each in contexts])
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
        errors: list[BaseException | None] = []
        try:
            errors.append(_error_of(shares[0]))
            for worker in busy:
                errors.append(worker.finish())
        except BaseException:
            for calls in shares:
                _give_up(calls)
            # After an interruption the other threads still use memory that the next job may use.
            deadline = time.monotonic() + PATIENCE
            for worker in busy[max(len(errors) - 1, 0) :]:
                worker.done.acquire(timeout=max(deadline - time.monotonic(), 0.0))
            raise
        return next((error for error in errors if error is not None), None)


def _error_of(calls: Calls) -> BaseException | None:
    """Runs calls up to the first one that raises an exception, and returns the exception."""
    try:
        for call in calls:
            call()
    except BaseException as error:
        _give_up(calls)  # here: Ctrl-C may come before the first line of a function of the calls
        return error
    return None


def _give_up(calls: Calls) -> None:
    """Lets others no longer wait for calls that will not run, if the calls know whom."""
    if (give_up := getattr(calls, "give_up", None)) is not None:
        give_up()


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
