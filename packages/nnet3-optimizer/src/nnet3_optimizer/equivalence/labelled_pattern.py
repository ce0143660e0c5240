"""The rows of all sequences, by their labels."""

from __future__ import annotations

import numpy as np
from nnet3_compiler.computation import NnetComputation

from nnet3_optimizer.equivalence.described_pattern import DescribedPattern
from nnet3_optimizer.equivalence.labels import Ints, KnownLabels, Labels
from nnet3_optimizer.equivalence.moves import Moves, Windows
from nnet3_optimizer.equivalence.pattern import IrregularError, Rectangles


class LabelledPattern(DescribedPattern):
    """The rows of all sequences, by their labels.

    Attributes:
        matrix_rows: 1 for each matrix: at first all its rows are of one class.
        matrix_labels: The labels of each matrix.
        labels: The labels of each submatrix.
        blocks: The number of these.
    """

    def __init__(self, computation: NnetComputation, known: KnownLabels) -> None:
        """Prepares the rows.

        Args:
            computation: The computation.
            known: Those that other computations have; its own are added.

        Raises:
            IrregularError: The debug info does not say what the rows of all matrices are of.
        """
        super().__init__(computation)
        self._known = known
        self.matrix_labels = [known.of_info(info) for info in self._infos()]
        self._require_rows_of_matrices([len(labels.table) for labels in self.matrix_labels])
        self.matrix_rows = [1] * len(computation.matrices)
        self.submatrices = Rectangles(computation.submatrices)
        self.labels: list[Labels] = []
        for matrix, row, rows in computation.submatrices[:, :3].tolist():
            whole = self.matrix_labels[matrix]
            is_whole = rows == len(whole.table)
            self.labels.append(whole if is_whole else known.of_part(whole, row, rows))
        self.blocks = [labels.number for labels in self.labels]

    def rows(self, number: int, target: int, source: int) -> Moves:
        """Returns `indexes[number]`: for each row of a submatrix one of another, or none."""
        rows = self._computation.indexes[number]
        known = self._known.moves[self.blocks[source], self.blocks[target]]
        return known.get(rows, lambda: self.moves(rows.astype(np.int64), target, source))

    def moves(self, rows: Ints, target: int, source: int) -> Moves:
        """Returns rows of one submatrix, given for each of another."""
        if len(rows) != len(self.labels[target].table):
            raise IrregularError
        return Moves.of(rows, self.labels[source], self.labels[target])

    def gathers(self, number: int, target: int) -> list[tuple[int, Moves, Ints]]:
        """Returns `indexes_multi[number]` by submatrix: the rows taken, and where they go."""
        labels = self.labels
        return [
            (each, Moves.of(rows, labels[each], _some(labels[target], places)), places)
            for each, rows, places in self._pairs(number)
        ]

    def scatters(self, number: int, source: int) -> list[tuple[int, Moves, Ints]]:
        """Returns the same list where rows go to submatrices."""
        labels = self.labels
        return [
            (each, Moves.of(places, labels[source], _some(labels[each], rows)), rows)
            for each, rows, places in self._pairs(number)
        ]

    def _pairs(self, number: int) -> list[tuple[int, Ints, Ints]]:
        submatrix, rows = self._computation.indexes_multi[number].T.astype(np.int64)
        order = np.argsort(submatrix, kind="stable")
        order = order[np.searchsorted(submatrix[order], 1) :]
        firsts = np.flatnonzero(np.diff(submatrix[order], prepend=-1))
        result = []
        for places in np.split(order, firsts[1:]) if len(order) else ():
            each = int(submatrix[places[0]])
            if rows[places].min() < 0 or rows[places].max() >= len(self.labels[each].table):
                raise IrregularError
            result.append((each, rows[places], places))
        return result

    def ranges(self, number: int, target: int, source: int) -> Windows:
        """Returns `indexes_ranges[number]`: for each row of a submatrix begin and end."""
        begin, end = self._computation.indexes_ranges[number].T.astype(np.int64)
        return self.windows(begin, end, target, source)

    def windows(self, begin: Ints, end: Ints, target: int, source: int) -> Windows:
        """Returns ranges of rows of one submatrix, given for each of another."""
        if len(begin) != len(self.labels[target].table):
            raise IrregularError
        return Windows(begin, end, self.labels[source], self.labels[target])


def _some(labels: Labels, rows: Ints) -> Labels:
    """Returns the labels of some rows."""
    return Labels(-1, labels.table[rows])
