"""Ctrl-C while a tool waits."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nnet3_tools.cli import heard

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals of POSIX")


@pytest.fixture(autouse=True)
def usual_handling() -> Iterator[None]:
    """Handles Ctrl-C as on a terminal, even if these tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def read(folder: Path) -> None:
    """Waits for data that nobody writes."""
    news, sink = os.pipe()
    try:
        os.read(news, 1)
    finally:
        os.close(news)
        os.close(sink)


def open_fifo(folder: Path) -> None:
    """Waits for a writer."""
    os.mkfifo(folder / "fifo")
    os.close(os.open(folder / "fifo", os.O_RDONLY))


def acquire(folder: Path) -> None:
    """Waits for a lock that nobody releases."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@pytest.mark.parametrize("wait", [read, open_fifo, acquire])
def test_unnoticed_signal(wait: Callable[[Path], None], tmp_path: Path) -> None:
    """A signal that does not interrupt a waiting call of the main thread still ends it."""
    main_thread, is_over, is_late = threading.get_ident(), threading.Event(), threading.Event()

    def interrupt() -> None:
        time.sleep(0.2)  # so that the main thread waits
        # Python notes the signal without interrupting the main thread, as if just before its call.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not is_over.wait(60):
            is_late.set()
            signal.pthread_kill(main_thread, signal.SIGINT)

    thread = threading.Thread(target=interrupt)

    def run() -> None:
        with heard():
            thread.start()
            wait(tmp_path)

    with pytest.raises(KeyboardInterrupt):
        run()
    is_over.set()
    thread.join()

    assert not is_late.is_set()


def test_second_signal() -> None:
    """Ctrl-C during the cleanup of a tool raises again."""
    with heard():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_nothing_remains(handler: Callable[..., object] | signal.Handlers) -> None:
    """Afterwards, all signals are handled as before; an ignored Ctrl-C stays ignored."""
    signal.signal(signal.SIGINT, handler)
    threads, usual = threading.enumerate(), signal.getsignal(signal.SIGURG)

    with heard():
        assert signal.getsignal(signal.SIGINT) == handler
        assert (threading.enumerate() == threads) == (handler == signal.SIG_IGN)

    assert threading.enumerate() == threads
    assert signal.getsignal(signal.SIGINT) == handler
    assert signal.getsignal(signal.SIGURG) == usual
    assert signal.set_wakeup_fd(-1) == -1


def test_other_thread() -> None:
    """A tool can run in a thread, which gets no signals."""
    done = []

    def run() -> None:
        with heard():
            done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert done == [True]
