"""How many threads the BLAS library may use for a product, while it serves a model.

The number belongs to the process. So several callers who wish for different ones, at the same time,
get the smallest; when the last of them is done, the library is as it was before the first.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

from . import blas


@functools.cache
def _controller() -> ThreadpoolController:
    blas.library()  # is to be loaded before one looks for libraries
    return ThreadpoolController()


def count() -> int:
    """How many threads the BLAS library uses at present; 1 if that is not known."""
    libraries = [one for one in _controller().info() if one["user_api"] == "blas"]
    return max((one["num_threads"] for one in libraries), default=1)


class ThreadLimit:
    """The limits that callers wish for, and the one that is in force."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wishes: Counter[int] = Counter()
        self._limiter: Any = None
        self._in_force = 0

    @contextmanager
    def at_most(self, threads: int | None) -> Iterator[None]:
        """Within, no product uses more threads; None wishes for nothing."""
        if threads is None:
            yield
            return
        with self._lock:
            self._wishes[threads] += 1
            self._apply()
        try:
            yield
        finally:
            with self._lock:
                self._wishes[threads] -= 1
                self._apply()

    def _apply(self) -> None:
        """Puts the smallest wish in force; the lock must be held."""
        smallest = min((+self._wishes).keys(), default=0)
        if smallest == self._in_force:
            return
        if self._limiter is not None:
            self._limiter.restore_original_limits()
            self._limiter = None
        if smallest:
            self._limiter = _controller().limit(limits=smallest, user_api="blas")
        self._in_force = smallest


LIMIT = ThreadLimit()
"""That of this process."""
