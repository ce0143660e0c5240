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


def splits_of(counts: npt.NDArray[np.integer]) -> Ids:
    """Returns the splits of lists of these lengths."""
    splits = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=splits[1:])
    return splits


def positions_in_lists(counts: npt.NDArray[np.integer]) -> Ids:
    """Returns, for each element of lists of these lengths, its position in its list."""
    splits = splits_of(counts)
    return np.arange(splits[-1], dtype=np.int64) - np.repeat(splits[:-1], counts)


def grouped(keys: Ids, num_groups: int) -> Csr:
    """Returns for each key the positions at which it occurs, ascending.

    Args:
        keys: (N,) numbers, 0 <= key < num_groups.
        num_groups: Number of lists in the result.
    """
    count = len(keys)
    if not count:
        return Csr(np.zeros(num_groups + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))
    # Sorting unique keys is several times faster than a stable argsort.
    ordered = np.sort(keys.astype(np.int64) * count + np.arange(count))
    return Csr(splits_of(np.bincount(keys, minlength=num_groups)), ordered % count)
