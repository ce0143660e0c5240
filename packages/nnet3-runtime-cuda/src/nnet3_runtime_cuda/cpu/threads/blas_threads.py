"""The number of threads that the BLAS library may use for a product, while it serves a model.

The number belongs to the process. If several callers want different numbers at the same time, they
get the smallest. When the last caller is done, the library has its first setting again.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import LibController, ThreadpoolController

from nnet3_runtime_cuda.cpu.products import blas

_MKL = "mkl"
"""Its name in threadpoolctl."""


@functools.cache
def _libraries() -> tuple[LibController, ...]:
    """The BLAS libraries of this process."""
    blas.library()  # must be loaded before the search for libraries
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


def count() -> int:
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
        with _without_own_limit():
            with self._lock:
                self._wishes[threads] += 1
                self._apply()
            try:
                yield
            finally:
                with self._lock:
                    # A process that was forked meanwhile has forgotten the wish.
                    self._wishes[threads] = max(0, self._wishes[threads] - 1)
                    self._apply()

    def _apply(self) -> None:
        """Puts the smallest wish in force; the lock must be held."""
        smallest = min((+self._wishes).keys(), default=0)
        if smallest == self._in_force:
            return
        if not self._in_force:
            self._before = [library.num_threads for library in _libraries()]
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
