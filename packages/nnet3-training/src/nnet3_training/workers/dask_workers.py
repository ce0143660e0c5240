"""The workers of a Dask cluster, on this machine or on many."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from nnet3_training.errors import WorkerError
from nnet3_training.workers.workers import on_one_thread

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
R = TypeVar("R")

_READ_AHEAD = 2
"""Tasks taken for each thread before the oldest is done."""


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
        is_exhausted = False
        try:
            while True:
                most = self.count * _READ_AHEAD
                while not is_exhausted and len(futures) < most:
                    try:
                        task = next(source)
                    except StopIteration:
                        is_exhausted = True
                    else:
                        futures.append(
                            self._client.submit(on_one_thread, function, task, pure=False)
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
