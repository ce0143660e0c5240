"""Tasks and workers.

A result depends on its task alone. Every worker computes it on one thread of the BLAS library,
since sums on several threads differ in their last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from threadpoolctl import threadpool_limits

T = TypeVar("T")
R = TypeVar("R")

MOST_ATTEMPTS = 3
"""The number of processes that a task may kill before it is given up."""


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
            WorkerError: processes died at a task three times.
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
