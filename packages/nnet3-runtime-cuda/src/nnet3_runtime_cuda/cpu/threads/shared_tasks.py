"""Tasks that several threads share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

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
