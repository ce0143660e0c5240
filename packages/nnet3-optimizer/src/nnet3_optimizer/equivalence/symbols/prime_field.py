"""Arithmetic modulo a prime of 128 bits.

An element of the field stands for a linear combination of unknowns: each unknown has a random
element, so sums and multiples of elements are the elements of sums and multiples. Two different
combinations have the same element with a probability below 2**-126 (J. Schwartz, 1980).
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

PRIME = 2**128 - 159

_SHIFT = 0x2D358DCCAA6C78A58BB84B93962EACC9
"""Stands for a shift by one column: a random element."""


@lru_cache(maxsize=1024)
def element_of(value: float) -> int:
    """Returns the element of a finite float: exact, so that sums and products of scales agree."""
    fraction = Fraction(value)
    return fraction.numerator * pow(fraction.denominator, -1, PRIME) % PRIME


@lru_cache(maxsize=4096)
def shift(columns: int) -> int:
    """Returns the element for a shift by a number of columns, which can be negative."""
    return pow(_SHIFT, columns, PRIME)


def scaled(values: list[int], factor: int) -> list[int]:
    """Returns values times an element."""
    return values if factor == 1 else [value * factor % PRIME for value in values]


def shifted(values: list[int], columns: int) -> list[int]:
    """Returns the symbols of the rest of stretches, from a number of columns on."""
    return scaled(values, shift(columns)) if columns else values


def added(one: list[int], other: list[int]) -> list[int]:
    """Returns the sums of values, pair by pair, in a new list."""
    if not any(one):
        return list(other)
    return [(a + b) % PRIME for a, b in zip(one, other, strict=True)]
