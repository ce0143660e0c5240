"""One sequence stands for all: a computation reduced to the rows of one sequence.

Nothing in a network mixes sequences, and where all sequences of a minibatch have the same frames a
computation treats them alike: it is enough to follow the first. The rows of a matrix are blocks of
`block` rows of sequence 0, then the same rows of sequence 1, and so on, then the next block:

    row(k, s) = (k // block) * block * S + s * block + k % block

for pattern row k, sequence s of S. The debug info of a computation says what S and the blocks could
be. That is taken as a guess: whether a command really does the same with all sequences is looked at
for each command, and `IrregularError` raised where it does not. Then all rows have to be followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.debug_info import MatrixDebugInfo, N

if TYPE_CHECKING:
    from nnet3_compiler.arrays import IntArray

Rows = list[int]
Padding = tuple[int, int]
Rectangle = tuple[int, int, int, int, int]
_NO_PADDING = (0, 0)


class IrregularError(Exception):
    """A computation that treats sequences differently, as far as can be seen."""


def num_sequences(computation: NnetComputation) -> int:
    """Returns how many sequences the debug info tells of; 1 if it tells nothing."""
    return max((len(info.sequences) for info in computation.matrix_debug_info), default=0) or 1


def all_rows(pattern_rows: list[int], block: int, sequences: int) -> list[int]:
    """Returns the rows of all sequences that rows of the pattern stand for, ascending."""
    first = [row + row // block * block * (sequences - 1) for row in pattern_rows]
    return sorted(row + each * block for row in first for each in range(sequences))


class Pattern:
    """The rows of one sequence.

    Attributes:
        sequences: The number of sequences, S; with one, all rows are followed.
        sizes: Rows and columns of each matrix.
        submatrices: Matrix, row, rows, column, columns of each submatrix. The rows are those of
            the blocks that it is part of.
        blocks: The block of the matrix of each submatrix.
        padding: How many rows before and after it these blocks have besides, for each submatrix
            that is not just blocks of all sequences.
    """

    def __init__(self, computation: NnetComputation, sequences: int) -> None:
        self.sequences = sequences
        self._computation = computation
        blocks = _blocks(computation, sequences)
        matrices, submatrices = computation.matrices, computation.submatrices.copy()
        self.sizes: list[tuple[int, int]] = list(
            zip(*_divided(matrices, sequences).T.tolist(), strict=True)
        )
        self._block_of = blocks[submatrices[:, 0]]
        group = self._block_of * sequences
        begin = submatrices[:, 1] // group * group
        end = -(-(submatrices[:, 1] + submatrices[:, 2]) // group) * group
        before = submatrices[:, 1] - begin
        after = end - submatrices[:, 1] - submatrices[:, 2]
        self.padding: dict[int, tuple[int, int]] = {
            each: (int(before[each]), int(after[each]))
            for each in np.flatnonzero(before + after).tolist()
        }
        submatrices[:, 1] = begin // sequences
        submatrices[:, 2] = (end - begin) // sequences
        self.submatrices: list[Rectangle] = list(zip(*submatrices.T.tolist(), strict=True))
        self.blocks: list[int] = self._block_of.tolist()
        self._rows: dict[tuple[int, Padding, int, int], Rows] = {}
        self._pairs: dict[tuple[int, Padding, int], list[tuple[int, Rows, Rows]]] = {}
        self._ranges: dict[tuple[int, Padding, int, int], list[tuple[int, int]]] = {}

    def require_same_order(self, one: int, other: int) -> None:
        """Raises an IrregularError unless row by row two submatrices are of one sequence."""
        if self.blocks[one] != self.blocks[other] or self.padding:
            self._require_order(one, other)

    def _require_order(self, one: int, other: int) -> None:
        if one and other:
            same = self.blocks[one] == self.blocks[other]
            if not same or one in self.padding or other in self.padding:
                raise IrregularError

    def require_regular(self, submatrix: int) -> None:
        """Raises an IrregularError unless a submatrix holds whole blocks of all sequences."""
        if submatrix in self.padding:
            raise IrregularError

    def padded_rows(self, submatrix: int) -> list[int]:
        """Returns the rows of the pattern that a submatrix lacks for some sequences."""
        before, after = self.padding[submatrix]
        _, _, rows, _, _ = self.submatrices[submatrix]
        block, total = self.blocks[submatrix], rows * self.sequences
        lacking = np.concatenate([np.arange(before), np.arange(total - after, total)])
        group = block * self.sequences
        found: list[int] = np.unique(lacking // group * block + lacking % block).tolist()
        return found

    # -- lists of rows -------------------------------------------------------------------------

    def rows(self, number: int, target: int, source: int) -> Rows:
        """Returns `indexes[number]`: for each row of a submatrix one of another, or -1."""
        padding = self.padding.get(target, _NO_PADDING)
        key = number, padding, self.blocks[target], self.blocks[source]
        if key not in self._rows:
            rows = _padded(self._computation.indexes[number], padding)
            self._rows[key] = self._first(rows, key[2], key[3]).tolist()
        return self._rows[key]

    def pairs(self, number: int, target: int) -> list[tuple[int, Rows, Rows]]:
        """Returns `indexes_multi[number]` by submatrix: the rows named, and their places."""
        padding = self.padding.get(target, _NO_PADDING)
        key = number, padding, self.blocks[target]
        if key not in self._pairs:
            submatrix, rows = self._computation.indexes_multi[number].T
            blocked = self._blocked(_padded(submatrix, padding), key[2])
            first = blocked[:, 0].ravel()
            if (blocked != blocked[:, :1]).any():
                raise IrregularError
            rows = self._first(_padded(rows, padding), key[2], self._block_of[first])
            self._pairs[key] = _by_submatrix(first, rows)
        return self._pairs[key]

    def ranges(self, number: int, target: int, source: int) -> list[tuple[int, int]]:
        """Returns `indexes_ranges[number]`: for each row of a submatrix begin and end."""
        padding = self.padding.get(target, _NO_PADDING)
        key = number, padding, self.blocks[target], self.blocks[source]
        if key not in self._ranges:
            table = self._computation.indexes_ranges[number]
            begin, end = _padded(table[:, 0], padding), _padded(table[:, 1], padding)
            block = key[3]
            if self.sequences > 1 and (begin // block != (end - 1) // block)[end > begin].any():
                raise IrregularError
            length = self._blocked(end - begin, key[2])
            if (length != length[:, :1]).any():
                raise IrregularError
            first = self._first(begin, key[2], block)
            last = first + length[:, 0].ravel()
            self._ranges[key] = list(zip(first.tolist(), last.tolist(), strict=True))
        return self._ranges[key]

    def _blocked(self, values: IntArray, block: int) -> IntArray:
        """Returns what is given for each row as (blocks, S, block)."""
        if len(values) % (self.sequences * block):
            raise IrregularError
        return values.reshape(-1, self.sequences, block)

    def _first(
        self, rows: IntArray, block: int, source_block: int | npt.NDArray[np.int64]
    ) -> IntArray:
        """Returns the source row of the pattern for each row of the pattern, -1 for none."""
        if self.sequences == 1:
            return rows
        blocked = self._blocked(rows, block)
        first = blocked[:, 0].ravel()
        distance = np.where(first < 0, 0, source_block).reshape(-1, 1, block)
        expected = first.reshape(-1, 1, block) + np.arange(self.sequences)[:, None] * distance
        group = source_block * self.sequences
        if (first % group >= source_block)[first >= 0].any() or (blocked != expected).any():
            raise IrregularError
        reduced: IntArray = first // group * source_block + first % group
        return np.where(first < 0, first, reduced)


def _blocks(computation: NnetComputation, sequences: int) -> npt.NDArray[np.int64]:
    """Returns the block of each matrix, (M,)."""
    blocks = np.ones(len(computation.matrices), dtype=np.int64)
    if sequences > 1:
        known = [_block(info, sequences) for info in computation.matrix_debug_info]
        blocks[: len(known)] = known
    return blocks


def _block(info: MatrixDebugInfo, sequences: int) -> int:
    """Returns so many rows as there are of the first sequence before another one follows."""
    if len(info.sequences) == sequences:
        return info.block
    n = info.pattern[:, N]
    others = np.flatnonzero(n != n[:1])
    return int(others[0]) if len(others) else 1


def _divided(matrices: IntArray, sequences: int) -> IntArray:
    """Returns the sizes of matrices for one sequence."""
    if (matrices[:, 0] % sequences).any():
        raise IrregularError
    return np.stack([matrices[:, 0] // sequences, matrices[:, 1]], axis=1)


def _padded(values: IntArray, padding: Padding) -> IntArray:
    """Returns a list with -1 for the rows before and after those of a submatrix."""
    return np.pad(values, padding, constant_values=-1) if any(padding) else values


def _by_submatrix(submatrices: IntArray, rows: IntArray) -> list[tuple[int, Rows, Rows]]:
    """Returns the pairs of a list by submatrix: the rows named, and their places in the list."""
    found: dict[int, tuple[int, Rows, Rows]] = {}
    for place, (each, row) in enumerate(zip(submatrices.tolist(), rows.tolist(), strict=True)):
        if each > 0:
            _, of_submatrix, places = found.setdefault(each, (each, [], []))
            of_submatrix.append(row)
            places.append(place)
    return list(found.values())
