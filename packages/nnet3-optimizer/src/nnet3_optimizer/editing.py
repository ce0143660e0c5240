"""Changing a draft: rows of the table of commands, new submatrices, matrices and lists."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation.analysis import MATRIX, NUM_COLS, NUM_ROWS, Layout, PairLists
from nnet3_computation.arrays import Ids, ordering, splits_of, where
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    Command,
    NoOperation,
    NoOperationLabel,
    Table,
    is_loop,
)
from nnet3_computation.computation import MatrixDebugInfo
from nnet3_descriptors.components import PrecomputedIndexes

from nnet3_optimizer.draft import Draft


class Edit:
    """Collects changes to a draft; `draft()` makes them.

    Attributes:
        table: (C, TABLE_WIDTH) int32, a copy of the commands that may be written to. Rows that
            become NoOperation are left out in the end.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.table: Table = draft.table.copy()
        self._submatrices: list[Table] = [draft.submatrices]
        self._num_submatrices = len(draft.submatrices)
        self._matrices = [draft.matrices]
        self._num_matrices = len(draft.matrices)
        self._debug_info: list[MatrixDebugInfo] | None = None  # None for that of the draft
        self._indexes = list(draft.indexes)
        self._indexes_multi = list(draft.indexes_multi)
        self._indexes_ranges = list(draft.indexes_ranges)
        self._precomputed = list(draft.precomputed_indexes)
        self._inserted: list[tuple[Ids, Table]] = []

    # -- commands ------------------------------------------------------------------------------

    def delete(self, commands: Ids | Sequence[int] | int) -> None:
        """Removes commands."""
        self.table[commands] = 0
        self.table[commands, OPCODE_COLUMN] = NoOperation.OPCODE

    def replace(self, command: int, by: Command) -> None:
        """Puts a command in the place of another."""
        self.table[command] = by.row

    def insert(self, before: Ids | Sequence[int] | int, commands: Table) -> None:
        """Inserts commands before positions, in the order in which they are given.

        Args:
            before: (N,) positions in the original table, or one position for all.
            commands: (N, TABLE_WIDTH) int32.
        """
        places = np.asarray(before, dtype=np.int64)
        if not places.ndim:
            places = np.full(len(commands), places)
        self._inserted.append((places, commands))

    # -- matrices and lists --------------------------------------------------------------------

    def submatrices(self, rows: npt.NDArray[np.integer]) -> Ids:
        """Adds submatrices.

        Args:
            rows: (N, 5): matrix, row_offset, num_rows, col_offset, num_cols.

        Returns:
            Their numbers, (N,).
        """
        first = self._num_submatrices
        self._num_submatrices += len(rows)
        self._submatrices.append(rows.astype(np.int32))
        return np.arange(first, self._num_submatrices)

    def rows_of(self, submatrix: int, offset: int, count: int) -> int:
        """Adds the submatrix that consists of some rows of another; returns its number."""
        matrix, row_offset, _, col_offset, num_cols = self.submatrix(submatrix)
        row = np.array([[matrix, row_offset + offset, count, col_offset, num_cols]])
        return int(self.submatrices(row)[0])

    def submatrix(self, number: int) -> list[int]:
        """Returns matrix, row_offset, num_rows, col_offset, num_cols of a submatrix."""
        for part in self._submatrices:
            if number < len(part):
                return [int(value) for value in part[number]]
            number -= len(part)
        raise IndexError(number)

    def matrix(self, rows: int, cols: int, debug_info: MatrixDebugInfo | None) -> int:
        """Adds a matrix and a submatrix that covers it; returns the number of the submatrix.

        Args:
            rows: Its number of rows.
            cols: Its number of columns.
            debug_info: What its rows stand for; left out if the draft has no debug info.
        """
        _, submatrices = self.matrices([(rows, cols)], [debug_info])
        return int(submatrices[0])

    def matrices(
        self,
        sizes: Sequence[tuple[int, int]],
        debug_info: Sequence[MatrixDebugInfo | None],
    ) -> tuple[Ids, Ids]:
        """Adds matrices, and for each of them a submatrix that covers it.

        Args:
            sizes: For each matrix its number of rows and of columns.
            debug_info: What their rows stand for; left out if the draft has no debug info.

        Returns:
            The numbers of the matrices and of the submatrices, (N,) each.
        """
        numbers = np.arange(self._num_matrices, self._num_matrices + len(sizes))
        self._num_matrices += len(sizes)
        self._matrices.append(np.array(sizes, np.int32))
        if self._draft.debug_info:
            known = [info for info in debug_info if info is not None]
            assert len(known) == len(sizes)
            self._all_debug_info().extend(known)
        whole = np.zeros((len(sizes), 5), np.int32)
        whole[:, MATRIX] = numbers
        whole[:, [NUM_ROWS, NUM_COLS]] = self._matrices[-1]
        return numbers, self.submatrices(whole)

    def debug_info(self, matrix: int, info: MatrixDebugInfo) -> None:
        """Sets the debug info of a matrix."""
        self._all_debug_info()[matrix] = info

    def indexes(self, values: Table | Ids) -> int:
        """Adds a list of rows; returns its number."""
        return _append(self._indexes, values)

    def indexes_multi(self, values: Table) -> int:
        """Adds a list of (submatrix, row) pairs; returns its number."""
        return _append(self._indexes_multi, values)

    def indexes_ranges(self, values: Table) -> int:
        """Adds a list of (begin, end) pairs; returns its number."""
        return _append(self._indexes_ranges, values)

    def precomputed(self, indexes: PrecomputedIndexes) -> int:
        """Adds precomputed indexes of a component; returns their number."""
        self._precomputed.append(indexes)
        return len(self._precomputed) - 1

    # -- the result ----------------------------------------------------------------------------

    def draft(self) -> Draft:
        """Returns the draft with all changes."""
        return attrs.evolve(
            self._draft,
            layout=self._layout(),
            table=with_label_found(self._final_table()),
            indexes=tuple(self._indexes),
            pair_lists=self._pair_lists(),
            indexes_ranges=tuple(self._indexes_ranges),
            precomputed_indexes=tuple(self._precomputed),
            debug_info=tuple(self._debug_info or self._draft.debug_info),
        )

    def _all_debug_info(self) -> list[MatrixDebugInfo]:
        if self._debug_info is None:
            self._debug_info = list(self._draft.debug_info)
        return self._debug_info

    def _layout(self) -> Layout:
        if len(self._submatrices) == 1 and len(self._matrices) == 1:
            return self._draft.layout
        return Layout(
            matrices=np.concatenate(self._matrices), submatrices=np.concatenate(self._submatrices)
        )

    def _pair_lists(self) -> PairLists:
        before = self._draft.pair_lists
        further = self._indexes_multi[len(before.lists) :]
        return before.and_further(tuple(further)) if further else before

    def _final_table(self) -> Table:
        is_kept = self.table[:, OPCODE_COLUMN] != NoOperation.OPCODE
        kept = where(is_kept)
        if not self._inserted:
            return self.table.take(kept, axis=0)
        table = np.concatenate([self.table, *(rows for _, rows in self._inserted)])
        places = np.concatenate([before for before, _ in self._inserted])
        order = ordering(places)  # commands for one position keep their order
        inserted = splits_of(is_kept).take(places[order]) + np.arange(len(order))
        is_old = np.ones(len(kept) + len(order), dtype=np.bool_)
        is_old[inserted] = False
        source = np.empty(len(is_old), dtype=np.int64)
        source[is_old] = kept
        source[inserted] = len(self.table) + order
        return table.take(source, axis=0)


def _append(lists: list[Table], values: Table | Ids) -> int:
    array = np.ascontiguousarray(values, dtype=np.int32)
    array.flags.writeable = False
    lists.append(array)
    return len(lists) - 1


def with_label_found(table: Table) -> Table:
    """Returns the table with the operand of GotoLabel set to the present position of the label."""
    if is_loop(table):
        label = where(table[:, OPCODE_COLUMN] == NoOperationLabel.OPCODE)
        table[-1, FIRST_OPERAND_COLUMN] = label[0]
    return table
