"""Arrays with any layout in separate memory, and random numbers for them.

The tests examine how NumPy follows strides, so the elements of an array are read and written one by
one here, by their positions in one-dimensional memory.
"""

from __future__ import annotations

import functools
import math
import os
import random
import zlib
from collections.abc import Sequence

import numpy as np

LENGTHS = (*range(71), 95, 96, 97, 127, 128, 129, 191, 255, 256, 257, 300, 1031)
"""Numbers of elements in a line: around the widths of vector instructions."""

STRIDES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 24, 31, 32)
"""Distances of elements, in elements, where these are 4 to 128 bytes."""

MOST_BYTES = 128
FILLER = 119
"""The value in unused memory, if it is not NaN."""

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))

POOL = 1009
"""Number of different numbers of a kind."""

TRIALS = int(os.environ.get("OPERATION_TRIALS", 2 * len(LENGTHS)))
SEED = os.environ.get("OPERATION_SEED", "0")


@functools.cache
def _pool(kind: str, dtype: np.dtype) -> np.ndarray:
    """Numbers of a kind; see `Draw.values`."""
    rng = np.random.default_rng(zlib.crc32(f"{kind} {dtype}".encode()))
    if dtype.kind == "b":
        return rng.random(POOL) < 0.5
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, POOL, dtype, endpoint=True)
    numbers = rng.standard_normal(POOL) * 10.0 ** rng.integers(-3, 4, POOL)
    chance, halves = rng.random(POOL), rng.integers(-200, 201, POOL) / 2
    numbers = np.where((chance < 0.4) | (kind == "limited"), halves, numbers)
    if kind == "any":
        large = 1e30 if dtype == np.float32 else 1e300
        extreme = rng.choice([large, -large, 1e8 * large, 1 / large, -1e-8 / large], POOL)
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan], POOL)
        numbers = np.select([chance < 0.15, chance < 0.3], [special, extreme], numbers)
    with np.errstate(over="ignore", under="ignore"):
        return numbers.astype(dtype)


class Place:
    """An array in separate memory.

    Attributes:
        memory: The memory, one-dimensional.
        positions: The positions of the array's elements in the memory, of the array's shape.
    """

    def __init__(
        self, memory: np.ndarray, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> None:
        """Places an array; strides and offset are in elements."""
        self.memory, self.shape = memory, tuple(shape)
        self._strides, self._offset = tuple(strides), offset
        self.positions = offset + np.tensordot(strides, np.indices(shape), 1)

    @property
    def dtype(self) -> np.dtype:
        """Type of the elements."""
        return self.memory.dtype

    @property
    def array(self) -> np.ndarray:
        """The array, as a view of the memory."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        size = self.dtype.itemsize
        strides = [stride * size for stride in self._strides]
        return np.ndarray(self.shape, self.dtype, self.memory, self._offset * size, strides)

    @property
    def values(self) -> np.ndarray:
        """The current elements, contiguous in memory of their own."""
        return self.memory[self.positions]

    @values.setter
    def values(self, values: np.ndarray) -> None:
        self.memory[self.positions] = values

    @property
    def numbers(self) -> np.ndarray:
        """The current elements in double precision."""
        return self.values.astype(np.float64)

    def part(self, axis: int, start: int, length: int) -> Place:
        """`length` indexes of an axis from `start` on."""
        shape = list(self.shape)
        shape[axis] = length
        return Place(self.memory, shape, self._strides, self._offset + start * self._strides[axis])


class Draw:
    """The random choices for one trial of an operation, whose main length is given.

    Attributes:
        dtype: Type of the arrays.
        tape_dtype: Type of the tape.
        length: Length of the main axis.
        places: All drawn arrays.
    """

    def __init__(self, name: str, number: int) -> None:
        """Draws for the trial of this number."""
        self.random = random.Random(f"{name} {number} {SEED}")
        self.dtype = FLOATS[number % 2]
        self.tape_dtype = self.dtype if number % 10 else FLOATS[0]
        self.length = LENGTHS[number // 2 % len(LENGTHS)]
        self.places: list[Place] = []

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def few(self, least: int = 1) -> int:
        """A small number, such as that of rows or columns."""
        return self.random.randint(least, 5)

    def shape(self, axes: int) -> tuple[int, ...]:
        """A shape of the main length and short axes."""
        shape = [self.random.randint(1, 3) for _ in range(axes)]
        shape[self.random.randrange(axes)] = self.length
        return tuple(shape)

    def number(self) -> float:
        """A number for an operand; exact in single precision."""
        return float(np.float32(self.random.choice((0.0, 1.0, -1.0, 0.5, 0.3, -2.7, 1e20))))

    def place(
        self,
        shape: Sequence[int],
        dtype: np.dtype | type | None = None,
        *,
        kind: str = "any",
        values: np.ndarray | None = None,
        layout: str = "any",
    ) -> Place:
        """An array with values.

        Args:
            shape: Shape of the array.
            dtype: Type of the elements; None for the type of the trial.
            kind: Kind of the values: "any", with infinities and NaN; "finite"; "limited": halves
                up to 100; "none" for an output.
            values: The values; drawn if None.
            layout: "any", "contiguous", or "read": like "any", but rows can overlap.
        """
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        strides, size = self._strides(shape, dtype, layout)
        offset = self.random.randrange(5)
        filler = math.nan if dtype.kind == "f" and kind == "none" else FILLER
        memory = np.full(offset + size + self.random.randrange(5), filler, dtype)
        place = Place(memory, shape, strides, offset)
        if values is None and kind != "none":
            pool = np.roll(_pool(kind, dtype), self.random.randrange(POOL))
            values = np.resize(pool, shape)
        if values is not None:
            place.values = values
        self.places.append(place)
        return place

    def _strides(
        self, shape: Sequence[int], dtype: np.dtype, layout: str
    ) -> tuple[tuple[int, ...], int]:
        """The stride of each axis, in elements, and the number of elements that they span."""
        if layout == "read" and len(shape) == 2 and shape[1] and self.chance(0.2):
            # Overlapping windows of a line, or one row repeated.
            step = self.random.randrange(shape[1])
            return (step, 1), max(shape[0] - 1, 0) * step + shape[1]
        order = list(reversed(range(len(shape))))
        if layout != "contiguous" and self.chance(0.3):
            self.random.shuffle(order)
        usual = [n for n in STRIDES if 4 <= n * dtype.itemsize <= MOST_BYTES or n == 1]
        strides, extent = [0] * len(shape), 1
        for axis in order:
            stride = extent
            if layout != "contiguous" and self.chance(0.6):
                # A gap, or the distance of elements in a column of a matrix.
                wider = [n for n in usual if n >= extent]
                stride = self.random.choice(wider or [extent + self.few()])
            strides[axis] = stride
            extent = max(1, shape[axis] * stride)
        return tuple(strides), extent
