"""One row stands for a frame: the rows of all sequences at one time.

Nothing in a network mixes sequences, and networks do the same with all of them. So what a matrix
holds at one time is mostly the same function of each sequence, and where sequences have different
lengths, frames only are of fewer or more of them. One element of the field stands for a frame:

- what functions give for a frame is one unknown, whatever sequences it is of;
- a frame of some of the sequences of another one, such as the next step of a recurrent network
  where a sequence has ended, has the same element;
- a frame of the sequences S, with rows from one of R, which are some of them, and zeros for the
  others, has the element of the latter times c(R) / c(S), where c(S) is the sum of a random element
  c_n for each n in S. So rows that come in several parts, R and R', are put together:
  c(R) / c(S) + c(R') / c(S) = c(S) / c(S).

Why equal elements have equal rows: let c_n go to infinity. Then c(R) / c(S) goes to 1 if n is in R,
and to 0 if it is only in S. What an element goes to is what the row of sequence n is; if two
elements are equal, as rational functions, so are their limits, for each n.

What rows are of is read off the debug info. It may be wrong: then a frame is any set of rows with
different numbers n. That rows do not change n is looked at for each list of rows, and
`IrregularError` raised where one does; then all rows have to be followed.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property, lru_cache
from hashlib import blake2b

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler.debug_info import N

from nnet3_optimizer.equivalence.field import PRIME
from nnet3_optimizer.equivalence.known_arrays import KnownArrays, near_times, without_nodes
from nnet3_optimizer.equivalence.mixture import Mixture
from nnet3_optimizer.equivalence.pattern import Indexes, IrregularError, Rows

Ints = npt.NDArray[np.int64]
ITEM = 8
"""Bytes of a number in an array."""


_SMALL = 256
"""Matrices of no more rows, thousands of them, are told apart by all their rows."""

_FEW_PER_ROW, _FEW = 4, 1024
"""Codes up to so many per row, and up to so many, are looked up in a table, not sorted."""


@lru_cache(maxsize=65536)
def _of_sequence(number: int) -> int:
    """Returns the random element of a sequence: a hash, so that none is a power of another."""
    data = number.to_bytes(8, "little", signed=True)
    return int.from_bytes(blake2b(data, digest_size=16).digest(), "little") % PRIME


@lru_cache(maxsize=65536)
def inverse(element: int) -> int:
    """Returns the inverse of an element."""
    return pow(element, -1, PRIME)


class KnownFrames:
    """The frames that were found so far, in computations to be compared."""

    def __init__(self) -> None:
        self._layouts: dict[bytes, Layout] = {}
        self._large_layouts = KnownArrays[Layout]()
        self._count = 0
        self._parts: dict[tuple[int, int, int], Part] = {}
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        self._weights: dict[bytes, int] = {}
        self.rows = defaultdict[tuple[int, int], KnownArrays[Rows | Mixture]](KnownArrays)
        """What lists of rows say of the frames of two parts, given by their numbers."""

    def layout(self, cindexes: Indexes) -> Layout:
        """Returns the frames of a matrix with rows of these cindexes, (rows, 4).

        Raises:
            IrregularError: Numbers are too large.
        """
        if len(cindexes) > _SMALL:
            return self._large_layouts.get(
                without_nodes(cindexes), lambda: self._new_layout(cindexes)
            )
        key = cindexes.T[N:].tobytes()
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = self._new_layout(cindexes)
        return found

    def _new_layout(self, cindexes: Indexes) -> Layout:
        self._count += 1
        return Layout(self._count, *_frames(cindexes[:, N:].astype(np.int64)))

    def part(self, layout: Layout, row: int, rows: int) -> Part:
        """Returns the frames of some rows of a matrix.

        Raises:
            IrregularError: There are others in between.
        """
        key = layout.number, row, rows
        found = self._parts.get(key)
        if found is None:
            frame, sequence, sizes, begin = layout.frame, layout.sequence, layout.sizes, 0
            if rows < len(frame):
                frame, sequence = frame[row : row + rows], sequence[row : row + rows]
                begin = int(frame.min()) if rows else 0
                frame = frame - begin
                sizes = np.bincount(frame)
            if not sizes.all():
                raise IrregularError
            about = frame.tobytes(), sequence.tobytes()
            number = self._numbers.setdefault(about, 1 + len(self._numbers))
            found = Part(self, layout, row, begin, frame, sequence, sizes, number)
            self._parts[key] = found
        return found

    def weight(self, sequences: bytes) -> int:
        """Returns the sum of the random elements of sequences, given as int64."""
        found = self._weights.get(sequences)
        if found is None:
            numbers = np.frombuffer(sequences, dtype=np.int64).tolist()
            found = self._weights[sequences] = sum(map(_of_sequence, numbers)) % PRIME
        return found


@attrs.frozen(eq=False, slots=False)
class Layout:
    """The frames of a matrix.

    Attributes:
        number: A number of its own.
        sequence: (rows,) int64, the sequence of each row.
        frame: (rows,) int64, the frame of each row; they are numbered as they appear.
    """

    number: int
    sequence: Ints
    frame: Ints

    @cached_property
    def sizes(self) -> Ints:
        """(frames,) the rows of each frame."""
        return np.bincount(self.frame)


@attrs.frozen(eq=False, slots=False)
class Part:
    """The frames of a submatrix.

    Attributes:
        layout: The layout of its matrix.
        row: Its first row.
        begin: The first of the frames of the matrix that have rows in it.
        frame: (rows,) int64, the frame of each row, counted from there.
        sequence: (rows,) int64, the sequence of each row.
        sizes: (frames,) the rows of each frame that are in it.
        number: The same where rows are of the same sequences and frames, in the same order.
    """

    known: KnownFrames
    layout: Layout
    row: int
    begin: int
    frame: Ints
    sequence: Ints
    sizes: Ints
    number: int

    @cached_property
    def _sets(self) -> tuple[bytes, list[int]]:
        """The sequences of all frames, one after the other, and where those of each end."""
        order = np.argsort(self.frame, kind="stable")
        return self.sequence[order].tobytes(), (np.cumsum(self.sizes) * ITEM).tolist()

    def weight(self, frame: int) -> int:
        """Returns the sum of the random elements of the sequences of a frame."""
        data, ends = self._sets
        return self.known.weight(data[ends[frame - 1] if frame else 0 : ends[frame]])

    @cached_property
    def weights(self) -> list[int]:
        """The same for all frames."""
        return [self.weight(frame) for frame in range(len(self.sizes))]

    @cached_property
    def lacking(self) -> list[int]:
        """The frames of which it has not all rows."""
        if len(self.frame) == len(self.layout.frame):
            return []
        whole = self.layout.sizes[self.begin : self.begin + len(self.sizes)]
        frames: list[int] = np.flatnonzero(self.sizes < whole).tolist()
        return frames

    @cached_property
    def shares(self) -> list[int]:
        """What an element of each frame is multiplied by for that of the matrix."""
        whole = self.known.part(self.layout, 0, len(self.layout.frame))
        shares = [1] * len(self.sizes)
        for frame in self.lacking:
            shares[frame] = self.weight(frame) * inverse(whole.weight(self.begin + frame)) % PRIME
        return shares


def _frames(table: Ints) -> tuple[Ints, Ints]:
    """Returns the sequence and the frame of each row.

    Args:
        table: (rows, 3) the n, t and x of each row; changed.

    Raises:
        IrregularError: Numbers are too large.
    """
    if not len(table):
        return table[:, 0], table[:, 0]
    table[:, 1] = near_times(table[:, 1])
    low = table.min(axis=0)
    sequences, times, xs = (table.max(axis=0) - low + 1).tolist()
    sequence = np.ascontiguousarray(table[:, 0])
    if times == xs == 1 and (np.diff(sequence) > 0).all():
        return sequence, np.zeros_like(sequence)  # a step of a recurrent network
    if times * xs * len(table) * sequences >= 1 << 62:
        raise IrregularError
    n, t, x = (table - low).T
    frame, count = _by_appearance(t * xs + x, times * xs)
    of_sequence, number = _by_appearance(frame * sequences + n, count * sequences)
    if number < len(table):
        # Several rows of a sequence at a time are of as many frames.
        order = np.argsort(of_sequence, kind="stable")
        is_new = np.append(True, np.diff(of_sequence[order]) != 0)
        places = np.arange(len(table))
        copy = np.empty_like(places)
        copy[order] = places - np.maximum.accumulate(np.where(is_new, places, 0))
        copies = int(copy.max()) + 1
        frame, _ = _by_appearance(frame * copies + copy, count * copies)
    return sequence, frame


def _by_appearance(codes: Ints, bound: int) -> tuple[Ints, int]:
    """Numbers codes from 0 up to a bound as they appear; returns the numbers, and how many."""
    if bound > _FEW_PER_ROW * len(codes) + _FEW:
        _, codes = np.unique(codes, return_inverse=True)
        codes = codes.ravel()
        bound = int(codes.max()) + 1
    first = np.full(bound, len(codes))
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the first of equal ones is written last
    used = np.flatnonzero(first < len(codes))
    number = np.empty(bound, dtype=np.int64)
    number[used[np.argsort(first[used])]] = np.arange(len(used))
    return number[codes], len(used)
