"""Arrays with any layout in separate memory, and random numbers for them.

The tests examine how NumPy follows strides, so positions of elements in memory are computed here,
without NumPy.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import random
import struct
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


def rounded(value: float, dtype: np.dtype) -> float:
    """The nearest number of a type; infinity if the number is too large."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu":
        return int(value)
    if dtype == np.float64 or not math.isfinite(value):
        return value
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


@functools.cache
def _pool(kind: str, dtype: np.dtype) -> list:
    """Numbers of a kind, twice in a row, so that any start leaves enough numbers."""
    draw, large = random.Random(kind), 1e30 if dtype == np.float32 else 1e300
    info = None if dtype.kind in "fb" else np.iinfo(dtype)
    numbers: list[float] = []
    for _ in range(POOL):
        chance = draw.random()
        if dtype.kind == "b":
            numbers.append(chance < 0.5)
        elif info is not None:
            numbers.append(draw.randint(int(info.min), int(info.max)))
        elif kind == "any" and chance < 0.15:
            numbers.append(draw.choice((0.0, -0.0, math.inf, -math.inf, math.nan)))
        elif kind == "any" and chance < 0.3:
            numbers.append(draw.choice((large, -large, 1e8 * large, 1 / large, -1e-8 / large)))
        elif kind == "limited" or chance < 0.4:
            numbers.append(draw.randint(-200, 200) / 2)
        else:
            numbers.append(draw.gauss(0.0, 1.0) * 10.0 ** draw.randint(-3, 3))
    return [rounded(number, dtype) for number in numbers] * 2


class Place:
    """An array in separate memory.

    Attributes:
        memory: The memory, one-dimensional.
        positions: Positions of the array's elements in the memory, the last axis fastest.
    """

    def __init__(
        self, memory: np.ndarray, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> None:
        """Places an array; strides and offset are in elements."""
        self.memory, self.shape = memory, tuple(shape)
        self._strides, self._offset = tuple(strides), offset
        ranges = [
            range(0, length * stride, stride) if stride else (0,) * length
            for length, stride in zip(shape, strides, strict=True)
        ]
        self.positions = [offset + sum(index) for index in itertools.product(*ranges)]

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
        offset = self._offset * size
        return np.ndarray(self.shape, self.dtype, self.memory, offset, strides)

    @property
    def values(self) -> list:
        """The current elements."""
        return self.memory[self.positions].tolist()

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
        return rounded(self.random.choice((0.0, 1.0, -1.0, 0.5, 0.3, -2.7, 1e20)), FLOATS[0])

    def values(self, count: int, dtype: np.dtype, kind: str) -> list:
        """Random numbers.

        Args:
            count: Number of them.
            dtype: Their type.
            kind: "any", with infinities and NaN; "finite"; or "limited": halves up to 100.
        """
        pool = _pool(kind, dtype)
        start = self.random.randrange(POOL)
        pieces = -(-count // POOL)
        return (pool * pieces if pieces > 1 else pool)[start : start + count]

    def place(
        self,
        shape: Sequence[int],
        dtype: np.dtype | type | None = None,
        *,
        kind: str = "any",
        values: Sequence[float] | None = None,
        layout: str = "any",
    ) -> Place:
        """An array with values.

        Args:
            shape: Shape of the array.
            dtype: Type of the elements; None for the type of the trial.
            kind: Kind of the values, as in `values`; "none" for an output.
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
            values = self.values(len(place.positions), dtype, kind)
        if values is not None:
            memory[place.positions] = np.array(values, dtype)
        self.places.append(place)
        return place

    @staticmethod
    def replace(place: Place, values: Sequence[float]) -> None:
        """Replaces the values of an array."""
        place.memory[place.positions] = np.array(values, place.dtype)

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
