"""Ctrl-C that works even while a tool waits for something.

Python handles a signal between two instructions, or when it interrupts a system call. A signal
after the last instruction before a call interrupts nothing, and is handled only when the call ends:
never, if nobody writes to the pipe that the call reads. The gap is a microsecond long, but on a
busy machine a process may have to wait just there. So another thread, which Python tells of each
signal at once, interrupts the main thread again and again.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

_PAUSE = 0.02
"""Seconds between two interruptions of the main thread."""

_END = b"\0"
"""The message that ends the other thread; no signal has this number."""


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """A context in which Ctrl-C raises KeyboardInterrupt soon, whatever the main thread waits for.

    It changes nothing if Ctrl-C does something else (such as nothing, in the background), outside
    of the main thread, and on systems without signals to threads.
    """
    if (
        sys.platform == "win32"
        or not hasattr(signal, "pthread_kill")
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    news, sink = os.pipe()
    os.set_blocking(sink, False)  # signal.set_wakeup_fd requires it
    waiting = threading.get_ident()
    thread = threading.Thread(
        target=_interrupt,
        args=(lambda: signal.pthread_kill(waiting, signal.SIGURG), news),
        name="interruptions",
        daemon=True,
    )
    # SIGURG usually does nothing. With a handler it makes a system call return, and then Python
    # handles all signals.
    usual = signal.signal(signal.SIGURG, lambda *_: None)
    usual_sink = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(usual_sink)
        os.write(sink, _END)
        thread.join()
        signal.signal(signal.SIGURG, usual)
        os.close(news)
        os.close(sink)


def _interrupt(interrupt: Callable[[], None], news: int) -> None:
    """Interrupts a thread from the first Ctrl-C on until the end.

    Args:
        interrupt: Interrupts it once.
        news: A pipe with the numbers of signals, each a byte.
    """
    is_needed = False
    while _END not in (numbers := os.read(news, 4096)):
        is_needed = is_needed or signal.SIGINT in numbers
        if is_needed:
            time.sleep(_PAUSE)
            interrupt()  # writes to `news`, so the loop goes on
