"""Cuts work into slices."""

from __future__ import annotations

import itertools
from typing import TypeVar

import numpy as np

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
