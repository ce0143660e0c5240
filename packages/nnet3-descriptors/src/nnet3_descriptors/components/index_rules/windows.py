"""Rules of components that read windows, or nothing; and what components compute from indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar, dataclass_transform

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3_descriptors.components.declaration import kinds, properties
from nnet3_descriptors.errors import Nnet3Error
from nnet3_descriptors.frozen_arrays import ReadOnlyArrays
from nnet3_descriptors.indexes import AnyIndexes, IndexArray, N, Splits, T, X, as_rows, index_keys

RowArray = NDArray[np.int32]
"""Numbers of rows, int32."""

NO_ROWS = np.empty(0, dtype=np.int32)
NO_RANGES = np.empty((0, 2), dtype=np.int32)

_C = TypeVar("_C", bound=type)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def precomputed(cls: _C) -> _C:
    """Makes a frozen value class of a subclass of PrecomputedIndexes."""
    built: _C = attrs.frozen(kw_only=True)(cls)
    return built


def row_array(width: int | None = None) -> Any:
    """Declares a field of PrecomputedIndexes that holds (rows,) or, with a width, (rows, width).

    The array is read-only int32; two of them are equal if shape and values are.
    """
    expected = "(rows,)" if width is None else f"(rows, {width})"

    def check(_: object, attribute: attrs.Attribute[RowArray], value: RowArray) -> None:
        if value.shape[1:] != (() if width is None else (width,)) or value.ndim == 0:
            raise Nnet3Error(f"'{attribute.name}' must be {expected}, got {value.shape}")

    return attrs.field(converter=_row_numbers, eq=kinds.ArrayKey, validator=check)


def _row_numbers(values: ArrayLike) -> RowArray:
    return kinds.read_only(values, np.int32)


def wrong_count(what: str, found: int, expected: int) -> str | None:
    """Returns a message if there are not as many indexes as expected; see `misfit`."""
    return None if found == expected else f"are for {found} {what}, expected {expected}"


def no_such_row(what: str, rows: NDArray[np.integer], count: int) -> str | None:
    """Returns a message if a row number is not below a count; see `misfit`."""
    if not rows.size or (rows.min() >= 0 and rows.max() < count):
        return None
    bad = int(rows[(rows < 0) | (rows >= count)].flat[0])
    return f"name {what} {bad}, expected 0 to {count - 1}"


def no_such_range(what: str, ranges: RowArray, count: int) -> str | None:
    """Returns a message if a range is not within a number of rows; see `misfit`."""
    begin, end = ranges.T
    fits = (begin >= 0) & (begin <= end) & (end <= count)
    if np.count_nonzero(fits) == len(fits):
        return None
    bad = ranges[int(fits.argmin())].tolist()
    return f"name {what} {bad[0]} to {bad[1]} (not included), expected a range within 0 to {count}"


def time_ranges(
    rows: IndexArray, wanted: IndexArray, begin: NDArray[np.int64], end: NDArray[np.int64]
) -> RowArray:
    """Returns which rows have the n and x of each wanted index, and a time in a range.

    Args:
        rows: (M, 3) indexes, in the order of n, then x, then t.
        wanted: (N, 3) indexes.
        begin: (N,) the first time of each.
        end: (N,) the time behind the last of each.

    Returns:
        (N, 2) int32: the first row and the row behind the last; both the same if there is none.
    """
    n, x = wanted[:, N], wanted[:, X]
    limits = (np.stack((n, time, x), axis=1) for time in (begin, end))
    keys, begins, ends = index_keys(rows, *limits)
    ranges = np.searchsorted(keys, np.stack((begins, ends), axis=1))
    return ranges.astype(np.int32)


def find_rows(rows: IndexArray, wanted: IndexArray) -> NDArray[np.int64]:
    """Returns the position of each wanted index among the rows.

    Args:
        rows: (M, 3) indexes, in any order.
        wanted: (N, 3) indexes, each of which is among the rows.

    Returns:
        (N,) row numbers.
    """
    keys, wanted_keys = index_keys(rows, wanted)
    order = np.argsort(keys)
    return order[np.searchsorted(keys, wanted_keys, sorter=order)]


def sequence_order(indexes: IndexArray) -> NDArray[np.intp]:
    """Returns the (N,) permutation that sorts (N, 3) indexes by n, then x, then t."""
    (keys,) = index_keys(indexes)
    return np.argsort(keys, kind="stable")


def times(indexes: IndexArray) -> NDArray[np.int64]:
    """Returns the t of (N, 3) indexes as numbers that have room for offsets, (N,) int64."""
    return indexes[:, T].astype(np.int64)


@attrs.frozen(eq=False)
class Windows(ReadOnlyArrays):
    """The windows of a component whose rows read all existing rows of a window of time.

    Attributes:
        starts: (R,), for rows with t = r modulo R the first offset of the window in t.
        lengths: (R,), the number of offsets of this window; 0 for rows that read nothing.
        step: The distance of the offsets.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    step: int

    @classmethod
    def of(cls, windows: Sequence[range | None]) -> Self | None:
        """Returns the windows with these offsets for each residue of t, None for no window.

        The result is None if there are no windows, or if their steps differ.
        """
        steps = {window.step for window in windows if window is not None}
        if len(steps) != 1:
            return None
        ends = [(0, 0) if each is None else (each.start, len(each)) for each in windows]
        starts, lengths = np.array(ends, dtype=np.int64).T
        return cls(starts, lengths, steps.pop())

    @property
    def length(self) -> int:
        """The largest number of offsets of a window."""
        return int(self.lengths.max())

    def rows_within(
        self, rows: IndexArray, readers: IndexArray
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Finds the rows in the window of each reader.

        Args:
            rows: (M, 3), the rows that exist.
            readers: (N, 3), the rows that have windows.

        Returns:
            order (M,), and first and end (N,): rows[order[first[i]:end[i]]] are those in the window
            of reader i, by ascending t.
        """
        begin, length = self._around(readers)
        end = begin.copy()
        end[:, T] += length
        in_turn, *ends = index_keys(self._in_turns(rows, times(rows)), begin, end)
        order = np.argsort(in_turn, kind="stable")
        first, behind = np.searchsorted(in_turn[order], np.stack(ends))
        return order, first, behind

    def union(self, readers: IndexArray, reader: str) -> IndexArray:
        """Returns the rows that lie in any window of (N, 3) readers, each once, as (K, 3).

        Args:
            readers: The rows that have windows.
            reader: Their name, for the error.

        Raises:
            NetworkError: A t is beyond 32 bits, or is the value that marks padding.
        """
        begin, length = self._around(readers)
        order = np.lexsort((begin[:, T], begin[:, X], begin[:, N]))
        begin, length = begin[order], length[order]
        # The windows of one sequence and residue follow each other. Each adds what lies behind the
        # end of all before it, which `reach` has as one number, with a distance between sequences.
        is_new = np.ones(len(begin), dtype=np.bool_)
        is_new[1:] = (begin[1:, [N, X]] != begin[:-1, [N, X]]).any(axis=1)
        first = int(begin[:, T].min(initial=0))
        turns = int((begin[:, T] + length).max(initial=0)) - first + 1
        run = (np.cumsum(is_new) - 1) * turns - first
        start, end = begin[:, T] + run, begin[:, T] + length + run
        start[1:] = np.maximum(start[1:], np.maximum.accumulate(end)[:-1])
        counts = np.maximum(end - start, 0)
        found = np.repeat(begin, counts, axis=0)
        found[:, T] = np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
        found[:, T] += np.repeat(start - run, counts)
        found[:, X], residue = np.divmod(found[:, X], self.step)
        found[:, T] = found[:, T] * self.step + residue
        return as_rows(found, reader)

    def _around(self, readers: IndexArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns where the windows of (N, 3) rows begin, in turns, and their numbers of turns."""
        residue = readers[:, T] % len(self.starts)
        begin = self._in_turns(readers, times(readers) + self.starts[residue])
        return begin, self.lengths[residue]

    def _in_turns(self, indexes: AnyIndexes, time: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns (N, 3) indexes at other times, so that rows `step` frames apart are neighbours.

        The turn, t // step, takes the place of t; x holds t modulo step too.
        """
        turn, residue = np.divmod(time, self.step)
        return np.stack(
            (indexes[:, N], turn, indexes[:, X] * np.int64(self.step) + residue), axis=1
        )


class NoInputRules:
    """The index rules, to be put before Component among the bases of a class.

    Such a component node has an input nevertheless, but uses none of its rows.
    """

    __slots__ = ()

    def input_dependencies(self, output_indexes: IndexArray) -> tuple[Splits, IndexArray]:
        """Returns no index for any row."""
        return np.zeros(len(output_indexes) + 1, dtype=np.int64), output_indexes[:0]

    def closed_form(self) -> properties.ClosedForm:
        """Returns that no row reads anything."""
        return (properties.AtOffsets(()),)
