"""Blocks of memory that live for a while, and their places in one arena."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

NEARLY_A_PEAK = 0.97
"""Bytes above this part of the lower bound count as the peak."""


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
    def _events(self) -> tuple[Ints, Ints]:
        """Begins and ends of spans in order, as span and ~span, and their times.

        At one time the ends come before the begins.
        """
        number = len(self.block)
        bits = number.bit_length()
        spans = np.arange(number)
        # Sorting numbers that hold time and span together is faster than sorting indirectly.
        ends, begins = self.end << bits + 1, (self.begin << bits + 1) + (1 << bits)
        keys = np.concatenate([ends + spans, begins + spans])
        keys.sort()
        is_begin = keys >> bits & 1
        return (keys & (1 << bits) - 1) ^ is_begin - 1, keys >> bits + 1

    @property
    def events_around_peak(self) -> tuple[Ints, Ints]:
        """The begins and ends after the peak, and the ones before it, going back from the peak.

        Both are int64: a block if it is needed from then on, in this direction, and ~block if it is
        no longer needed.
        """
        events, times = self._events
        blocks = np.concatenate([self.block, ~self.block[::-1]])[events]
        first = np.searchsorted(times, self.peak, side="right")
        return blocks[first:], ~blocks[:first][::-1]

    @cached_property
    def moments(self) -> tuple[Ints, Ints]:
        """The times of begins and ends, and the bytes that are needed from then on; (T,) int64."""
        events, times = self._events
        sizes = self.sizes[self.block]
        load = np.cumsum(np.concatenate([sizes, -sizes[::-1]])[events])
        is_last = np.ones(len(times), dtype=np.bool_)
        np.not_equal(times[1:], times[:-1], out=is_last[:-1])
        return times[is_last], load[is_last]

    @cached_property
    def lower_bound(self) -> int:
        """The largest sum of the sizes of blocks that are needed at the same time, in bytes."""
        return int(self.moments[1].max(initial=0))

    @cached_property
    def peak(self) -> int:
        """The first time at which the peak is reached."""
        times, load = self.moments
        return int(times[load.argmax()])

    @property
    def stack(self) -> Ints:
        """(S,) int64, the spans that include the peak, in the order in which they are stacked.

        The spans that end last come first. But spans that began when nearly as many bytes were
        needed come after all others, so that the memory that is free before they begin is in one
        piece, too.
        """
        times, load = self.moments
        near = times[(load >= NEARLY_A_PEAK * self.lower_bound).argmax()]
        (spans,) = ((self.begin <= self.peak) & (self.end > self.peak)).nonzero()
        begin = self.begin[spans]
        stack: Ints = spans[np.lexsort((begin, -self.end[spans], begin > near))]
        return stack

    @cached_property
    def spans_of_several(self) -> Ints:
        """(Q,) int64, the spans of blocks that have more than one, by block and begin."""
        counts = np.bincount(self.block)
        spans = np.flatnonzero((counts > 1)[self.block])
        return spans[np.lexsort((self.begin[spans], self.block[spans]))]


@attrs.frozen(kw_only=True, eq=False)
class Packing:
    """The places of blocks.

    Attributes:
        offsets: (B,) int64 bytes.
        size: Bytes of the arena that holds them all.
    """

    offsets: Ints
    size: int
