"""Signals that wait until work which must not be broken off is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
"""The signals whose handlers programs let raise exceptions, such as KeyboardInterrupt."""


class PostponedSignals:
    """A context in which no handler of a signal runs: Ctrl-C takes effect at its end.

    It changes nothing outside of the main thread, because handlers run there only, and for signals
    without a handler in Python.
    """

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        found = ((number, signal.getsignal(number)) for number in _SIGNALS if is_main)
        self._usual = {number: handler for number, handler in found if callable(handler)}
        self._waiting: list[int] = []
        self._postpone()
        return self

    def __exit__(self, *_: object) -> None:
        self._let_through([*self._usual])

    @contextmanager
    def heard(self) -> Iterator[None]:
        """A context within, in which handlers run: for code of a caller, which may take long."""
        try:
            self._let_through([*self._usual])
            yield
        finally:
            self._postpone()

    def _postpone(self) -> None:
        try:
            for number in self._usual:
                signal.signal(number, self._note)
        except BaseException:  # another handler raised it meanwhile
            self._let_through([*self._usual])
            raise

    def _note(self, number: int, _: FrameType | None) -> None:
        if number not in self._waiting:
            self._waiting.append(number)

    def _let_through(self, numbers: list[int]) -> None:
        """Sets handlers back, the last ones first, and makes up for the signals meanwhile."""
        try:
            if numbers:
                number = numbers.pop()
                signal.signal(number, self._usual[number])
            elif self._waiting:
                signal.raise_signal(self._waiting.pop())
        finally:  # a handler may raise an exception
            if numbers or self._waiting:
                self._let_through(numbers)
