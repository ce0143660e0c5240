"""Working memory of the commands of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_T = TypeVar("_T")


ALIGNMENT = 64
"""Arrays begin at a multiple of so many bytes."""

GROWTH = 4
"""New memory is at least one part in so many of what there is, so that there are few blocks."""


class Scratch:
    """Working memory that the commands of a program share: each may use all of it, in turn.

    It grows by blocks, as arrays of earlier commands hold those that there are.

    Attributes:
        mark: How far the current command has come: number of the block, and bytes of it. Set back,
            it gives back what was taken since.
        farthest: The farthest that `mark` has been since this was set.
        nbytes: Size of all blocks.
    """

    def __init__(self) -> None:
        self._blocks: list[Array] = []
        self._lent: list[Array] = []
        self.mark = self.farthest = 0, 0
        self.nbytes = 0

    def begin(self) -> None:
        """Gives everything taken so far back, and what was lent: a new command starts."""
        self.mark = 0, 0
        self._lent = []

    def lend(self, memory: Array) -> None:
        """Lets the current command, which has taken nothing yet, use other memory too, first.

        Args:
            memory: One-dimensional and contiguous; what it holds is lost.
        """
        self._lent.append(memory.view(np.uint8))

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialised array that holds its contents until the command has run."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        number, used = self.mark
        start = -(-used // ALIGNMENT) * ALIGNMENT
        blocks = [*self._lent, *self._blocks]
        while number < len(blocks) and start + size > blocks[number].nbytes:
            number, start = number + 1, 0
        if number == len(blocks):
            capacity = max(size, self.nbytes // GROWTH)
            blocks.append(np.empty(capacity, dtype=np.uint8))
            self._blocks.append(blocks[-1])
            self.nbytes += capacity
        self.mark = number, start + size
        self.farthest = max(self.farthest, self.mark)
        taken: Array = blocks[number][start : start + size].view(dtype).reshape(shape)
        return taken

    @contextmanager
    def passing(self) -> Iterator[None]:
        """What is taken within holds its contents to the end of it only."""
        mark = self.mark
        yield
        self.mark = mark

    def in_turn(self, items: Sequence[_T]) -> Iterator[_T]:
        """The items; what is taken for one of them is given back before the next."""
        mark = self.mark
        for item in items:
            self.mark = mark
            yield item
        self.mark = mark
