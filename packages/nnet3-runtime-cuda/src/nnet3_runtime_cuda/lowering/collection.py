"""Switches off Python's garbage collector while programs are made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pause:
    """The number of threads that want no collections now, and the setting before."""

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
        """One thread less; after the last one collections go on, if they did before."""
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._was_enabled:
                gc.enable()


_PAUSE = _Pause()


@contextmanager
def uncollected() -> Iterator[None]:
    """Stops collections in the context, for the whole process: the objects made there will last.

    A program of thousands of sequences has millions of calls and operands. The collector would
    visit all objects again whenever their number has grown by a quarter, which took a third of the
    time.
    """
    _PAUSE.begin()
    try:
        yield
    finally:
        _PAUSE.end()
