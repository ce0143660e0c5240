"""The frames of all matrices of a computation, and the lists of rows as lists of frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from nnet3_compiler.computation import NnetComputation

from nnet3_optimizer.equivalence.described_pattern import DescribedPattern
from nnet3_optimizer.equivalence.field import PRIME
from nnet3_optimizer.equivalence.frames import ITEM, Ints, KnownFrames, Layout, Part, inverse
from nnet3_optimizer.equivalence.mixture import Mixture
from nnet3_optimizer.equivalence.pattern import Indexes, IrregularError, Rectangles, Rows

Term = tuple[int, int, int]
"""A frame that rows go to, the one that they come from, and what its element is multiplied by."""


class FramesPattern(DescribedPattern):
    """Rows that stand for frames.

    Attributes:
        matrix_rows: The frames of each matrix.
        submatrices: The submatrices; the rows are frames.
        blocks: The number of the part of each.
        partial: The submatrices that do not have all rows of their frames.
    """

    def __init__(self, computation: NnetComputation, known: KnownFrames) -> None:
        """Prepares the rows.

        Args:
            computation: The computation.
            known: The frames of other computations; its own are added.

        Raises:
            IrregularError: The debug info does not say what the rows of all matrices are of.
        """
        super().__init__(computation)
        self._known = known
        layouts = [known.layout(info.cindexes) for info in self._infos()]
        self._require_rows_of_matrices([len(layout.frame) for layout in layouts])
        self.matrix_rows = [len(layout.sizes) for layout in layouts]
        parts, place = self._different_parts(layouts)
        self.part_of = [parts[each] for each in place.tolist()]
        numbers = np.array([part.number for part in parts])
        self.blocks = numbers[place].tolist()
        is_partial = np.array([bool(part.lacking) for part in parts])
        self.partial: list[int] = np.flatnonzero(is_partial[place]).tolist()
        submatrices = computation.submatrices.copy()
        submatrices[:, 1] = np.array([part.begin for part in parts])[place]
        counts = np.array([len(part.sizes) for part in parts])
        self._count = submatrices[:, 2] = counts[place]
        self.submatrices = Rectangles(submatrices)
        # All parts one after the other, so that lists may name rows of many submatrices.
        heights = np.array([len(part.frame) for part in parts])
        self._height = heights[place]
        self._first_row = (np.cumsum(heights) - heights)[place]
        self._first_frame = (np.cumsum(counts) - counts)[place]
        self._sequence = np.concatenate([part.sequence for part in parts])
        self._frame = np.concatenate([part.frame for part in parts])
        self._size = np.concatenate([part.sizes for part in parts])

    def _different_parts(self, layouts: list[Layout]) -> tuple[list[Part], Ints]:
        """Returns the parts that there are, and the place there of that of each submatrix."""
        numbers = np.array([layout.number for layout in layouts])
        matrix, row, rows = self._computation.submatrices[:, :3].astype(np.int64).T
        span = int(self._computation.matrices[:, 0].max()) + 1
        if len(layouts) * span * span >= 1 << 62:
            raise IrregularError
        codes = (numbers[matrix] * span + row) * span + rows
        _, first, place = np.unique(codes, return_index=True, return_inverse=True)
        some = zip(matrix[first].tolist(), row[first].tolist(), rows[first].tolist(), strict=True)
        return [self._known.part(layouts[each], *part) for each, *part in some], place.ravel()

    def blocks_of_single_rows(self) -> list[int]:
        """Returns for each submatrix its block if it is one whole frame, 0 if not."""
        blocks = np.where(self._count == 1, self.blocks, 0)
        blocks[self.partial] = 0
        found: list[int] = blocks.tolist()
        return found

    def total(self, contributions: Sequence[int], submatrix: int) -> int:
        """Returns the sum over the rows of all sequences, or the one of all rows together."""
        weights = self.part_of[submatrix].weights
        if len(contributions) != len(weights):
            return sum(contributions) % PRIME
        total: int = sum([a * b for a, b in zip(contributions, weights, strict=True)])
        return total % PRIME

    # -- lists of rows -------------------------------------------------------------------------

    def rows(self, number: int, target: int, source: int) -> Rows | Mixture:
        """Returns `indexes[number]`: for each frame of a submatrix one of another, or -1."""
        blocks = self.blocks[target], self.blocks[source]
        rows = self._computation.indexes[number]
        return self._known.rows[blocks].get(
            rows, lambda: self._reduced(rows.astype(np.int64), target, source)
        )

    def _reduced(self, rows: Ints, target: int, source: int) -> Rows | Mixture:
        self._require_rows(rows, target)
        places, (rows,) = _where(rows >= 0, rows)
        terms = self._terms(target, places, source, rows)
        return Mixture.of(len(self.part_of[target].sizes), terms)

    def ranges(self, number: int, target: int, source: int) -> Mixture:
        """Returns `indexes_ranges[number]`: for each frame of a submatrix those that are summed."""
        begin, end = self._computation.indexes_ranges[number].T.astype(np.int64)
        self._require_rows(begin, target)
        places, rows = rows_in_ranges(begin, end)
        terms = self._terms(target, places, source, rows)
        found = Mixture.of(len(self.part_of[target].sizes), terms)
        return found if isinstance(found, Mixture) else Mixture(found, [])

    def gathers(self, number: int, target: int) -> list[tuple[int, Rows | Mixture, Rows]]:
        """Returns `indexes_multi[number]` by submatrix: the frames named, and their places."""
        places, submatrix, rows = self._pairs(number, target)
        terms = self._terms(target, places, submatrix, rows, submatrix)
        return _by_key(terms, len(self._size))

    def scatters(self, number: int, source: int) -> list[tuple[int, Rows | Mixture, Rows]]:
        """Returns the same list where rows go to submatrices: frames of it, and their places."""
        places, submatrix, rows = self._pairs(number, source)
        terms = self._terms(submatrix, rows, source, places, submatrix)
        return _by_key(terms, len(self._size))

    def _pairs(self, number: int, submatrix: int) -> tuple[Ints | None, Ints, Ints]:
        """Returns what `indexes_multi[number]` names, and for which rows; None for all of them."""
        named, rows = self._computation.indexes_multi[number].T.astype(np.int64)
        self._require_rows(rows, submatrix)
        places, (named, rows) = _where(named > 0, named, rows)
        return places, named, rows

    def _require_rows(self, values: Ints, submatrix: int) -> None:
        if len(values) != self._height[submatrix]:
            raise IrregularError

    def _rows_of(self, submatrix: int | Ints, rows: Ints | None) -> tuple[Ints, Ints]:
        """Returns frame and sequence of rows of submatrices, None for all of one.

        Raises:
            IrregularError: There are no such rows.
        """
        if rows is None:
            part = self.part_of[submatrix]
            return part.frame, part.sequence
        if len(rows) and (rows.min() < 0 or (rows >= self._height[submatrix]).any()):
            raise IrregularError
        at = self._first_row[submatrix] + rows
        return self._frame[at], self._sequence[at]

    def _terms(
        self,
        target: int | Ints,
        places: Ints | None,
        source: int | Ints,
        rows: Ints | None,
        keys: int | Ints = 0,
    ) -> list[Term]:
        """Returns the frames that frames come from.

        Args:
            target: The submatrix that rows go to, or the one of each row.
            places: Where in it each row goes; None for all places in their order.
            source: The submatrix that rows come from, or the one of each row.
            rows: Where in it each row comes from; None for all rows in their order.
            keys: A number for each row: only those with the same are frames together. That of all
                frames is added so many times to the frames that they go to.

        Raises:
            IrregularError: Rows change their sequence.
        """
        (to, sequence), (of, given) = self._rows_of(target, places), self._rows_of(source, rows)
        if (sequence != given).any():
            raise IrregularError
        count = len(self._size)
        return self._joined(target, keys * count + to, of, sequence)

    def _joined(self, target: int | Ints, to: Ints, of: Ints, sequence: Ints) -> list[Term]:
        """Returns what frames are made of, given the frame, a number and the sequence of rows."""
        if not len(to):
            return []
        codes = to * (int(of.max()) + 1) + of
        if (codes[1:] < codes[:-1]).any():
            order = np.argsort(codes, kind="stable")
            codes, to, of, sequence = codes[order], to[order], of[order], sequence[order]
            target = target if isinstance(target, int) else target[order]
        begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        ends = np.append(begins[1:], len(codes))
        to, of = to[begins], of[begins]
        target = target if isinstance(target, int) else target[begins]
        frame = to % len(self._size)
        sizes = self._size[self._first_frame[target] + frame]
        factors = [1] * len(begins)
        for at in np.flatnonzero(ends - begins < sizes).tolist():
            some = self._known.weight(sequence[begins[at] : ends[at]].tobytes())
            part = self.part_of[target if isinstance(target, int) else target[at]]
            factors[at] = some * inverse(part.weight(int(frame[at]))) % PRIME
        return list(zip(to.tolist(), of.tolist(), factors, strict=True))

    # -- ranges of rows ------------------------------------------------------------------------

    def windows(
        self, ranges: Indexes, target: int, source: int, numbers: Ints | None = None
    ) -> tuple[list[Rows], Ints]:
        """Returns what ranges of rows hold.

        Args:
            ranges: (rows, 2) begin and end of a range of rows of the source for each row of the
                target.
            target: A submatrix.
            source: Another one.
            numbers: A number from 0 up for each row of the source; None for its frame.

        Returns:
            The numbers in each different range, in the order of rows, and (rows,) the place there
            of the range of each row of the target.

        Raises:
            IrregularError: A range holds rows of another sequence.
        """
        begin, end = ranges.T.astype(np.int64)
        self._require_rows(begin, target)
        places, rows = rows_in_ranges(begin, end)
        frame, given = self._rows_of(source, rows)
        if (self.part_of[target].sequence[places] != given).any():
            raise IrregularError
        held = frame if numbers is None else numbers[rows]
        if len(places) == len(begin) and (places[1:] > places[:-1]).all():
            used, of = np.unique(held, return_inverse=True)
            return [[each] for each in used.tolist()], of.ravel()
        ends = (np.searchsorted(places, np.arange(len(begin)), "right") * ITEM).tolist()
        data, found = held.tobytes(), dict[bytes, int]()
        slices = (data[a:b] for a, b in zip([0, *ends], ends, strict=False))
        of = np.array([found.setdefault(each, len(found)) for each in slices], dtype=np.int64)
        return [np.frombuffer(each, dtype=np.int64).tolist() for each in found], of

    def joined(self, target: int, of: Ints) -> Rows | Mixture:
        """Returns what the frames of a submatrix are made of, given a number for each row."""
        part = self.part_of[target]
        return Mixture.of(len(part.sizes), self._joined(target, part.frame, of, part.sequence))


def _where(condition: npt.NDArray[np.bool_], *values: Ints) -> tuple[Ints | None, list[Ints]]:
    """Returns where a condition holds, None for everywhere, and the values there."""
    if condition.all():
        return None, list(values)
    places = np.flatnonzero(condition)
    return places, [each[places] for each in values]


def _by_key(terms: list[Term], count: int) -> list[tuple[int, Rows | Mixture, Rows]]:
    """Returns the frames taken, and the places where they go, for each key; see `_terms`."""
    found: dict[int, tuple[list[Term], Rows]] = {}
    for to, of, factor in terms:
        key, place = divmod(to, count)
        some, places = found.setdefault(key, ([], []))
        some.append((len(some), of, factor))
        places.append(place)
    return [(key, Mixture.of(len(some), some), places) for key, (some, places) in found.items()]


def rows_in_ranges(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Returns the rows in ranges, none where they begin below 0, and the number of each range."""
    lengths = np.where(begin < 0, 0, np.maximum(end - begin, 0))
    ranges = np.repeat(np.arange(len(begin)), lengths)
    skipped = np.cumsum(lengths) - lengths - begin
    return ranges, np.arange(len(ranges)) - skipped[ranges]
