"""Cutting up what is to be done."""

from __future__ import annotations

import itertools
from typing import TypeVar

import numpy as np

_T = TypeVar("_T")

PRODUCT_WORK = 32
"""So many multiplications take as long as one element of other operations."""


def even_parts(length: int, count: int) -> list[slice]:
    """At most so many slices of `range(length)`, none empty unless it is, of nearly equal size."""
    count = max(1, min(count, length))
    bounds = [length * k // count for k in range(count + 1)]
    return [slice(begin, end) for begin, end in itertools.pairwise(bounds)]


def parts_of_at_most(length: int, most: int, *, multiple_of: int = 1) -> list[slice]:
    """As few slices of `range(length)` as can be, none empty unless it is, of nearly equal size.

    Args:
        length: Of the range.
        most: No slice is longer, but each may have one element.
        multiple_of: The number of slices is a multiple, if there are as many elements.
    """
    count = -(-length // max(1, most))
    return even_parts(length, -(-count // multiple_of) * multiple_of)


def part_of(operand: _T, part: slice, axis: int, shape: tuple[int, ...]) -> _T:
    """A part of an operand that is broadcast to a shape; the axis counts from the end."""
    if not isinstance(operand, np.ndarray) or operand.ndim < -axis:
        return operand
    if operand.shape[axis] != shape[axis]:
        return operand
    index = [slice(None)] * operand.ndim
    index[axis] = part
    return operand[tuple(index)]  # type: ignore[return-value]
