"""The lists of (submatrix, row) pairs that commands refer to, end to end."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np

from nnet3_computation.arrays.csr import Csr, Ids, splits_of, where
from nnet3_computation.commands.declaration import Table


@attrs.frozen(eq=False)
class PairLists:
    """Lists of (submatrix, row) pairs; (-1, -1) stands for none.

    Attributes:
        lists: (rows, 2) int32 each.
    """

    lists: tuple[Table, ...]
    _known: Csr | None = attrs.field(default=None, kw_only=True)
    """The value of `named`, if it is known already."""

    def and_further(self, lists: tuple[Table, ...]) -> PairLists:
        """Returns these lists and some more."""
        known, further = self.named, PairLists(lists).named
        named = Csr(
            np.concatenate([known.splits, known.splits[-1] + further.splits[1:]]),
            np.concatenate([known.values, further.values]),
        )
        return PairLists(self.lists + lists, known=named)

    @cached_property
    def splits(self) -> Ids:
        """(lists + 1,) int64: where each list begins in `pairs`."""
        return splits_of(np.array([len(pairs) for pairs in self.lists], dtype=np.int64))

    @cached_property
    def pairs(self) -> Table:
        """(total, 2) int32: all lists end to end."""
        return np.concatenate(self.lists) if self.lists else np.zeros((0, 2), np.int32)

    @cached_property
    def named(self) -> Csr:
        """For each list the distinct submatrices in it."""
        if self._known is not None:
            return self._known
        if not self.lists:
            return Csr(self.splits, np.zeros(0, dtype=np.int64))
        submatrix = self.pairs[:, 0]
        # Most rows come from the same submatrix as the one before: only where it changes is sorted.
        is_first = np.ones(len(submatrix), dtype=np.bool_)
        np.not_equal(submatrix[1:], submatrix[:-1], out=is_first[1:])
        is_first[self.splits[:-1][self.splits[:-1] < len(submatrix)]] = True
        is_first &= submatrix > 0
        at = where(is_first)
        bounds = at.searchsorted(self.splits)
        owner = np.arange(len(self.lists)).repeat(bounds[1:] - bounds[:-1])
        keys = np.sort((owner << 32) | submatrix[at])
        distinct = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
        counts = np.bincount(distinct >> 32, minlength=len(self.lists))
        return Csr(splits_of(counts), distinct & 0xFFFFFFFF)

    def of(self, numbers: Ids | Table) -> Csr:
        """Returns for each of these lists the distinct submatrices in it."""
        begin, end = self.named.splits[numbers], self.named.splits[np.add(numbers, 1)]
        counts = end - begin
        splits = splits_of(counts)
        place = np.arange(splits[-1]) + (begin - splits[:-1]).repeat(counts)
        return Csr(splits, self.named.values[place])
