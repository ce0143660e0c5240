"""Lists of lists as arrays: the i-th list of a `Csr` is `values[splits[i]:splits[i + 1]]`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


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


def splits_of(counts: npt.NDArray[np.integer | np.bool_]) -> Ids:
    """Returns the splits of lists of these lengths."""
    splits = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=splits[1:])
    return splits


def positions_in_lists(counts: npt.NDArray[np.integer]) -> Ids:
    """Returns, for each element of lists of these lengths, its position in its list."""
    splits = splits_of(counts)
    return np.arange(splits[-1], dtype=np.int64) - np.repeat(splits[:-1], counts)


def ordering(*keys: Ids) -> Ids:
    """Returns the positions of the elements in ascending order of the keys, the first one first.

    Args:
        keys: (N,) numbers from 0 on. Elements with equal keys keep their order.
    """
    count = len(keys[0])
    bits = [int(key.max(initial=0)).bit_length() for key in keys]
    if sum(bits) + count.bit_length() > 63:
        return np.lexsort(keys[::-1])
    # Sorting numbers that hold keys and position is several times faster than an argsort.
    packed = keys[0]
    for key, width in zip(keys[1:], bits[1:], strict=True):
        packed = (packed << width) | key
    packed = (packed << count.bit_length()) | np.arange(count)
    packed.sort()
    packed &= (1 << count.bit_length()) - 1
    return packed
