"""BitLayout: a set of (pattern, t, x) as the bits of one Python integer.

A set of indexes inside a box is an integer with one bit for each index. t varies fastest, then x,
then the pattern (which stands for all sequences that have it). A move by (t, x) is then one shift
of the integer, a union `|`, an intersection `&`: a few hundred nanoseconds for a whole node.

Between rows (of one pattern and x) and between patterns there is a guard: room for the bits that a
move takes out of the box, so that they cannot reach another row. Bits in a guard are masked away.

A hull is a box of (t, x) around such a set; its bounds may be infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation import RequestError
from nnet3_computation.arrays import Bools
from nnet3_descriptors.indexes import INT32_MAX, LEAST_TIME, IndexArray, N, T, X, distinct

INFINITY = math.inf


class Hull(NamedTuple):
    """All (t, x) with t_first <= t <= t_last and x_first <= x <= x_last; bounds may be infinite."""

    t_first: float
    t_last: float
    x_first: float
    x_last: float

    def shifted(self, t: float, x: float) -> Hull:
        """Returns the hull moved by (t, x)."""
        if t == 0 and x == 0:
            return self
        return Hull(self.t_first + t, self.t_last + t, self.x_first + x, self.x_last + x)

    def extended(self, t: float, x: float) -> Hull:
        """Returns the hull with t more on either side in t, and x more in x."""
        return Hull(self.t_first - t, self.t_last + t, self.x_first - x, self.x_last + x)

    def __bool__(self) -> bool:
        """Whether there is anything inside."""
        return self.t_first <= self.t_last and self.x_first <= self.x_last

    @property
    def is_finite(self) -> bool:
        """Whether no bound is infinite; the empty hull is not."""
        t_first, t_last, x_first, x_last = self
        return -INFINITY < t_first <= t_last < INFINITY and -INFINITY < x_first <= x_last < INFINITY


NOWHERE = Hull(INFINITY, -INFINITY, INFINITY, -INFINITY)
EVERYWHERE = Hull(-INFINITY, INFINITY, -INFINITY, INFINITY)


def check_rows_exist(hull: Hull) -> None:
    """Raises a RequestError if a hull reaches beyond the t and x that a row can have."""
    for what, first, last in (
        ("t", hull.t_first, hull.t_last),
        ("x", hull.x_first, hull.x_last),
    ):
        far = first if first < LEAST_TIME else last
        if not LEAST_TIME <= far <= INT32_MAX:
            raise RequestError(
                f"the outputs need rows as far as {what} = {int(far)}; "
                f"expected {what} from {LEAST_TIME} to {INT32_MAX}"
            )


def join(first: Hull, second: Hull) -> Hull:
    """Returns the smallest hull that contains both."""
    if first is second:
        return first
    a_first, a_last, a_x_first, a_x_last = first
    b_first, b_last, b_x_first, b_x_last = second
    return Hull(
        a_first if a_first < b_first else b_first,
        a_last if a_last > b_last else b_last,
        a_x_first if a_x_first < b_x_first else b_x_first,
        a_x_last if a_x_last > b_x_last else b_x_last,
    )


def meet(first: Hull, second: Hull) -> Hull:
    """Returns the intersection of both; NOWHERE if it is empty."""
    a_first, a_last, a_x_first, a_x_last = first
    b_first, b_last, b_x_first, b_x_last = second
    t_first = a_first if a_first > b_first else b_first
    t_last = a_last if a_last < b_last else b_last
    x_first = a_x_first if a_x_first > b_x_first else b_x_first
    x_last = a_x_last if a_x_last < b_x_last else b_x_last
    if t_first > t_last or x_first > x_last:
        return NOWHERE
    return Hull(t_first, t_last, x_first, x_last)


def join_all(hulls: Iterable[Hull]) -> Hull:
    """Returns the smallest hull that contains all of them."""
    columns = list(zip(*hulls, strict=True))
    if not columns:
        return NOWHERE
    t_first, t_last, x_first, x_last = columns
    return Hull(min(t_first), max(t_last), min(x_first), max(x_last))


def widened(old: Hull, new: Hull) -> Hull:
    """Returns `new` with each bound that lies beyond that of `old` moved to infinity."""
    return Hull(
        -INFINITY if new[0] < old[0] else new[0],
        INFINITY if new[1] > old[1] else new[1],
        -INFINITY if new[2] < old[2] else new[2],
        INFINITY if new[3] > old[3] else new[3],
    )


def hull_of(indexes: IndexArray) -> Hull:
    """Returns the hull of (N, 3) indexes."""
    if not len(indexes):
        return NOWHERE
    times, extras = indexes[:, T], indexes[:, X]
    return Hull(int(times.min()), int(times.max()), int(extras.min()), int(extras.max()))


Bits = int
"""A set of indexes in some layout."""

_DENSE = 1 << 20
"""Tables with at most this many entries are always made."""
_MOST_MASK_BITS = 1 << 28
"""Bits that the masks of all residues of a modulus may keep; larger ones are made for each use."""
_FEW_RESIDUES = 16
"""Up to this many residues, all are tried; with more, the occurring ones are found first."""
_ENTRIES_PER_ROW = 64
"""The most entries of a larger table for each row asked about."""


@attrs.frozen(kw_only=True)
class BitLayout:
    """The box whose indexes the bits of an integer stand for, and where each has its bit.

    Attributes:
        t_first: the smallest t.
        num_t: number of values of t.
        x_first: the smallest x.
        num_x: number of values of x.
        num_patterns: number of patterns.
        t_guard: the largest move in t. Moves of num_t or more lead out of the box anyway.
        x_guard: the same for x.
    """

    t_first: int
    num_t: int
    x_first: int
    num_x: int
    num_patterns: int
    t_guard: int
    x_guard: int
    row: int = attrs.field(init=False)
    """Bits from one row to the next: the shift for a move by 1 in x."""
    pattern: int = attrs.field(init=False)
    """Bits from one pattern to the next."""
    _row_starts: Bits = attrs.field(init=False, repr=False)
    _masks: dict[tuple[float, ...], Bits] = attrs.field(factory=dict, init=False, repr=False)

    @row.default
    def _bits_of_row(self) -> int:
        return self.num_t + self.t_guard

    @pattern.default
    def _bits_of_pattern(self) -> int:
        return self.row * (self.num_x + self.x_guard)

    @_row_starts.default
    def _first_bits_of_rows(self) -> Bits:
        return repeated(repeated(1, self.row, self.num_x), self.pattern, self.num_patterns)

    @property
    def num_bits(self) -> int:
        """Bits that a set takes, guards included."""
        return self.pattern * self.num_patterns

    @property
    def hull(self) -> Hull:
        """All of the box."""
        t_last, x_last = self.t_first + self.num_t - 1, self.x_first + self.num_x - 1
        return Hull(self.t_first, t_last, self.x_first, x_last)

    def hull_of(self, bits: Bits) -> Hull:
        """Returns the hull of a set."""
        if not bits:
            return NOWHERE
        if self.num_x == 1 and self.num_patterns == 1:
            t_first = self.t_first + (bits & -bits).bit_length() - 1
            t_last = self.t_first + bits.bit_length() - 1
            return Hull(t_first, t_last, self.x_first, self.x_first)
        return hull_of(self.indexes(bits))

    # -- masks ---------------------------------------------------------------------------------

    def box(self, hull: Hull) -> Bits:
        """Returns the indexes of the layout that lie in a hull."""
        mask = self._masks.get(hull)
        if mask is None:
            mask = self._masks[hull] = self._make_box(hull)
        return mask

    def _make_box(self, hull: Hull) -> Bits:
        if not hull:
            return 0
        t_first = int(max(hull.t_first - self.t_first, 0))
        t_end = int(min(hull.t_last - self.t_first + 1, self.num_t))
        x_first = int(max(hull.x_first - self.x_first, 0))
        x_end = int(min(hull.x_last - self.x_first + 1, self.num_x))
        if t_first >= t_end or x_first >= x_end:
            return 0
        times = ((1 << (t_end - t_first)) - 1) << t_first
        rows = repeated(times, self.row, x_end - x_first) << (x_first * self.row)
        return repeated(rows, self.pattern, self.num_patterns)

    def residue(self, modulus: int, residue: int) -> Bits:
        """Returns the indexes with t = residue modulo modulus."""
        key = (modulus, residue)
        mask = self._masks.get(key)
        if mask is None:
            first = (residue - self.t_first) % modulus
            count = (self.num_t - first + modulus - 1) // modulus
            times = repeated(1, modulus, count) << first if count > 0 else 0
            mask = times * self._row_starts
            if modulus * self.num_bits <= _MOST_MASK_BITS:
                self._masks[key] = mask
        return mask

    def residues(self, modulus: int, bits: Bits) -> Iterable[int]:
        """Returns the residues modulo modulus of the values of t in a set, and maybe some more."""
        if modulus > _FEW_RESIDUES:
            occurring: list[int] = distinct(self.indexes(bits)[:, T] % modulus).tolist()
            return occurring
        if self.num_t >= modulus:
            return range(modulus)
        return ((self.t_first + i) % modulus for i in range(self.num_t))

    # -- moves ---------------------------------------------------------------------------------

    def at_t(self, bits: Bits, t: int) -> Bits:
        """Returns all indexes of the rows in which the index with that t is in the set."""
        offset = t - self.t_first
        if not 0 <= offset < self.num_t:
            return 0
        return ((bits >> offset) & self._row_starts) * ((1 << self.num_t) - 1)

    def to_t(self, bits: Bits, t: int) -> Bits:
        """Returns, for each row with any index in the set, the row's index with that t."""
        offset = t - self.t_first
        if not 0 <= offset < self.num_t:
            return 0
        return (smeared_down(bits, self.num_t) & self._row_starts) << offset

    def at_x(self, bits: Bits, x: int) -> Bits:
        """Copies the row with that x to every row of its pattern."""
        offset = x - self.x_first
        if not 0 <= offset < self.num_x:
            return 0
        picked = (bits >> (offset * self.row)) & self._first_rows
        return repeated(picked, self.row, self.num_x)

    def to_x(self, bits: Bits, x: int) -> Bits:
        """Returns, in the row with that x, each t that any row of the pattern has."""
        offset = x - self.x_first
        if not 0 <= offset < self.num_x:
            return 0
        folded = bits
        for row in range(1, self.num_x):
            folded |= bits >> (row * self.row)
        return (folded & self._first_rows) << (offset * self.row)

    @property
    def _first_rows(self) -> Bits:
        return repeated((1 << self.num_t) - 1, self.pattern, self.num_patterns)

    def clamped(self, offsets: range) -> range:
        """Returns the offsets in t, of ascending ones, that do not lead out of the box at once."""
        limit, step = self.num_t - 1, offsets.step
        skipped = max(0, -((limit + offsets.start) // step)) if offsets else 0
        start = offsets.start + skipped * step
        return range(start, min(offsets.stop, limit + 1), step)

    # -- arrays --------------------------------------------------------------------------------

    def table(self, bits: Bits) -> Bools:
        """Returns a set as a boolean table of shape (patterns, x, t)."""
        flat = np.frombuffer(bits.to_bytes((self.num_bits + 7) // 8, "little"), dtype=np.uint8)
        unpacked = np.unpackbits(flat, count=self.num_bits, bitorder="little")
        shape = (self.num_patterns, self.num_x + self.x_guard, self.row)
        return unpacked.view(np.bool_).reshape(shape)[:, : self.num_x, : self.num_t]

    def bits(self, table: Bools) -> Bits:
        """The inverse of `table`."""
        shape = (self.num_patterns, self.num_x + self.x_guard, self.row)
        padded = np.zeros(shape, dtype=np.bool_)
        padded[:, : self.num_x, : self.num_t] = table
        return int.from_bytes(np.packbits(padded, bitorder="little").tobytes(), "little")

    def indexes(self, bits: Bits) -> IndexArray:
        """Returns the indexes of a set, with the pattern as n, in no special order."""
        if is_table_worthwhile(self.num_bits, bits.bit_count()):
            pattern, x, t = np.nonzero(self.table(bits))
        else:
            found = self.indexes_at(_bit_numbers(bits))
            return found[self.inside(found)]
        columns = (pattern, t + self.t_first, x + self.x_first)
        return np.stack(columns, axis=1).astype(np.int32)

    def indexes_at(self, numbers: npt.NDArray[np.int64]) -> IndexArray:
        """Returns the (K, 3) indexes of the bits of (K,) numbers, with the pattern as n."""
        pattern, rest = np.divmod(numbers, self.pattern)
        x, t = np.divmod(rest, self.row)
        columns = (pattern, t + self.t_first, x + self.x_first)
        return np.stack(columns, axis=1).astype(np.int32)

    def inside(self, indexes: IndexArray) -> Bools:
        """Tells which of (K, 3) indexes (n: the pattern) lie in the layout."""
        t, x = indexes[:, T], indexes[:, X]
        in_t = (t >= self.t_first) & (t < self.t_first + self.num_t)
        return in_t & (x >= self.x_first) & (x < self.x_first + self.num_x)

    def contains(self, bits: Bits, indexes: IndexArray) -> Bools:
        """Tells which of (K, 3) indexes (n: the pattern) are in a set."""
        found = self.inside(indexes)
        kept = indexes[found]
        if is_table_worthwhile(self.num_bits, len(kept)):
            table = self.table(bits)
            found[found] = table[kept[:, N], kept[:, X] - self.x_first, kept[:, T] - self.t_first]
        else:
            numbers = self._numbers_of(kept)
            data = np.frombuffer(bits.to_bytes(self.num_bits // 8 + 1, "little"), dtype=np.uint8)
            found[found] = (data[numbers >> 3] >> (numbers & 7).astype(np.uint8)) & 1
        return found

    def _numbers_of(self, indexes: IndexArray) -> npt.NDArray[np.int64]:
        """Returns the bit of each of (K, 3) indexes that lie in the layout."""
        n, t, x = indexes.astype(np.int64).T
        numbers: npt.NDArray[np.int64] = n * self.pattern + (x - self.x_first) * self.row
        numbers += t - self.t_first
        return numbers

    def set_of(self, indexes: IndexArray) -> Bits:
        """Returns those of (K, 3) indexes (n: the pattern) that lie in the layout."""
        if not len(indexes):
            return 0
        kept = indexes[self.inside(indexes)]
        if not is_table_worthwhile(self.num_bits, len(kept)):
            return _bits_at(self._numbers_of(kept))
        table = np.zeros((self.num_patterns, self.num_x, self.num_t), dtype=np.bool_)
        table[kept[:, N], kept[:, X] - self.x_first, kept[:, T] - self.t_first] = True
        return self.bits(table)


def is_table_worthwhile(entries: int, rows: int) -> bool:
    """Tells whether a table of a whole box costs no more than a search for some of its rows."""
    return entries <= max(_DENSE, _ENTRIES_PER_ROW * rows)


def _bit_numbers(bits: Bits) -> npt.NDArray[np.int64]:
    """Returns the numbers of the bits that are set, ascending."""
    data = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), dtype=np.uint8)
    some = np.flatnonzero(data != 0)
    byte, bit = np.nonzero(np.unpackbits(data[some, None], axis=1, bitorder="little"))
    numbers: npt.NDArray[np.int64] = some[byte] * 8 + bit
    return numbers


def _bits_at(numbers: npt.NDArray[np.int64]) -> Bits:
    """Returns the set of the bits of some numbers: the inverse of `_bit_numbers`."""
    numbers = distinct(numbers)
    if not len(numbers):
        return 0
    data = np.zeros(int(numbers[-1]) // 8 + 1, dtype=np.uint8)
    first = np.flatnonzero(np.diff(numbers >> 3, prepend=-1))
    values = np.left_shift(np.uint8(1), (numbers & 7).astype(np.uint8))
    data[numbers[first] >> 3] = np.bitwise_or.reduceat(values, first)
    return int.from_bytes(data.tobytes(), "little")


def change_layout(bits: Bits, old: BitLayout, new: BitLayout) -> Bits:
    """Returns a set of one layout as a set of another, which has the same patterns.

    Rows outside of the new layout are left out.
    """
    if not bits or old is new:
        return bits
    if old.num_patterns == 1 and old.num_x == new.num_x == 1 and old.x_first == new.x_first:
        move = old.t_first - new.t_first
        return (bits << move if move >= 0 else bits >> -move) & new.box(new.hull)
    return new.set_of(old.indexes(bits))


def repeated(bits: Bits, distance: int, count: int) -> Bits:
    """Returns `count` copies of a pattern, `distance` bits apart."""
    done, copies = 1, bits
    while done < count:
        more = min(done, count - done)
        copies |= copies << (more * distance)
        done += more
    return copies if count > 0 else 0


def smeared_down(bits: Bits, count: int) -> Bits:
    """Returns the union of the set moved down by 0, 1, ... count - 1."""
    done, smeared = 1, bits
    while done < count:
        more = min(done, count - done)
        smeared |= smeared >> more
        done += more
    return smeared


def moved_over(bits: Bits, offsets: range) -> Bits:
    """Returns the union of the set moved by each of the ascending offsets."""
    if not offsets or not bits:
        return 0
    spread = repeated(bits, offsets.step, len(offsets))
    return spread << offsets.start if offsets.start >= 0 else spread >> -offsets.start
