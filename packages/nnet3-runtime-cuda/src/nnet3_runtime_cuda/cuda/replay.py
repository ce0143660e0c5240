"""Calls on a CUDA device as values: products, several calls as one, and graphs made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .cublaslt import Product
from .platform import Call

if TYPE_CHECKING:
    from .cupy_platform import CupyPlatform


class BoundProduct:
    """A product as a call."""

    def __init__(self, platform: CupyPlatform, product: Product) -> None:
        self._platform = platform
        self._product = product
        self.workspace_bytes = product.workspace_bytes

    def __call__(self) -> None:
        """Queues the product."""
        self._platform.run_product(self._product)


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

    def __init__(self, platform: CupyPlatform, calls: tuple[Call, ...]) -> None:
        self._platform = platform
        self._calls = calls
        self._graph: Any = None
        self._kept: object = None
        self._ran = False

    def __call__(self) -> None:
        """Makes the calls the first time; then captures them; then replays."""
        if self._graph is None and not self._ran:
            Several(self._calls)()
            self._ran = True
            return
        if self._graph is None:
            self._graph, self._kept = self._platform.graph(self._calls)
        self._platform.replay(self._graph)


def products_of(calls: Sequence[Call]) -> Iterator[BoundProduct]:
    """The products among calls."""
    for call in calls:
        if isinstance(call, Several):
            yield from products_of(call.calls)
        elif isinstance(call, BoundProduct):
            yield call


def captured(stream: Any, calls: Sequence[Callable[[], object]]) -> Any:
    """The graph of calls, which are made on a stream."""
    with stream:
        stream.begin_capture()
        try:
            for call in calls:
                call()
        except BaseException:
            # Ends the capture; that it was broken off is no news.
            with suppress(Exception):
                stream.end_capture()
            raise
        return stream.end_capture()
