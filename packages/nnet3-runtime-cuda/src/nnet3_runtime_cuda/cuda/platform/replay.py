"""Calls on a CUDA device as values: products, several calls as one, and graphs made of them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from nnet3_runtime_cuda.cuda.platform.cublaslt import Product
from nnet3_runtime_cuda.cuda.platform.platform import Call


class Queue(Protocol):
    """The methods of a device that calls use, beside the methods of a `Platform`.

    It runs the given calls in order, on the current stream.
    """

    def allocate(self, nbytes: int) -> int:
        """See Platform."""

    def free(self, address: int) -> None:
        """See Platform."""

    def run_product(self, product: Product, workspace: Workspace) -> None:
        """Queues a product that uses a workspace."""

    def graph(self, calls: Sequence[Call]) -> Any:
        """A graph that makes calls."""

    def replay(self, graph: Any) -> None:
        """Queues a graph."""


class Workspace:
    """Memory that products use in turn, all of which run on one stream.

    Attributes:
        nbytes: Its size.
    """

    def __init__(self, queue: Queue) -> None:
        """Without memory, until a product that needs some runs."""
        self.nbytes = 0
        self._queue = queue
        self._address = 0

    def reserve(self, nbytes: int) -> None:
        """Makes it large enough for a product, before any runs."""
        assert not self._address or nbytes <= self.nbytes, "products are bound before they run"
        self.nbytes = max(self.nbytes, nbytes)

    def address(self) -> int:
        """Its address; 0 if there is none."""
        if self.nbytes and not self._address:
            self._address = self._queue.allocate(self.nbytes)
            weakref.finalize(self, self._queue.free, self._address).atexit = False
        return self._address


class BoundProduct:
    """A product as a call."""

    def __init__(self, queue: Queue, product: Product, workspace: Workspace) -> None:
        self._queue = queue
        self._product = product
        self._workspace = workspace
        workspace.reserve(product.workspace_bytes)

    def __call__(self) -> None:
        """Queues the product."""
        self._queue.run_product(self._product, self._workspace)


class Several:
    """Calls that follow one another, as one."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        self.calls = calls

    def __call__(self) -> None:
        """Makes the calls."""
        for call in self.calls:
            call()


class Replay:
    """Calls that become a graph when they run for the second time."""

    def __init__(self, queue: Queue, calls: tuple[Call, ...]) -> None:
        self._queue = queue
        self._calls = calls
        self._graph: Any = None
        self._ran = False

    def __call__(self) -> None:
        """Makes the calls the first time, captures them the second time, then replays."""
        if self._graph is None and not self._ran:
            Several(self._calls)()
            self._ran = True
            return
        if self._graph is None:
            self._graph = self._queue.graph(self._calls)
        self._queue.replay(self._graph)


class Captures:
    """Separates captures from waits for a whole device, because CUDA does not allow both at once.

    While a stream of a device is captured, a wait for the device is an error, and spoils the
    capture. So other threads wait for the end of the capture, and memory that the garbage collector
    frees meanwhile is freed after it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_active = False
        self._postponed: list[Callable[[], None]] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """A capture, after those of other threads."""
        with self._lock:
            self._is_active = True
            try:
                yield
            finally:
                self._is_active = False
                postponed, self._postponed = self._postponed, []
                for action in postponed:
                    action()

    def between(self, action: Callable[[], None]) -> None:
        """Runs a function that waits for the device, while nothing is captured."""
        with self._lock:
            if self._is_active:
                self._postponed.append(action)
            else:
                action()


_CAPTURES: dict[int, Captures] = {}


def captures_of(ordinal: int) -> Captures:
    """The captures of a device, common to all platforms on it."""
    return _CAPTURES.setdefault(ordinal, Captures())


def captured(stream: Any, calls: Sequence[Callable[[], object]]) -> Any:
    """The graph of calls, which are made on a stream."""
    with stream:
        stream.begin_capture()
        try:
            for call in calls:
                call()
        except BaseException:
            # Ends the capture; the error that broke it off is raised already.
            with suppress(Exception):
                stream.end_capture()
            raise
        return stream.end_capture()
