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
"""Arrays begin at multiples of this many bytes."""

GROWTH = 4
"""A new block has at least 1 / GROWTH of the memory so far, so that there are few blocks."""


class Scratch:
    """Working memory that the commands of a program use in turn.

    It grows by blocks, because arrays of earlier commands still point to the blocks so far.

    Attributes:
        mark: Position of the current command in the memory: number of the block, and bytes of it.
            Setting it back frees the arrays taken since.
        farthest: The farthest position of `mark` since this was set.
        nbytes: Size of all blocks.
    """

    def __init__(self) -> None:
        self._blocks: list[Array] = []
        self._lent: list[Array] = []
        self.mark = self.farthest = 0, 0
        self.nbytes = 0

    def begin(self) -> None:
        """Starts a new command: frees all arrays, and forgets lent memory."""
        self.mark = 0, 0
        self._lent = []

    def lend(self, memory: Array) -> None:
        """Lends memory to the current command, which must not have taken any; it is used first.

        Args:
            memory: One-dimensional and contiguous; its content is lost.
        """
        self._lent.append(memory.view(np.uint8))

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialised array that keeps its contents until the command has run."""
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
        """A context; the memory of arrays taken within is free again at its end."""
        mark = self.mark
        yield
        self.mark = mark

    def in_turn(self, items: Sequence[_T]) -> Iterator[_T]:
        """The items; arrays taken for one item are free again before the next."""
        mark = self.mark
        for item in items:
            self.mark = mark
            yield item
        self.mark = mark
