"""Blocks of memory that live for a while, and where they lie in one arena."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Blocks:
    """Blocks of memory, each needed during one or several half-open spans of time.

    Attributes:
        sizes: (B,) int64 bytes, positive.
        block: (P,) int64, the block of each span.
        begin: (P,) int64, the time from which block[p] is needed.
        end: (P,) int64, the time up to which it is needed (not included). A block lies at one
            offset in all its spans.
    """

    sizes: Ints
    block: Ints
    begin: Ints
    end: Ints

    @cached_property
    def live_bytes(self) -> Ints:
        """(times,) int64, the bytes that are needed from each time on to the next."""
        if not len(self.block):
            return np.zeros(1, dtype=np.int64)
        size = self.sizes[self.block]
        # Exact: sums of bytes are far below 2**53.
        changes = np.bincount(self.begin, size, int(self.end.max()) + 1)
        changes -= np.bincount(self.end, size, len(changes))
        live: Ints = np.cumsum(changes).astype(np.int64)
        return live

    @cached_property
    def lower_bound(self) -> int:
        """The largest sum of the sizes of blocks that are needed at the same time, in bytes."""
        return int(self.live_bytes.max())

    @cached_property
    def peak(self) -> int:
        """The first time at which so many bytes are needed."""
        return int(self.live_bytes.argmax())

    def other_peaks(self, least: float) -> Iterator[int]:
        """Returns times, other than the peak, at which about as many bytes are needed.

        Args:
            least: The part of the lower bound that is needed at least. Of neighbouring times that
                is the one at which most bytes are.
        """
        near = np.flatnonzero(self.live_bytes >= least * self.lower_bound)
        for times in np.split(near, np.flatnonzero(np.diff(near) > 1) + 1):
            highest = int(times[self.live_bytes[times].argmax()])
            if highest != self.peak:
                yield highest

    def spans_at(self, time: int) -> Bools:
        """Returns the spans that a time is in, (P,) bool."""
        spans: Bools = (self.begin <= time) & (self.end > time)
        return spans

    def stack_at(self, time: int) -> Ints:
        """Returns the blocks that are needed at a time, those that are needed longest first."""
        (spans,) = self.spans_at(time).nonzero()
        stack: Ints = self.block[spans[np.lexsort((self.begin[spans], -self.end[spans]))]]
        return stack

    @cached_property
    def num_spans(self) -> Ints:
        """(B,) int64, the number of spans of each block."""
        counts: Ints = np.bincount(self.block, minlength=len(self.sizes))
        return counts

    @cached_property
    def met_by_several(self) -> dict[int, list[int]]:
        """For each block with several spans, those that are needed at some time when it is."""
        spans = np.flatnonzero(self.num_spans[self.block] > 1)
        if not len(spans):
            return {}
        begin, end = self.begin[spans, None], self.end[spans, None]
        number, other = np.nonzero((begin < self.end) & (end > self.begin))
        pairs = np.unique(self.block[spans[number]] * len(self.sizes) + self.block[other])
        block, met = divmod(pairs, len(self.sizes))
        blocks, begins = np.unique(block, return_index=True)
        others: list[int] = met.tolist()
        stops = [*begins[1:].tolist(), len(others)]
        return {
            each: others[start:stop]
            for each, start, stop in zip(blocks.tolist(), begins.tolist(), stops, strict=True)
        }


@attrs.frozen(kw_only=True, eq=False)
class Packing:
    """Where blocks lie.

    Attributes:
        offsets: (B,) int64 bytes.
        size: Bytes of the arena that holds them all.
    """

    offsets: Ints
    size: int
