"""One sequence stands for all: a computation reduced to the rows of one sequence.

Nothing in a network mixes sequences. If all sequences of a minibatch have the same frames, a
computation treats them alike, and it is enough to follow the first. The rows of a matrix are blocks
of `block` rows of sequence 0, then the same rows of sequence 1, and so on, then the next block:

    row(k, s) = (k // block) * block * S + s * block + k % block

for pattern row k, sequence s of S. The debug info of a computation tells what S and the blocks
could be. This is only a guess. So the proof checks each command: if a command does not treat all
sequences alike, it raises `IrregularError`, and all rows have to be followed.

A matrix may also hold only some of the sequences: a part. A submatrix may hold a part, too, if its
matrix holds sequence after sequence. If commands treat part after part alike, the proof follows
each part; see `SymbolicState.write`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from nnet3_computation.computation import MatrixDebugInfo, N, NnetComputation

from nnet3_optimizer.equivalence.symbols.prime_field import PRIME

if TYPE_CHECKING:
    from nnet3_computation.arrays import IntArray

Indexes = npt.NDArray[np.integer]
Rows = list[int]
Padding = tuple[int, int]
Ranges = list[tuple[int, int]]
Rectangle = tuple[int, int, int, int, int]
_NOT_KNOWN = -1
_NO_PADDING = (0, 0)


class IrregularError(Exception):
    """A computation seems to treat sequences differently."""


class Rectangles:
    """The places of submatrices: five lists of numbers, because thousands of tuples take too long.

    Attributes:
        matrix, row, rows, col, cols: For each its matrix, first row, rows, first column and
            columns.
    """

    __slots__ = ("col", "cols", "matrix", "row", "rows")

    def __init__(self, table: Indexes) -> None:
        """Takes the table of submatrices, (S, 5)."""
        columns: list[list[int]] = table.T.tolist()
        self.matrix, self.row, self.rows, self.col, self.cols = columns

    def __getitem__(self, number: int) -> Rectangle:
        """Returns one of them."""
        place = self.matrix[number], self.row[number], self.rows[number]
        return *place, self.col[number], self.cols[number]


def num_sequences(computation: NnetComputation) -> int:
    """Returns the number of sequences in the debug info; 1 without debug info."""
    sequences = [info.sequences for info in computation.matrix_debug_info]
    return max(map(len, sequences), default=0) or 1


def all_rows(pattern_rows: list[int], block: int, sequences: int) -> list[int]:
    """Returns the rows of all sequences that rows of the pattern stand for, ascending."""
    first = [row + row // block * block * (sequences - 1) for row in pattern_rows]
    return sorted(row + each * block for row in first for each in range(sequences))


class Pattern:
    """The rows of one sequence.

    Attributes:
        sequences: The number of sequences, S; with one, all rows are followed.
        matrix_rows, matrix_cols: The rows and columns of each matrix.
        submatrices: The submatrices, extended to the whole blocks that each is part of.
        blocks: The block of the matrix of each submatrix.
        padding: For each submatrix that is not just blocks of all sequences, the numbers of rows of
            these blocks before and after it.
        parts: For each submatrix that holds some of the sequences, the first of them and their
            number. The first is -1 if the whole matrix holds no more: then it depends on the
            writes.
    """

    def __init__(self, computation: NnetComputation, sequences: int) -> None:
        self.sequences = sequences
        self._computation = computation
        blocks = _blocks(computation, sequences)
        matrices, submatrices = computation.matrices, computation.submatrices.copy()
        sequences_held = _sequences_held(matrices[:, 0], blocks, sequences)
        self.matrix_rows: list[int] = (matrices[:, 0] // sequences_held).tolist()
        self.matrix_cols: list[int] = matrices[:, 1].tolist()
        matrix, first, rows = computation.submatrices[:, :3].T
        self._block_of, held = blocks[matrix], sequences_held[matrix]
        group = self._block_of * held
        begin = first // group * group
        end = -(-(first + rows) // group) * group
        before, after = first - begin, end - first - rows
        submatrices[:, 1] = begin // held
        self._rows_of = submatrices[:, 2] = (end - begin) // held
        self.submatrices = Rectangles(submatrices)
        self.blocks: list[int] = self._block_of.tolist()
        self.parts: dict[int, tuple[int, int]] = {}
        if sequences > 1:
            # Submatrices of one block of each sequence, and of some whole sequences.
            is_part = (before + after > 0) & (matrices[matrix, 0] == group) & (held == sequences)
            is_part &= (first % self._block_of == 0) & (rows % self._block_of == 0)
            before[is_part] = after[is_part] = 0
            for each in np.flatnonzero(is_part).tolist():
                block = self.blocks[each]
                self.parts[each] = int(first[each]) // block, int(rows[each]) // block
            for each in np.flatnonzero(held < sequences).tolist():
                self.parts[each] = _NOT_KNOWN, int(held[each])
        self.padding: dict[int, Padding] = {
            each: (int(before[each]), int(after[each]))
            for each in np.flatnonzero(before + after).tolist()
        }
        self._rows: dict[tuple[int, Padding, int, int], Rows] = {}
        self._pairs: dict[tuple[int, Padding, int], tuple[list[int], Rows]] = {}
        self._ranges: dict[tuple[int, Padding, int, int], Ranges] = {}

    def blocks_of_single_rows(self) -> list[int]:
        """Returns for each submatrix its block if it is one row of all sequences, 0 if not."""
        blocks = np.where(self._rows_of == 1, self._block_of, 0)
        blocks[[*self.padding, *self.parts]] = 0
        found: list[int] = blocks.tolist()
        return found

    def require_regular(self, submatrix: int) -> None:
        """Raises an IrregularError unless a submatrix holds whole blocks of all sequences."""
        if submatrix in self.padding or submatrix in self.parts:
            raise IrregularError

    def _require_no_parts(self, *submatrices: int) -> None:
        if self.parts and any(each in self.parts for each in submatrices):
            raise IrregularError

    def count(self, submatrix: int) -> int:
        """Returns the number of sequences that a submatrix holds."""
        return self.parts[submatrix][1] if submatrix in self.parts else self.sequences

    def total(self, contributions: Sequence[int], submatrix: int) -> int:
        """Returns the sum over the rows of all sequences of a submatrix."""
        return sum(contributions) * self.count(submatrix) % PRIME

    def padded_rows(self, submatrix: int) -> list[int]:
        """Returns the rows of the pattern that a submatrix lacks for some sequences."""
        before, after = self.padding[submatrix]
        rows = self.submatrices.rows[submatrix]
        block, total = self.blocks[submatrix], rows * self.sequences
        lacking = np.concatenate([np.arange(before), np.arange(total - after, total)])
        group = block * self.sequences
        found: list[int] = np.unique(lacking // group * block + lacking % block).tolist()
        return found

    # -- lists of rows -------------------------------------------------------------------------

    def rows(self, number: int, target: int, source: int) -> Rows:
        """Returns `indexes[number]`: for each row of a submatrix one of another, or -1."""
        self._require_no_parts(target, source)
        padding = self.padding.get(target, _NO_PADDING)
        key = number, padding, self.blocks[target], self.blocks[source]
        if key not in self._rows:
            rows = _padded(self._computation.indexes[number], padding)
            self._rows[key] = self._first(rows, key[2], key[3]).tolist()
        return self._rows[key]

    def gathers(self, number: int, target: int) -> list[tuple[int, Rows, Rows]]:
        """Returns `indexes_multi[number]` by submatrix: the rows named, and their places."""
        self._require_no_parts(target)
        padding = self.padding.get(target, _NO_PADDING)
        key = number, padding, self.blocks[target]
        if key not in self._pairs:
            submatrix, rows = self._computation.indexes_multi[number].T
            blocked = self._blocked(_padded(submatrix, padding), key[2])
            first = blocked[:, 0].ravel()
            if (blocked != blocked[:, :1]).any():
                raise IrregularError
            rows = self._first(_padded(rows, padding), key[2], self._block_of[first])
            self._pairs[key] = first.tolist(), rows.tolist()
            self._require_no_parts(*(each for each in self._pairs[key][0] if each > 0))
        return by_submatrix(*self._pairs[key])

    def scatters(self, number: int, source: int) -> list[tuple[int, Rows, Rows]]:
        """Returns `indexes_multi[number]` by target submatrix: places in the list, and rows."""
        return [(each, places, rows) for each, rows, places in self.gathers(number, source)]

    def ranges(self, number: int, target: int, source: int) -> Ranges:
        """Returns `indexes_ranges[number]`: for each row of a submatrix begin and end."""
        self._require_no_parts(target, source)
        padding = self.padding.get(target, _NO_PADDING)
        key = number, padding, self.blocks[target], self.blocks[source]
        if key not in self._ranges:
            table = self._computation.indexes_ranges[number]
            begin, end = _padded(table[:, 0], padding), _padded(table[:, 1], padding)
            reduced = self.reduced_ranges(begin, end, target, source)
            self._ranges[key] = list(zip(*reduced.T.tolist(), strict=True))
        return self._ranges[key]

    def reduced_ranges(self, begin: IntArray, end: IntArray, target: int, source: int) -> IntArray:
        """Returns ranges of pattern rows of one submatrix, given for each of another: (rows, 2)."""
        block, source_block = self.blocks[target], self.blocks[source]
        count = self.count(target)
        if count > 1 and (begin // source_block != (end - 1) // source_block)[end > begin].any():
            raise IrregularError
        length = self._blocked(end - begin, block, count)
        if (length != length[:, :1]).any():
            raise IrregularError
        first = self._first(begin, block, source_block, count)
        return np.stack([first, first + length[:, 0].ravel()], axis=1)

    def reduced_rows(self, rows: IntArray, target: int, source: int) -> IntArray:
        """Returns pattern rows of one submatrix, given for each row of another."""
        return self._first(rows, self.blocks[target], self.blocks[source], self.count(target))

    def _blocked(self, values: IntArray, block: int, count: int = 0) -> IntArray:
        """Returns values for each row of `count` sequences in the shape (blocks, count, block)."""
        count = count or self.sequences
        if len(values) % (count * block):
            raise IrregularError
        return values.reshape(-1, count, block)

    def _first(
        self,
        rows: IntArray,
        block: int,
        source_block: int | npt.NDArray[np.int64],
        count: int = 0,
    ) -> IntArray:
        """Returns the source row of the pattern for each row of the pattern, -1 for none."""
        count = count or self.sequences
        if count == 1:
            return rows
        blocked = self._blocked(rows, block, count)
        first = blocked[:, 0].ravel()
        is_row = first >= 0
        # The dtype of the rows, since there may be hundreds of thousands.
        distance = (is_row * source_block).astype(rows.dtype).reshape(-1, 1, block)
        expected = np.arange(count, dtype=rows.dtype)[:, None] * distance
        expected += first.reshape(-1, 1, block)
        if not np.array_equal(blocked, expected):
            raise IrregularError
        number, place = np.divmod(first, source_block * count)
        if (is_row & (place >= source_block)).any():
            raise IrregularError
        reduced: IntArray = np.where(is_row, number * source_block + place, first)
        return reduced


def _blocks(computation: NnetComputation, sequences: int) -> npt.NDArray[np.int64]:
    """Returns the block of each matrix, (M,)."""
    blocks = np.ones(len(computation.matrices), dtype=np.int64)
    if sequences > 1:
        infos = computation.matrix_debug_info
        # Most of thousands of matrices share one array.
        shared = next((each.sequences for each in infos if len(each.sequences) == sequences), None)
        blocks[: len(infos)] = [
            each.block if each.sequences is shared else _block(each, sequences) for each in infos
        ]
    return blocks


def _block(info: MatrixDebugInfo, sequences: int) -> int:
    """Returns the number of rows of the first sequence before another sequence follows."""
    if len(info.sequences) == sequences:
        return info.block
    n = info.pattern[:, N]
    others = np.flatnonzero(n != n[:1])
    return int(others[0]) if len(others) else max(len(n), 1)


def _sequences_held(
    rows: IntArray, blocks: npt.NDArray[np.int64], sequences: int
) -> npt.NDArray[np.int64]:
    """Returns how many sequences each matrix holds: all, or as many blocks as it has rows for."""
    held = np.where(rows < blocks * sequences, rows // blocks, sequences)
    held = np.where(rows == 0, 1, held)
    if (rows % np.maximum(blocks * held, 1) != 0).any() or (held == 0).any():
        raise IrregularError
    return held


def _padded(values: IntArray, padding: Padding) -> IntArray:
    """Returns a list with -1 for the rows before and after those of a submatrix."""
    return np.pad(values, padding, constant_values=-1) if any(padding) else values


def by_submatrix(submatrices: list[int], rows: Rows) -> list[tuple[int, Rows, Rows]]:
    """Returns the pairs of a list by submatrix: the rows named, and their places in the list."""
    found: dict[int, tuple[int, Rows, Rows]] = {}
    for place, (each, row) in enumerate(zip(submatrices, rows, strict=True)):
        if each > 0:
            if each not in found:  # most submatrices are named once
                found[each] = each, [row], [place]
            else:
                found[each][1].append(row)
                found[each][2].append(place)
    return list(found.values())
