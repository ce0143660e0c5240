"""Signals that wait for the end of work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from nnet3_runtime_cuda.device import PostponedSignals

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="has signals of POSIX")


class AlarmError(Exception):
    """Raised by the handler of SIGALRM."""


def raise_alarm(*_: object) -> None:
    """A handler that breaks work off."""
    raise AlarmError


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """SIGINT and SIGALRM raise exceptions, whatever runs the tests."""
    before = [
        (signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler)),
        (signal.SIGALRM, signal.signal(signal.SIGALRM, raise_alarm)),
    ]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def are_as_before() -> bool:
    """Whether the handlers are those of the fixture."""
    found = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)
    return found == (signal.default_int_handler, raise_alarm)


def send(*numbers: int) -> None:
    """Sends signals to this process."""
    for number in numbers:
        signal.raise_signal(number)


@pytest.mark.parametrize(
    ("numbers", "error", "context"),
    [
        ([signal.SIGINT] * 2, KeyboardInterrupt, type(None)),
        ([signal.SIGALRM] * 2, AlarmError, type(None)),
        ([signal.SIGINT, signal.SIGALRM], KeyboardInterrupt, AlarmError),
    ],
    ids=["interrupt", "alarm", "both"],
)
def test_signals_wait(numbers: list[int], error: type[BaseException], context: type) -> None:
    """Signals take effect at the end of the context, which sets all handlers back; none is lost."""
    done = []

    def work() -> None:
        with PostponedSignals():
            send(*numbers)
            done.append(numbers)

    with pytest.raises(error) as raised:
        work()
    assert isinstance(raised.value.__context__, context)
    assert done == [numbers]
    assert are_as_before()


def test_signals_are_heard_within() -> None:
    """Code of a caller is interrupted, also by a signal from before; later signals wait again."""
    done = []

    def work() -> None:
        with PostponedSignals() as signals:
            for early in ((), (signal.SIGINT,)):
                send(*early)
                with pytest.raises(KeyboardInterrupt), signals.heard():
                    send(signal.SIGINT)
            send(signal.SIGALRM)
            done.append("waited")

    with pytest.raises(AlarmError):
        work()
    assert done == ["waited"]
    assert are_as_before()


@pytest.mark.parametrize("handler", [raise_alarm, signal.SIG_IGN])
def test_handlers_that_are_set_within(handler: Any) -> None:
    """A handler that code of a caller sets stays."""
    with PostponedSignals() as signals:
        with signals.heard():
            signal.signal(signal.SIGINT, handler)
        assert signal.getsignal(signal.SIGINT) is not handler

    assert signal.getsignal(signal.SIGINT) == handler


def test_error_within() -> None:
    """An error leaves the context as it is, and handlers as they were."""
    with pytest.raises(ZeroDivisionError), PostponedSignals():
        raise ZeroDivisionError

    assert are_as_before()


def test_other_threads() -> None:
    """In another thread than the main one the context changes nothing."""
    seen = []

    def look() -> None:
        with PostponedSignals() as signals, signals.heard():
            seen.append(are_as_before())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert seen == [True]
