"""What the rows of matrices are of: sequence n, time t and x, as the debug info has them.

Networks do the same with all sequences, and at all times. So most rows of a matrix are the same but
for where they are: row (n, t, x) of an input is an unknown times the label b^n a^t c^x, with a, b
and c random elements of the field, and the coefficient, the unknown, is the same for all of them.
A function gives for rows with equal coefficients the same coefficient again. That way rows are
followed by the classes of those that have the same coefficients; mostly there is one, and some for
what is near the ends of sequences.

A row that comes from another time of its sequence brings the power of a by which their labels
differ. What comes from one time to many (an i-vector) has for each row another power. It is kept as
an absolute coefficient, that is times a marker, which stands for the power of a that takes the
time of the row away.

The element of a row is a function of its coefficients and its label; so whatever the labels are,
rows with equal coefficients and labels are equal, as long as unknown rows that differ have labels
that do. Wrong labels only make equal rows look different.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler.debug_info import MatrixDebugInfo, N

from nnet3_optimizer.equivalence.field import PRIME
from nnet3_optimizer.equivalence.known_arrays import KnownArrays, near_times, without_nodes
from nnet3_optimizer.equivalence.pattern import IrregularError

if TYPE_CHECKING:
    from nnet3_compiler.arrays import IntArray

    from nnet3_optimizer.equivalence.moves import Moves

Ints = npt.NDArray[np.int64]

MARKER = 0xA0761D6478BD642FE7037ED1A0B428DB
"""Stands for the power of `_TIME` that takes the time of a row away: a random element."""

_TIME = 0x589965CC75374CC31D8E4E27C4F5A9B3
_SEQUENCE = 0xEB44ACCAB455D165C6BC279692B5CC83
_X = 0x8EBC6AF09C88C6E3A4093822299F31D0
_COPY = 0x082EFA98EC4E6C89452821E638D01377
"""Random elements: what a step in t, n, x and the number of a copy multiplies a label by."""

_SPAN, _FEW_X = 1 << 20, 1 << 9
"""No n or copy is as large as the one, no x as large as the other."""


_PER_ROW = 16
"""Codes up to so many for each row are looked up in a table, not sorted."""

_LIMB = 32
"""Sums of fewer than 2**20 numbers of so many bits are exact as floats."""


@lru_cache(maxsize=65536)
def time_shift(steps: int) -> int:
    """Returns the element that a label is multiplied by so many steps later."""
    return pow(_TIME, steps, PRIME)


@lru_cache(maxsize=65536)
def _label(n: int, x: int, copy: int) -> int:
    return pow(_SEQUENCE, n, PRIME) * pow(_X, x, PRIME) * pow(_COPY, copy, PRIME) % PRIME


@attrs.frozen(eq=False, slots=False)
class Labels:
    """What some rows are of.

    Attributes:
        number: The same for equal labels, and for no others.
        table: (rows, 4) int64, the n, t and x of each row, and how many rows of the matrix before
            it have the same.
    """

    number: int
    table: Ints

    @cached_property
    def times(self) -> Ints:
        """(rows,) int64."""
        return np.ascontiguousarray(self.table[:, 1])

    @cached_property
    def sequences(self) -> Ints:
        """(rows,) int64, a number for all but the time."""
        n, _, x, copy = self.table.T
        numbers: Ints = (n * _SPAN + x) * _SPAN + copy
        return numbers

    @cached_property
    def elements(self) -> list[int]:
        """The label of each row."""
        parts, places = self._of_sequences
        times = self.times.tolist()
        return [
            parts[place] * time_shift(t) % PRIME
            for place, t in zip(places.tolist(), times, strict=True)
        ]

    @cached_property
    def _of_sequences(self) -> tuple[list[int], Ints]:
        """The parts of labels that do not depend on the time, and the place of that of each row."""
        _, first, places = np.unique(self.sequences, return_index=True, return_inverse=True)
        return [_label(*row) for row in self.table[first][:, [0, 2, 3]].tolist()], places.ravel()

    @cached_property
    def _limbs_of_times(self) -> list[npt.NDArray[np.float64]]:
        """The parts of labels that depend on the time, by 32 bits each, lowest first."""
        times, places = np.unique(self.times, return_inverse=True)
        data = b"".join(time_shift(t).to_bytes(16, "little") for t in times.tolist())
        limbs = np.frombuffer(data, dtype="<u4").reshape(-1, 128 // _LIMB).T.astype(np.float64)
        return list(limbs[:, places.ravel()])

    @cached_property
    def total(self) -> int:
        """The sum of all labels."""
        return self.totals(None, 1)[0]

    def totals(self, classes: Ints | None, count: int) -> list[int]:
        """Returns the sum of the labels of the rows of each class, of so many."""
        parts, codes = self._of_sequences
        number = len(parts)
        if count * number > len(codes):
            return self._totals_of_few(np.zeros_like(codes) if classes is None else classes, count)
        if classes is not None:
            codes = classes * number + codes
        limbs = self._limbs_of_times
        sums = [np.bincount(codes, limb, count * number).astype(np.int64) for limb in limbs]
        found = np.flatnonzero(np.any(sums, axis=0))
        totals = [0] * count
        values = [each[found].tolist() for each in sums]
        for code, *limbs_of in zip(found.tolist(), *values, strict=True):
            value = sum([part << _LIMB * place for place, part in enumerate(limbs_of)])
            totals[code // number] += value * parts[code % number]
        return [total % PRIME for total in totals]

    def _totals_of_few(self, classes: Ints, count: int) -> list[int]:
        """The same, row by row: where there are hardly more rows than classes and sequences."""
        totals = [0] * count
        for each, element in zip(classes.tolist(), self.elements, strict=True):
            totals[each] += element
        return [total % PRIME for total in totals]


class KnownLabels:
    """Labels that have been seen so far, in computations to be compared."""

    def __init__(self) -> None:
        self._count = 0
        self._of_table = KnownArrays[Labels]()
        self._of_cindexes = KnownArrays[Labels]()
        self._of_part: dict[tuple[int, int, int], Labels] = {}
        self._of_info: dict[int, tuple[MatrixDebugInfo, Labels]] = {}
        self.moves = defaultdict[tuple[int, int], KnownArrays["Moves"]](KnownArrays)
        """What lists of rows say of rows of some labels that go to rows of others, by numbers."""

    def of_table(self, table: Ints) -> Labels:
        """Returns the labels of a table: for equal tables the same ones."""

        def new() -> Labels:
            self._count += 1
            return Labels(self._count, table)

        return self._of_table.get(table.T, new)

    def of_part(self, whole: Labels, row: int, rows: int) -> Labels:
        """Returns some of the labels of a matrix."""
        key = whole.number, row, rows
        if key not in self._of_part:
            self._of_part[key] = self.of_table(whole.table[row : row + rows])
        return self._of_part[key]

    def of_info(self, info: MatrixDebugInfo) -> Labels:
        """Returns the labels of the rows of a matrix.

        Raises:
            IrregularError: There are too many rows, or numbers that are too large.
        """
        found = self._of_info.get(id(info))
        if found is None:
            labels = self._of_cindexes.get(
                without_nodes(info.cindexes), lambda: self.of_table(_with_copies(info.cindexes))
            )
            # It is kept, so that its id stays its own.
            found = self._of_info[id(info)] = info, labels
        return found[1]


def _with_copies(cindexes: IntArray) -> Ints:
    """Returns n, t and x of cindexes, and for each row how many before it are the same.

    Raises:
        IrregularError: There are too many rows, or numbers that are too large.
    """
    table = np.zeros((len(cindexes), 4), dtype=np.int64)
    table[:, :3] = cindexes[:, N:]
    if len(table):
        n, t, x, copies = table.T
        if len(table) >= _SPAN or np.abs(n).max() >= _SPAN or np.abs(x).max() >= _FEW_X:
            raise IrregularError
        codes, places = _repeated(n, near_times(t), x)
        order = np.argsort(codes, kind="stable")
        is_new = np.append(True, np.diff(codes[order]) != 0)[: len(codes)]
        ranks = np.arange(len(codes))
        copies[places[order]] = ranks - np.maximum.accumulate(np.where(is_new, ranks, 0))
    return table


def _repeated(*columns: Ints) -> tuple[Ints, Ints]:
    """Returns numbers for rows, and which rows these are: those there repeatedly, or all."""
    codes = np.zeros_like(columns[0])
    for column in columns:
        low = column.min()
        codes = codes * (column.max() - low + 1) + column - low
    bound = int(codes.max()) + 1
    if bound > _PER_ROW * len(codes):
        return codes, np.arange(len(codes))
    places = np.flatnonzero((np.bincount(codes) > 1)[codes])
    return codes[places], places
