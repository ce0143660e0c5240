"""Lists of lists as arrays: the i-th list of a `Csr` is `values[splits[i]:splits[i + 1]]`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
"""Numbers of things, int64."""
Bools = npt.NDArray[np.bool_]
"""Truth values."""


class Csr(NamedTuple):
    """Lists of numbers.

    Attributes:
        splits: (lists + 1,) int64.
        values: (splits[-1],) int64.
    """

    splits: Ids
    values: Ids

    def __getitem__(self, index: int) -> Ids:  # type: ignore[override]
        """Returns one list."""
        return self.values[self.splits[index] : self.splits[index + 1]]


def where(mask: Bools) -> Ids:
    """Returns the positions at which a mask, (N,), is True, ascending."""
    return mask.nonzero()[0]


def every(mask: Bools) -> bool:
    """Tells whether a mask of any shape is True everywhere.

    The same as `mask.all()`; for masks of up to some hundred elements in a tenth of the time.
    """
    return int(np.count_nonzero(mask)) == mask.size


def splits_of(counts: npt.NDArray[np.integer | np.bool_]) -> Ids:
    """Returns the splits of lists of these lengths."""
    splits = np.zeros(len(counts) + 1, dtype=np.int64)
    counts.cumsum(out=splits[1:])
    return splits


def positions_in_lists(counts: npt.NDArray[np.integer]) -> Ids:
    """Returns, for each element of lists of these lengths, its position in its list."""
    splits = splits_of(counts)
    return np.arange(splits[-1], dtype=np.int64) - splits[:-1].repeat(counts)


def ordering(*keys: Ids) -> Ids:
    """Returns the positions of the elements in ascending order of the keys, the first one first.

    Args:
        keys: (N,) numbers from 0 on. Elements with equal keys keep their order.
    """
    count = len(keys[0])
    shift = count.bit_length()
    mask = (1 << shift) - 1
    bits = [int(np.maximum.reduce(key, initial=0)).bit_length() for key in keys]
    if max(bits) + shift > 63:
        return np.lexsort(keys[::-1])
    order: Ids | None = None
    last = len(keys)
    while last:
        # It is several times faster to sort numbers that hold keys and position than to argsort.
        # Each sort takes as many keys as fit into a number, beginning with the last keys.
        first = last - 1
        while first and sum(bits[first - 1 : last]) + shift <= 63:
            first -= 1
        packed = keys[first]
        for key, width in zip(keys[first + 1 : last], bits[first + 1 : last], strict=True):
            packed = (packed << width) | key
        packed = packed if order is None else packed.take(order)
        packed = (packed << shift) | np.arange(count)
        packed.sort()
        packed &= mask
        order = packed if order is None else order.take(packed)
        last = first
    assert order is not None
    return order
