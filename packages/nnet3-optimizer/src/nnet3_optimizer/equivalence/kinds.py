"""One sequence of each kind stands for all of the kind: computations whose sequences differ.

A minibatch may hold sequences with different frames, but mostly of few kinds. Two sequences are
taken to be of one kind if there are as many rows of them in every input and output. In each matrix
row number k of a sequence then belongs to row number k of the first sequence of its kind, and only
the rows of the first ones are followed. What stands for such a row stands for the rows of all
sequences of the kind: each is made of rows of its own sequence in the same way. That is looked at
for each command, and `IrregularError` raised where it is not so; then all rows have to be followed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler.commands import AcceptInput, ProvideOutput
from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.debug_info import N
from nnet3_compiler.declaration import FIRST_OPERAND_COLUMN, OPCODE_COLUMN

from nnet3_optimizer.equivalence.field import PRIME
from nnet3_optimizer.equivalence.pattern import (
    Indexes,
    IrregularError,
    Padding,
    Ranges,
    Rectangle,
    Rectangles,
    Rows,
    by_submatrix,
)

Ints = npt.NDArray[np.int64]

Kinds = tuple[int, ...]
"""For each sequence the first one of its kind."""

_MANY = 100_000


def sequence_kinds(computation: NnetComputation) -> Kinds | None:
    """Returns the kinds of sequences; None if they are all alike, or all different, or unknown."""
    table, infos = computation.command_table, computation.matrix_debug_info
    is_given = np.isin(table[:, OPCODE_COLUMN], [AcceptInput.OPCODE, ProvideOutput.OPCODE])
    matrices = computation.submatrices[table[is_given, FIRST_OPERAND_COLUMN], 0]
    if not len(matrices) or len(infos) <= matrices.max():
        return None
    of_rows = [infos[matrix].cindexes[:, N] for matrix in matrices.tolist()]
    every = np.concatenate(of_rows)
    if not len(every) or every.min() < 0 or every.max() >= _MANY:
        return None
    number = int(every.max()) + 1
    counts = np.stack([np.bincount(each, minlength=number) for each in of_rows])
    _, first, kind = np.unique(counts, axis=1, return_index=True, return_inverse=True)
    if len(first) in (1, number):
        return None
    kinds: list[int] = first[kind.ravel()].tolist()
    return tuple(kinds)


@attrs.frozen(eq=False, slots=False)
class _Layout:
    """Of which sequences the rows of a matrix are.

    Attributes:
        number: A number of its own.
        sequence: (rows,) the sequence of each row.
        first: (sequences,) the first sequence of each kind.
    """

    number: int
    sequence: Ints
    first: Ints

    @cached_property
    def kept(self) -> Ints:
        """(kept,) the rows that are followed, ascending."""
        kept: Ints = np.flatnonzero(self.sequence == self.first[self.sequence])
        return kept

    @cached_property
    def place(self) -> Ints:
        """(rows,) the place among the rows that are followed of the one that stands for each."""
        sequence, rows = self.sequence, len(self.sequence)
        order = np.argsort(sequence, kind="stable")
        counts = np.bincount(sequence, minlength=len(self.first))
        begin = np.cumsum(counts) - counts
        if (counts != counts[self.first]).any():
            raise IrregularError
        rank = np.empty(rows, dtype=np.int64)
        rank[order] = np.arange(rows) - begin[sequence[order]]
        place = np.full(rows, -1, dtype=np.int64)
        place[self.kept] = np.arange(len(self.kept))
        places: Ints = place[order[begin[self.first[sequence]] + rank]]
        return places

    @cached_property
    def weights(self) -> Ints:
        """(kept,) for how many rows each of them stands."""
        return np.bincount(self.place, minlength=len(self.kept))

    @cached_property
    def changes(self) -> Ints:
        """(rows,) how often the sequence changes from the first row up to each."""
        return np.cumsum(np.diff(self.sequence, prepend=self.sequence[:1]) != 0)


@attrs.frozen(eq=False, slots=False)
class _Part:
    """The rows of a submatrix.

    Attributes:
        layout: The layout of its matrix.
        row: Its first row.
        rows: The number of its rows.
        begin, end: The range of those of the kept rows of the layout that are in it.
        order: A positive number for the sequences of its rows, in their order.
    """

    layout: _Layout
    row: int
    rows: int
    begin: int
    end: int
    order: int

    @classmethod
    def of(cls, layout: _Layout, row: int, rows: int, number: Callable[[Hashable], int]) -> _Part:
        """Returns the fewest rows that hold these and all that are like them.

        Raises:
            IrregularError: There are others in between.
        """
        begin = end = 0
        if rows:
            place = layout.place[row : row + rows]
            begin, end = int(place.min()), int(place.max()) + 1
            alike = np.flatnonzero((layout.place >= begin) & (layout.place < end))
            row, rows = int(alike[0]), int(alike[-1] + 1 - alike[0])
            if int(layout.weights[begin:end].sum()) != rows:
                raise IrregularError
        order = 1 + number(("order", layout.sequence[row : row + rows].tobytes()))
        return cls(layout, row, rows, begin, end, order)

    @cached_property
    def weights(self) -> list[int]:
        """For how many rows each kept row stands."""
        weights: list[int] = self.layout.weights[self.begin : self.end].tolist()
        return weights

    @property
    def place(self) -> Ints:
        """(rows,) the place, among those kept, of the row that stands for each."""
        return self.layout.place[self.row : self.row + self.rows] - self.begin

    @property
    def changes(self) -> Ints:
        """(rows,) how often the sequence changes from some row up to each."""
        return self.layout.changes[self.row : self.row + self.rows]

    @property
    def sequence(self) -> Ints:
        """(rows,) the sequence of each row."""
        return self.layout.sequence[self.row : self.row + self.rows]

    def reduced(self, values: Ints) -> Ints:
        """Returns what is given for each row, for those kept; it must say the same of all."""
        kept = values[self.layout.kept[self.begin : self.end] - self.row]
        if (kept[self.place] != values).any():
            raise IrregularError
        return kept

    def places_of(self, rows: Indexes, sequence: Ints) -> Ints:
        """Returns the kept rows that stand for rows, -1 for none, each to be of a sequence."""
        is_row = rows >= 0
        at = self.row + rows[is_row]
        if (rows >= self.rows).any() or (self.layout.sequence[at] != sequence[is_row]).any():
            raise IrregularError
        places = np.full(len(rows), -1, dtype=np.int64)
        places[is_row] = self.layout.place[at] - self.begin
        return places


class KindsPattern:
    """The rows of the first sequence of each kind, in the place of a `Pattern`.

    Attributes:
        sequences: The number of sequences.
        matrix_rows, matrix_cols: The rows and columns of each matrix.
        submatrices: The submatrices.
        blocks: A number for the sequences of the rows of each submatrix: equal if they are the same
            in the same order.
        padding: How many rows before and after it are followed besides, for each submatrix that
            does not hold all sequences of a kind alike.
        parts: Empty.
    """

    def __init__(
        self, computation: NnetComputation, kinds: Kinds, number: Callable[[Hashable], int]
    ) -> None:
        """Prepares the rows.

        Args:
            computation: The computation.
            kinds: The kinds of its sequences.
            number: Gives equal values, and no others, the same number.

        Raises:
            IrregularError: A submatrix does not hold all sequences of a kind alike.
        """
        self.sequences = len(kinds)
        self.padding: dict[int, Padding] = {}
        self.parts: dict[int, tuple[int, int]] = {}
        self._computation = computation
        first = np.array(kinds, dtype=np.int64)
        layouts = self._layouts(first)
        self.matrix_rows: list[int] = [len(layout.kept) for layout in layouts]
        self.matrix_cols: list[int] = computation.matrices[:, 1].tolist()
        known: dict[tuple[int, int, int], _Part] = {}
        self._part_of: list[_Part] = []
        places: list[Rectangle] = []
        for matrix, row, rows, col, cols in computation.submatrices.tolist():
            key = layouts[matrix].number, row, rows
            if key not in known:
                known[key] = _Part.of(layouts[matrix], row, rows, number)
            part = known[key]
            before = row - part.row
            if before or part.rows != rows:
                self.padding[len(self._part_of)] = before, part.rows - rows - before
            self._part_of.append(part)
            places.append((matrix, part.begin, part.end - part.begin, col, cols))
        self.submatrices = Rectangles(np.array(places))
        self.blocks: list[int] = [part.order for part in self._part_of]
        self._rows: dict[tuple[int, int, int], Rows] = {}
        self._pairs: dict[tuple[int, int], tuple[list[int], Rows]] = {}
        self._ranges: dict[tuple[int, int, int], Ranges] = {}

    def _layouts(self, first: Ints) -> list[_Layout]:
        """Returns the layout of each matrix: few, of thousands of matrices."""
        infos = self._computation.matrix_debug_info
        found: dict[bytes, _Layout] = {}
        layouts = []
        for matrix, (rows, _) in enumerate(self._computation.matrices.tolist()):
            sequence = infos[matrix].cindexes[:, N] if matrix < len(infos) else np.zeros(0, int)
            if len(sequence) != rows or (
                rows and not 0 <= sequence.min() <= sequence.max() < len(first)
            ):
                raise IrregularError
            key = sequence.tobytes()
            if key not in found:
                found[key] = _Layout(len(found), sequence.astype(np.int64), first)
            layouts.append(found[key])
        return layouts

    def blocks_of_single_rows(self) -> list[int]:
        """Returns for each submatrix its block if a single row is followed, 0 if not."""
        return [
            part.order if part.end - part.begin == 1 and submatrix not in self.padding else 0
            for submatrix, part in enumerate(self._part_of)
        ]

    def require_regular(self, submatrix: int) -> None:
        """Raises an IrregularError unless a submatrix holds all sequences of a kind alike."""
        if submatrix in self.padding:
            raise IrregularError

    def padded_rows(self, submatrix: int) -> list[int]:
        """Returns the rows of the pattern that a submatrix lacks for some sequences."""
        (before, after), part = self.padding[submatrix], self._part_of[submatrix]
        lacking = np.concatenate([part.place[:before], part.place[part.rows - after :]])
        found: list[int] = np.unique(lacking).tolist()
        return found

    def total(self, contributions: Sequence[int], submatrix: int) -> int:
        """Returns the sum over the rows of all sequences, or the one of all rows together."""
        part = self._part_of[submatrix]
        if len(contributions) != part.end - part.begin:
            return sum(contributions) % PRIME
        products = zip(contributions, part.weights, strict=True)
        return sum([value * weight for value, weight in products]) % PRIME

    # -- lists of rows -------------------------------------------------------------------------

    def rows(self, number: int, target: int, source: int) -> Rows:
        """Returns `indexes[number]`: for each row of a submatrix one of another, or -1."""
        key = number, target, source
        if key not in self._rows:
            rows = self._padded(self._computation.indexes[number], target)
            self._rows[key] = self.reduced_rows(rows, target, source).tolist()
        return self._rows[key]

    def gathers(self, number: int, target: int) -> list[tuple[int, Rows, Rows]]:
        """Returns `indexes_multi[number]` by submatrix: the rows named, and their places."""
        key = number, target
        if key not in self._pairs:
            part = self._part_of[target]
            pairs = self._computation.indexes_multi[number].T
            submatrix, rows = (self._padded(each, target) for each in pairs)
            places = np.full(len(rows), -1, dtype=np.int64)
            for each in np.unique(submatrix[submatrix > 0]).tolist():
                here = submatrix == each
                places[here] = self._part_of[each].places_of(rows[here], part.sequence[here])
            self._pairs[key] = part.reduced(submatrix).tolist(), part.reduced(places).tolist()
        return by_submatrix(*self._pairs[key])

    def scatters(self, number: int, source: int) -> list[tuple[int, Rows, Rows]]:
        """Returns the same list where rows go to submatrices: places in it, and the rows."""
        return [(each, places, rows) for each, rows, places in self.gathers(number, source)]

    def ranges(self, number: int, target: int, source: int) -> Ranges:
        """Returns `indexes_ranges[number]`: for each row of a submatrix begin and end."""
        key = number, target, source
        if key not in self._ranges:
            table = self._computation.indexes_ranges[number].T
            begin, end = (self._padded(each, target) for each in table)
            reduced = self.reduced_ranges(begin, end, target, source)
            self._ranges[key] = list(zip(*reduced.T.tolist(), strict=True))
        return self._ranges[key]

    def _padded(self, values: Indexes, submatrix: int) -> Ints:
        """Returns a list with -1 for the rows that are followed besides those of a submatrix."""
        padding = self.padding.get(submatrix, (0, 0))
        if len(values) + sum(padding) != self._part_of[submatrix].rows:
            raise IrregularError
        return np.pad(values.astype(np.int64), padding, constant_values=-1)

    def reduced_rows(self, rows: Indexes, target: int, source: int) -> Ints:
        """Returns kept rows of one submatrix, given for each row of another."""
        part = self._part_of[target]
        if len(rows) != part.rows:
            raise IrregularError
        return part.reduced(self._part_of[source].places_of(rows, part.sequence))

    def reduced_ranges(self, begin: Indexes, end: Indexes, target: int, source: int) -> Ints:
        """Returns ranges of kept rows of one submatrix, given for each of another: (rows, 2)."""
        changes = self._part_of[source].changes
        is_range = end > begin
        if (begin < -1).any() or (end > len(changes)).any():
            raise IrregularError
        if (changes[begin[is_range]] != changes[end[is_range] - 1]).any():
            raise IrregularError
        first = self.reduced_rows(np.where(is_range, begin, -1), target, source)
        length = self._part_of[target].reduced(np.where(is_range, end - begin, 0))
        return np.stack([first, first + length], axis=1)
