"""Numbers of 64 bits that stand for unknown values: arithmetic, columns, rows, functions.

Arithmetic is that of whole numbers modulo 2**64, which NumPy does at full speed. Each unknown row
has a random number. A sum of rows has the sum of their numbers, in any order; a multiple has the
product with the number of its factor. Where a row is shifted by some columns, its number is
multiplied by that power of one random number. So the numbers of the parts of a row follow from that
of the whole row, wherever it is split, and a weighted sum of them is a hash of the row that does
not depend on the splits.
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from nnet3_computation.arrays import IntArray

Hashes = npt.NDArray[np.uint64]
"""A number for each row, (rows,)."""

NUMBERS = 2**64
"""How many numbers there are."""

# Odd, and random otherwise.
_SHIFT, _ROW, _HALF, _COUNT = (
    0x2D358DCCAA6C78A5,
    0xC2B2AE3D27D4EB4F,
    0x9FB21C651E98DF25,
    0x8BB84B93962EACC9,
)


def number(value: int) -> Hashes:
    """Returns a whole number in an array without axes: NumPy is slower with its scalars."""
    return np.array(value % NUMBERS, np.uint64)


_TURN, _AGAIN = number(32), number(29)
_FIRST, _SECOND, _EACH = number(0xFF51AFD7ED558CCD), number(0xC4CEB9FE1A85EC53), number(_COUNT)
_OF_ARGUMENT = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F


def seed_of(*name: Hashable) -> int:
    """Returns the random number of a name, made of numbers and strings: always the same."""
    return int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest(), "little")


def mixed(values: Hashes) -> Hashes:
    """Replaces numbers by random ones, equal for equal numbers, in place; returns them."""
    np.bitwise_xor(values, values >> _TURN, out=values)
    np.multiply(values, _FIRST, out=values)
    np.bitwise_xor(values, values >> _AGAIN, out=values)
    np.multiply(values, _SECOND, out=values)
    return values


def unknowns(seed: int, rows: int) -> Hashes:
    """Returns the random numbers of the rows of an unknown matrix, (rows,)."""
    values = np.arange(rows, dtype=np.uint64)
    np.multiply(values, _EACH, out=values)
    np.add(values, number(seed), out=values)
    return mixed(values)


def function(seed: Hashes, *arguments: Hashes | None) -> Hashes:
    """Returns the values of an unknown function, (rows,).

    Args:
        seed: The function, as the number of its name.
        arguments: The hashes of the rows of each argument, (rows,), made with the place of the
            argument; None for those that are not there.
    """
    total = seed
    for argument in arguments:
        if argument is not None:
            total = argument + total
    return mixed(total)


class Supply:
    """Random numbers for undefined elements: never the same twice."""

    def __init__(self) -> None:
        self._made = 0
        self._left = np.zeros(0, np.uint64)

    def fresh(self, rows: int) -> Hashes:
        """Returns numbers, (rows,), that belong to the caller."""
        if rows > len(self._left):
            self._left = unknowns(seed_of("undefined", self._made), max(rows, 1 << 14))
            self._made += 1
        found, self._left = self._left[:rows], self._left[rows:]
        return found


# -- factors and columns ---------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def factor(value: float) -> Hashes:
    """Returns the number of a scale or a constant, such that products of scales agree.

    A float is a whole number times a power of 2. One half is no number modulo 2**64, so a random
    number stands for it.
    """
    fraction = Fraction(value)
    whole, halves = fraction.numerator, fraction.denominator.bit_length() - 1
    while whole and not whole % 2:
        whole, halves = whole // 2, halves - 1
    return number(whole * pow(_HALF, halves, NUMBERS))


@lru_cache(maxsize=4096)
def shift(columns: int) -> Hashes:
    """Returns the number for a shift by columns, which can be negative."""
    return number(pow(_SHIFT, columns, NUMBERS))


class _Powers:
    """Sums and powers of random numbers, as many as were needed so far."""

    def __init__(self, base: int) -> None:
        self._base = base
        self.powers = self.inverse = self.sums = np.zeros(0, np.uint64)

    def reach(self, count: int) -> None:
        """Makes the tables long enough for numbers up to `count`."""
        if count < len(self.powers):
            return
        count = max(2 * count, 1 << 10)
        base = np.full(count + 1, self._base, np.uint64)
        base[0] = 1
        self.powers = base.cumprod(dtype=np.uint64)
        base[1:] = pow(self._base, -1, NUMBERS)
        self.inverse = base.cumprod(dtype=np.uint64)
        self.sums = np.zeros(count + 1, np.uint64)
        weights = unknowns(seed_of("column"), count)
        np.cumsum(weights * self.powers[:-1], out=self.sums[1:])


_COLUMNS, _ROWS = _Powers(_SHIFT), _Powers(_ROW)


@lru_cache(maxsize=8192)
def weight(begin: int, end: int, place: int) -> Hashes:
    """Returns what a part of a row counts in the hash of the row.

    Args:
        begin: The first column of the part.
        end: The column after it.
        place: The place of the row among the arguments of a function.
    """
    _COLUMNS.reach(end)
    between = int(_COLUMNS.sums[end]) - int(_COLUMNS.sums[begin])
    return number(between * int(_COLUMNS.inverse[begin]) * _OF_ARGUMENT[place])


def sums_of_ranges(rows: Hashes, begin: IntArray, end: IntArray) -> Hashes:
    """Returns the sum of the rows begin <= r < end, for each of many ranges."""
    sums = np.zeros(len(rows) + 1, np.uint64)
    np.cumsum(rows, out=sums[1:])
    return sums[end] - sums[begin]


def of_all(rows: Hashes) -> int:
    """Returns a hash of all rows in their order."""
    _ROWS.reach(len(rows))
    return int(np.add.reduce(rows * _ROWS.powers[: len(rows)])) + len(rows)
