"""Workers: this process, other processes of the machine, or those of a Dask cluster.

A result depends on its task alone. Every worker computes it on one thread of the BLAS library,
since sums on several threads differ in their last bits.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

import attrs
from threadpoolctl import threadpool_limits

from nnet3_training.errors import WorkerError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["DaskWorkers", "InProcess", "Processes", "Workers"]


T = TypeVar("T")
R = TypeVar("R")

MOST_ATTEMPTS = 3
"""The number of processes that a task may kill before it is given up."""


_READ_AHEAD = 2
"""Tasks taken for each process or thread before the oldest is done."""


class Workers(Protocol):
    """Does tasks."""

    @property
    def count(self) -> int:
        """The number of tasks that are done at a time."""
        ...

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results of tasks, in the order of the tasks.

        Tasks are taken as they are needed, so that there may be any number of them.

        Args:
            function: The function to call; it can be imported.
            tasks: Its arguments; values that can be sent to a process.

        Raises:
            WorkerError: processes died at a task three times, or were ended meanwhile.
            Exception: the error of the function, when the turn of that task comes; no further task
                begins.
        """
        ...


def on_one_thread(function: Callable[[T], R], task: T) -> R:
    """Does a task as all workers do it."""
    with threadpool_limits(limits=1, user_api="blas"):
        return function(task)


class InProcess:
    """Does tasks one after the other, in this process."""

    count = 1

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """See `Workers.map`."""
        for task in tasks:
            yield on_one_thread(function, task)


@attrs.define(eq=False)
class _Task:
    """A task that was taken.

    Attributes:
        value: The task.
        attempts: How often a process died at it.
        result: What the function returned, alone in a tuple, or what it raised; None until then.
    """

    value: Any
    attempts: int = 0
    result: tuple[Any] | Exception | None = None


@attrs.define(eq=False)
class _Worker:
    """A process.

    Attributes:
        process: It.
        pipe: Leads to it; on Windows a PipeConnection, elsewhere a Connection.
        task: What it does; None for nothing.
    """

    process: Any
    pipe: Any
    task: _Task | None = None


