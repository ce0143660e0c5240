"""The garbage collector of Python, kept from looking at programs while they are made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pause:
    """How many threads want no collections now, and whether there are any else."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_enabled = False

    def begin(self) -> None:
        """One thread more."""
        with self._lock:
            if self._count == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        """One less; the last one has collections go on if they did before."""
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._was_enabled:
                gc.enable()


_PAUSE = _Pause()


@contextmanager
def uncollected() -> Iterator[None]:
    """Has no collections within, in the whole process: what is made there is going to last.

    A program of thousands of sequences has millions of calls and operands. The collector goes over
    all objects again whenever a quarter more has come, which took a third of the time.
    """
    _PAUSE.begin()
    try:
        yield
    finally:
        _PAUSE.end()
