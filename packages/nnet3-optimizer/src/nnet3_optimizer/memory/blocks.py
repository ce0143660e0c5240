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
        stack_at: The time at which blocks are stacked before all others are placed; None for the
            peak.
    """

    sizes: Ints
    block: Ints
    begin: Ints
    end: Ints
    stack_at: int | None = None

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
        """The first time at which so many bytes are needed, or the one that was chosen."""
        return int(self.live_bytes.argmax()) if self.stack_at is None else self.stack_at

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

    @cached_property
    def at_peak(self) -> Bools:
        """(P,) bool, the spans that the peak is in."""
        at_peak: Bools = (self.begin <= self.peak) & (self.end > self.peak)
        return at_peak

    @cached_property
    def stack(self) -> Ints:
        """The blocks that are needed at the peak, those that are needed longest first."""
        spans = np.flatnonzero(self.at_peak)
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
        begin, end = self.begin[spans, None], self.end[spans, None]
        number, other = np.nonzero((begin < self.end) & (end > self.begin))
        pairs = np.unique(self.block[spans[number]] * len(self.sizes) + self.block[other])
        found: dict[int, list[int]] = {}
        for block, met in zip(
            *(each.tolist() for each in divmod(pairs, len(self.sizes))), strict=True
        ):
            found.setdefault(block, []).append(met)
        return found


@attrs.frozen(kw_only=True, eq=False)
class Packing:
    """Where blocks lie.

    Attributes:
        offsets: (B,) int64 bytes.
        size: Bytes of the arena that holds them all.
    """

    offsets: Ints
    size: int