class Processes:
    """Processes on this machine; if one dies, a new one replaces it and repeats its task.

    They are started when the first tasks come, anew and not as copies of this one, so a script that
    uses them has an `if __name__ == "__main__":`. They end with the context, and at once if this
    process is killed. They compute products in the way that a trial has found fastest in this
    process, so results are the same to the last bit.

    They do the tasks of one `map` at a time: a new one, or `close`, ends one that has results to
    come, and whoever asks for these gets a `WorkerError`.
    """

    def __init__(self, count: int) -> None:
        """Raises a WorkerError unless the number of processes is at least 1."""
        if not isinstance(count, int) or count < 1:
            raise WorkerError(f"the number of processes must be an integer >= 1 (got {count!r})")
        self.count = count
        self._workers: list[_Worker] = []
        self._taken: deque[_Task] | None = None  # by the present `map`
        self._context = multiprocessing.get_context("spawn")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The ids of the present processes."""
        return tuple(worker.process.pid for worker in self._workers)

    def close(self) -> None:
        """Ends the processes, whatever they do."""
        self._taken = None
        for worker in self._workers:
            self._end(worker)
        self._workers.clear()

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """See `Workers.map`."""
        source = iter(tasks)
        taken: deque[_Task] = deque()
        waiting: deque[_Task] = deque()
        self._end_busy()
        self._taken = taken
        try:
            while True:
                if self._taken is not taken:
                    raise WorkerError(
                        "the processes were closed, or got other tasks, before these were done"
                    )
                free = max(self.count * _READ_AHEAD - len(taken), 0)  # `count` may become smaller
                new = list(map(_Task, itertools.islice(source, free)))
                taken += new
                waiting += new
                if not taken:
                    return
                self._hand_out(function, waiting)
                if taken[0].result is None:
                    self._collect(function, waiting)
                    continue
                result = taken.popleft().result
                assert result is not None
                if isinstance(result, Exception):
                    raise result
                yield cast(R, result[0])
        finally:
            if self._taken is taken:
                self._end_busy()

    def _end_busy(self) -> None:
        """Ends processes whose work is of no use to anybody, and would answer the next call."""
        for worker in [worker for worker in self._workers if worker.task is not None]:
            self._end(worker)
            self._workers.remove(worker)

    def _hand_out(self, function: Callable[..., Any], waiting: deque[_Task]) -> None:
        """Gives waiting tasks to idle processes, which are started if need be."""
        idle = [worker for worker in self._workers if worker.task is None]
        while waiting and (idle or len(self._workers) < self.count):
            worker = idle.pop() if idle else self._start()
            worker.task = waiting.popleft()
            # A process that has died is noticed when its answer is waited for.
            with contextlib.suppress(BrokenPipeError):
                worker.pipe.send((function, worker.task.value))

    def _collect(self, function: Callable[..., Any], waiting: deque[_Task]) -> None:
        """Takes the answers that have come, of which there is one at least."""
        busy = {worker.pipe: worker for worker in self._workers if worker.task is not None}
        for pipe in wait(list(busy)):
            worker = busy[pipe]
            task = worker.task
            assert task is not None
            try:
                task.result = worker.pipe.recv()
                worker.task = None
            except (EOFError, ConnectionError):
                self._workers.remove(worker)
                worker.process.join()
                worker.pipe.close()
                task.attempts += 1
                if task.attempts == MOST_ATTEMPTS:
                    ending = _ending(worker.process.exitcode)
                    raise WorkerError(
                        f"{MOST_ATTEMPTS} processes died at the same task, the last with {ending}: "
                        f"{_shown(partial(function, task.value))}"
                    ) from None
                waiting.appendleft(task)

    def _start(self) -> _Worker:
        from nnet3_runtime_cuda.cpu import choices  # only who starts processes needs it

        here, there = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(there, choices()), daemon=True)
        process.start()
        there.close()
        worker = _Worker(process, here)
        self._workers.append(worker)
        return worker

    @staticmethod
    def _end(worker: _Worker) -> None:
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()


def _shown(value: Any) -> str:
    """A function or a task, with the arguments that it has already, and without addresses."""
    if not isinstance(value, partial):
        return getattr(value, "__qualname__", None) or repr(value)
    named = (f"{name}={_shown(each)}" for name, each in value.keywords.items())
    return f"{_shown(value.func)}({', '.join([*map(_shown, value.args), *named])})"


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-status).name
    return f"exit status {status}"


def _serve(pipe: Connection, environment: dict[str, str]) -> None:
    """The work of a process: it does tasks until the other side closes.

    Args:
        pipe: Leads to the other side.
        environment: Variables to set, so that all processes compute the same bits.
    """
    os.environ.update(environment)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks decides what Ctrl-C ends
    os.environ.setdefault("MKL_NUM_THREADS", "1")  # MKL may be loaded within a task
    while True:
        try:
            function, task = pipe.recv()
        except (EOFError, ConnectionError):
            return
        result: tuple[Any] | Exception
        try:
            result = (on_one_thread(function, task),)
        except Exception as error:
            result = error.with_traceback(None)
        try:
            pipe.send(result)
        except ConnectionError:
            return
        except Exception as error:
            pipe.send(WorkerError(f"a result cannot be sent: {error}"))


def _end_with_parent() -> None:
    """Ends this process, whatever it does, when the one that asks has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class DaskWorkers:
    """The workers of a cluster, as many as it has when tasks are handed out.

    If a worker dies, Dask repeats its task, as often as `distributed.scheduler.allowed-failures`
    says. Give workers one thread each: the number of threads of the BLAS library belongs to the
    process. They need this package, and the folder under the same path.
    """

    def __init__(self, client: Client) -> None:
        """Takes a client that is connected."""
        self._client: Any = client

    @property
    def count(self) -> int:
        """Threads of all workers; 1 before the first worker has come."""
        return max(1, sum(map(int, self._client.nthreads().values())))

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """See `Workers.map`."""
        from distributed import KilledWorker

        source = iter(tasks)
        futures: deque[Any] = deque()
        try:
            while True:
                free = max(self.count * _READ_AHEAD - len(futures), 0)  # workers may have gone
                futures += (
                    self._client.submit(on_one_thread, function, task, pure=False)
                    for task in itertools.islice(source, free)
                )
                if not futures:
                    return
                try:
                    result = futures[0].result()
                except KilledWorker as error:
                    raise WorkerError(f"workers of the cluster died at a task: {error}") from error
                futures.popleft()
                yield result
        finally:
            self._client.cancel(list(futures))
