"""Forking a process while its threads compute.

A forked process has one thread, and a copy of everything else: a lock that another thread held
stays locked for ever. So a fork waits until no other thread is within `unforked()`, and threads
wait there until the fork is over. If a thread does not come out in time, the process forks
nevertheless, and `unforked()` raises an error in the new process.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from nnet3_descriptors.errors import Nnet3Error

__all__ = ["GATE", "ForkError", "ForkGate"]

PATIENCE = 10.0
"""Seconds that a fork waits, at most."""


class ForkError(Nnet3Error):
    """The process was forked while other threads computed, and cannot compute."""


class ForkGate:
    """Keeps forks apart from critical work; any number of threads may do such work at a time."""

    def __init__(self) -> None:
        # Taken as a lock: Ctrl-C within `Condition.__enter__` would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._within: Counter[int] = Counter()
        self._forking = False
        self._is_unsafe = False

    @contextmanager
    def unforked(self) -> Iterator[None]:
        """Within, no other thread forks the process.

        Raises:
            ForkError: The process was forked, and other threads did not come out of here in time.
        """
        if self._is_unsafe:
            raise ForkError(
                "this process was forked while other threads computed: begin it by 'spawn' or "
                "'forkserver', or before they do"
            )
        with self.importing():
            yield

    @contextmanager
    def importing(self) -> Iterator[None]:
        """As `unforked`, but never refused: for imports, whose locks a fork would leave locked."""
        me = threading.get_ident()
        is_within = False
        try:
            with self._lock:
                while self._forking and not self._within[me]:
                    self._changed.wait()
                self._within[me] += 1
                is_within = True  # at once: Ctrl-C comes after calls
            yield
        finally:
            with self._lock:
                if is_within:
                    self._within[me] -= 1
                if not self._within[me]:
                    del self._within[me]
                self._changed.notify_all()

    def _others(self) -> bool:
        return any(thread != threading.get_ident() for thread in +self._within)

    def before(self) -> None:
        """Waits until no other thread is within."""
        with self._lock:
            while self._forking:
                self._changed.wait()
            self._forking = True
            self._changed.wait_for(lambda: not self._others(), timeout=PATIENCE)

    def after_in_parent(self) -> None:
        """Lets threads in again."""
        with self._lock:
            self._forking = False
            self._changed.notify_all()

    def after_in_child(self) -> None:
        """Begins anew, with this thread alone."""
        self._is_unsafe |= self._others()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        me = threading.get_ident()
        self._within = Counter({me: self._within[me]} if self._within[me] else {})
        self._forking = False


GATE = ForkGate()
"""The gate of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=GATE.before, after_in_parent=GATE.after_in_parent, after_in_child=GATE.after_in_child
    )
