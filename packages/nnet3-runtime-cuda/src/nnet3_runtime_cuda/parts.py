"""Cutting up what is to be done."""

from __future__ import annotations

import itertools


def even_parts(length: int, count: int) -> list[slice]:
    """At most so many slices of `range(length)`, none empty unless it is, of nearly equal size."""
    count = max(1, min(count, length))
    bounds = [length * k // count for k in range(count + 1)]
    return [slice(begin, end) for begin, end in itertools.pairwise(bounds)]
