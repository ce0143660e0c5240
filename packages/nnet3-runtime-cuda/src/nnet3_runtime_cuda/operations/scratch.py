"""Work and working memory of commands: slices of work, and scratch memory."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_T = TypeVar("_T")

PRODUCT_WORK = 32
"""Number of multiplications that take as long as one element of other operations."""


def even_parts(length: int, count: int) -> list[slice]:
    """At most `count` slices of `range(length)`, of nearly equal size; none empty if length > 0."""
    count = max(1, min(count, length))
    bounds = [length * k // count for k in range(count + 1)]
    return [slice(begin, end) for begin, end in itertools.pairwise(bounds)]


def parts_of_at_most(length: int, most: int, *, multiple_of: int = 1) -> list[slice]:
    """The fewest slices of `range(length)`, of nearly equal size; none empty if length > 0.

    Args:
        length: Length of the range.
        most: The greatest length of a slice; less than 1 counts as 1.
        multiple_of: The number of slices is a multiple of this, if there are enough elements.
    """
    count = -(-length // max(1, most))
    return even_parts(length, -(-count // multiple_of) * multiple_of)


def part_of(operand: _T, part: slice, axis: int, shape: tuple[int, ...]) -> _T:
    """The slice of an operand that is broadcast to a shape; the axis counts from the end."""
    if not isinstance(operand, np.ndarray) or operand.ndim < -axis:
        return operand
    if operand.shape[axis] != shape[axis]:
        return operand
    index = [slice(None)] * operand.ndim
    index[axis] = part
    return operand[tuple(index)]  # type: ignore[return-value]


Array = npt.NDArray[Any]


ALIGNMENT = 64
"""Arrays begin at multiples of this many bytes."""

FIRST_BLOCK, GROWTH = 1 << 20, 4
"""Bytes of the first block of scratch memory at least, and by how much later ones are larger than
all before them. What no program has touched takes no memory."""


class Workspace:
    """The memory of programs that run in turn: their matrices and scratch lie in the same place.

    It is for programs that keep nothing there from one run to the next. It is free when the last of
    its programs is.

    Attributes:
        most_bytes: Larger matrices of a program do not lie here: small programs would keep their
            memory.
    """

    def __init__(self, most_bytes: int) -> None:
        """Takes no memory yet."""
        self.most_bytes = most_bytes
        self._matrices: weakref.ref[Array] | None = None
        self._scratch: list[weakref.ref[Array]] = []

    def matrices(self, size: int, dtype: npt.DTypeLike) -> Array:
        """(size,) uninitialised elements for the matrices of a program."""
        nbytes = size * np.dtype(dtype).itemsize
        memory = None if self._matrices is None else self._matrices()
        if memory is None or memory.nbytes < nbytes:
            if nbytes > self.most_bytes:
                return np.empty(size, dtype)
            # A larger one may find room later.
            memory = np.empty(min(2 * nbytes, self.most_bytes), np.uint8)
            self._matrices = weakref.ref(memory)
        taken: Array = memory[:nbytes].view(dtype)
        return taken

    def scratch(self) -> list[Array]:
        """The blocks of scratch memory that programs use."""
        blocks = [block for each in self._scratch if (block := each()) is not None]
        self._scratch = [weakref.ref(block) for block in blocks]
        return blocks

    def add_scratch(self, block: Array) -> None:
        """Gives later programs a block, too."""
        if block.nbytes <= self.most_bytes:
            self._scratch.append(weakref.ref(block))


class Scratch:
    """Working memory that the commands of a program use in turn.

    It grows by blocks, because arrays of earlier commands still point to the blocks so far.

    Attributes:
        mark: Position of the current command in the memory: number of the block, and bytes of it.
            Setting it back frees the arrays taken since.
        farthest: The farthest position of `mark` since this was set.
        nbytes: Size of what is used of all blocks.
    """

    def __init__(self, workspace: Workspace | None = None) -> None:
        """Begins with the memory of a workspace, or without memory."""
        self._workspace = workspace
        self._blocks: list[Array] = [] if workspace is None else workspace.scratch()
        self._lent: list[Array] = []
        self.mark = self.farthest = 0, 0
        self.nbytes = 0
        self._used: dict[int, int] = {}

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
        size = int(math.prod(shape)) * dtype.itemsize
        number, used = self.mark
        start = -(-used // ALIGNMENT) * ALIGNMENT
        blocks = [*self._lent, *self._blocks]
        while number < len(blocks) and start + size > blocks[number].nbytes:
            number, start = number + 1, 0
        if number == len(blocks):
            capacity = max(FIRST_BLOCK, GROWTH * sum(block.nbytes for block in self._blocks))
            if self._workspace is not None:
                capacity = min(capacity, self._workspace.most_bytes)
            blocks.append(np.empty(max(size, capacity), dtype=np.uint8))
            self._blocks.append(blocks[-1])
            if self._workspace is not None:
                self._workspace.add_scratch(blocks[-1])
        if number >= len(self._lent):
            place = number - len(self._lent)
            self._used[place] = max(self._used.get(place, 0), start + size)
            self.nbytes = max(self.nbytes, sum(self._used.values()))
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
