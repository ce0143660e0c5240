"""Windows of time that rows read: what lies in them, found without a list of each row's frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.index_rules.precomputed import times
from nnet3_descriptors.indexes.arrays import AnyIndexes, IndexArray, N, T, X, as_rows, index_keys


@attrs.frozen(eq=False)
class Windows:
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
