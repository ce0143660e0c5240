"""A computation while passes rewrite it: its arrays, its analysis, and changes to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation import ComputationError, arrays
from nnet3_computation import commands as c
from nnet3_computation.analysis import (
    MATRIX,
    NUM_COLS,
    NUM_ROWS,
    Analysis,
    CommandKinds,
    Layout,
    PairLists,
    memos,
)
from nnet3_computation.computation import MatrixDebugInfo, NnetComputation
from nnet3_descriptors.components import PrecomputedIndexes
from nnet3_descriptors.structure import component_properties

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


_ONE = c.alpha_bits(1.0)


@attrs.frozen(kw_only=True, eq=False)
class Draft:
    """The argument and the result of a pass.

    A pass makes a draft from arrays that it no longer changes. Unlike an NnetComputation a draft is
    not validated; that happens once, when it becomes a computation again.

    Attributes:
        nnet: The network that the computation is for.
        component_properties: (components,) int32, bits of `ComponentProperties`.
        origin: The computation from which it was made; it has the parts that passes do not change.
        layout: The matrices and submatrices.
        table: (C, TABLE_WIDTH) int32, the commands.
        indexes: Lists of rows, -1 for none.
        pair_lists: The lists of (submatrix, row) pairs.
        indexes_ranges: (rows, 2) int32 each: begin, end.
        precomputed_indexes: The precomputed indexes of components; 0 is None.
        debug_info: One entry for each matrix, or none at all.
    """

    nnet: Nnet
    component_properties: npt.NDArray[np.int32]
    origin: NnetComputation
    layout: Layout
    table: c.Table
    indexes: tuple[c.Table, ...]
    pair_lists: PairLists
    indexes_ranges: tuple[c.Table, ...]
    precomputed_indexes: tuple[PrecomputedIndexes | None, ...]
    debug_info: tuple[MatrixDebugInfo, ...]

    @classmethod
    def of(cls, nnet: Nnet, computation: NnetComputation) -> Self:
        """Returns the draft of a computation.

        Raises:
            ComputationError: The computation is of another network.
        """
        if not isinstance(computation, NnetComputation):
            raise ComputationError(
                f"expected an NnetComputation to improve, found {type(computation).__name__}"
            )
        computation.check_network(nnet)
        return cls(
            nnet=nnet,
            component_properties=component_properties(nnet),
            origin=computation,
            layout=Layout(matrices=computation.matrices, submatrices=computation.submatrices),
            table=computation.command_table,
            indexes=computation.indexes,
            pair_lists=PairLists(computation.indexes_multi),
            indexes_ranges=computation.indexes_ranges,
            precomputed_indexes=computation.precomputed_indexes,
            debug_info=tuple(computation.matrix_debug_info),
        )

    @cached_property
    def analysis(self) -> Analysis:
        """The reads, writes, allocations and deallocations of the commands."""
        return Analysis(
            layout=self.layout,
            table=self.table,
            pair_lists=self.pair_lists,
            component_properties=self.component_properties,
        )

    def in_order(self, order: arrays.Ids) -> Self:
        """Returns the draft with its commands in another order.

        Args:
            order: (C,) the present position of each command.
        """
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        moved = attrs.evolve(self, table=self.table.take(order, axis=0))
        moved.analysis.submatrix_accesses = self.analysis.submatrix_accesses.moved(place)
        return moved

    @property
    def matrices(self) -> c.Table:
        """(M, 2) int32: rows, columns."""
        return self.layout.matrices

    @property
    def submatrices(self) -> c.Table:
        """(S, 5) int32: matrix, row_offset, num_rows, col_offset, num_cols."""
        return self.layout.submatrices

    @property
    def opcodes(self) -> arrays.Ids:
        """(C,) int64, the kinds of the commands."""
        return self.analysis.opcodes

    @property
    def indexes_multi(self) -> tuple[c.Table, ...]:
        """The lists of (submatrix, row) pairs, (rows, 2) int32 each."""
        return self.pair_lists.lists

    def positions(self, *opcodes: int) -> arrays.Ids:
        """Returns the positions of the commands of these kinds, ascending."""
        return self.analysis.positions(*opcodes)

    def row(self, command: int) -> list[int]:
        """Returns a row of the table of commands, as numbers of Python."""
        row: list[int] = self.table[command].tolist()
        return row

    def copies_whole(self, command: int, opcode: int) -> bool:
        """Returns whether a command of a kind copies one whole matrix to another, times 1.

        Args:
            command: The command.
            opcode: The kind: that of MatrixCopy or of CopyRows.
        """
        row = self.row(command)
        return (
            row[c.OPCODE_COLUMN] == opcode
            and row[c.ALPHA_COLUMN] == _ONE
            and self.layout.are_whole(*row[c.FIRST_OPERAND_COLUMN :][:2])
        )

    def computation(self) -> NnetComputation:
        """Returns the draft as a computation.

        Raises:
            ComputationError: It contradicts itself, which is a fault of a pass.
        """
        return attrs.evolve(
            self.origin,
            matrices=self.matrices,
            submatrices=self.submatrices,
            command_table=self.table,
            indexes=self.indexes,
            indexes_multi=self.pair_lists.lists,
            indexes_ranges=self.indexes_ranges,
            precomputed_indexes=self.precomputed_indexes,
            matrix_debug_info=self.debug_info,
            memory_plan=None,
        )


class Edit:
    """Collects changes to a draft; `draft()` makes them.

    Attributes:
        table: (C, TABLE_WIDTH) int32, a copy of the commands that may be written to. Rows that
            become NoOperation are left out in the end.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.table: c.Table = draft.table.copy()
        self._submatrices: list[c.Table] = [draft.submatrices]
        self._num_submatrices = len(draft.submatrices)
        self._matrices = [draft.matrices]
        self._num_matrices = len(draft.matrices)
        self._debug_info = list(draft.debug_info)
        self._indexes = list(draft.indexes)
        self._indexes_multi = list(draft.indexes_multi)
        self._indexes_ranges = list(draft.indexes_ranges)
        self._inserted: list[tuple[arrays.Ids, c.Table]] = []

    # -- commands ------------------------------------------------------------------------------

    def delete(self, commands: arrays.Ids | Sequence[int] | int) -> None:
        """Removes commands."""
        self.table[commands] = 0
        self.table[commands, c.OPCODE_COLUMN] = c.NoOperation.OPCODE

    def replace(self, command: int, by: c.Command) -> None:
        """Puts a command in the place of another."""
        self.table[command] = by.row

    def insert(self, before: arrays.Ids | Sequence[int] | int, commands: c.Table) -> None:
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

    def submatrices(self, rows: npt.NDArray[np.integer]) -> arrays.Ids:
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

    def matrices(
        self, sizes: Sequence[tuple[int, int]], debug_info: Sequence[MatrixDebugInfo | None]
    ) -> tuple[arrays.Ids, arrays.Ids]:
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
            self._debug_info.extend(known)
        whole = np.zeros((len(sizes), 5), np.int32)
        whole[:, MATRIX] = numbers
        whole[:, [NUM_ROWS, NUM_COLS]] = self._matrices[-1]
        return numbers, self.submatrices(whole)

    def debug_info(self, matrix: int, info: MatrixDebugInfo) -> None:
        """Sets the debug info of a matrix."""
        self._debug_info[matrix] = info

    def indexes(self, values: c.Table | arrays.Ids) -> int:
        """Adds a list of rows; returns its number."""
        return _append(self._indexes, values)

    def indexes_multi(self, values: c.Table) -> int:
        """Adds a list of (submatrix, row) pairs; returns its number."""
        return _append(self._indexes_multi, values)

    def indexes_ranges(self, values: c.Table) -> int:
        """Adds a list of (begin, end) pairs; returns its number."""
        return _append(self._indexes_ranges, values)

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
            debug_info=tuple(self._debug_info),
        )

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

    def _final_table(self) -> c.Table:
        is_kept = self.table[:, c.OPCODE_COLUMN] != c.NoOperation.OPCODE
        kept = arrays.where(is_kept)
        if not self._inserted:
            return self.table.take(kept, axis=0)
        table = np.concatenate([self.table, *(rows for _, rows in self._inserted)])
        places = np.concatenate([before for before, _ in self._inserted])
        order = arrays.ordering(places)  # commands for one position keep their order
        inserted = arrays.splits_of(is_kept).take(places[order]) + np.arange(len(order))
        is_old = np.ones(len(kept) + len(order), dtype=np.bool_)
        is_old[inserted] = False
        source = np.empty(len(is_old), dtype=np.int64)
        source[is_old] = kept
        source[inserted] = len(self.table) + order
        return table.take(source, axis=0)


def _append(lists: list[c.Table], values: c.Table | arrays.Ids) -> int:
    array = np.ascontiguousarray(values, dtype=np.int32)
    array.flags.writeable = False
    lists.append(array)
    return len(lists) - 1


def with_label_found(table: c.Table) -> c.Table:
    """Returns the table with the operand of GotoLabel set to the present position of the label."""
    if c.is_loop(table):
        label = arrays.where(table[:, c.OPCODE_COLUMN] == c.NoOperationLabel.OPCODE)
        table[-1, c.FIRST_OPERAND_COLUMN] = label[0]
    return table


def drop_unused_memos(table: c.Table) -> None:
    """Lets no Propagate make a memo that no other command uses; changes the table.

    Args:
        table: (C, TABLE_WIDTH) int32, the commands.
    """
    named = memos(table)
    makes = table[:, c.OPCODE_COLUMN] == c.Propagate.OPCODE
    used = named[~makes & (named != 0)]
    in_vain = arrays.where(makes & (named != 0) & ~np.isin(named, used, kind="sort"))
    table[in_vain, c.columns(c.Propagate)["memo"]] = 0


SIZING = CommandKinds.of(c.AllocMatrixUndefined, c.AllocMatrixZeroed, c.DeallocMatrix, c.SwapMatrix)
"""Commands that give a matrix memory or take it away, and access no element."""


def sizing_without_use(draft: Draft, needed: arrays.Bools) -> arrays.Bools:
    """Returns which sizing commands, (C,) bool, are of matrices that no needed command accesses.

    Args:
        draft: The draft.
        needed: (C,) bool, the commands that are kept.
    """
    is_sizing = SIZING.among(draft.opcodes)
    accesses = draft.analysis.submatrix_accesses
    counts = (needed & ~is_sizing).take(accesses.command)
    matrix_of = draft.layout.matrix_of
    used = np.zeros(len(draft.matrices), dtype=np.bool_)
    used[matrix_of.take(accesses.submatrix[counts])] = True
    swaps = draft.positions(c.SwapMatrix.OPCODE)
    for column in (0, 1):
        used[matrix_of[draft.table[swaps, c.FIRST_OPERAND_COLUMN + column]]] = True
    sizing = arrays.where(is_sizing)
    matrix = matrix_of.take(draft.table[sizing, c.FIRST_OPERAND_COLUMN])
    without = np.zeros(len(draft.table), dtype=np.bool_)
    without[sizing] = ~used[matrix]
    return without


def without_unused_matrices(draft: Draft) -> Draft:
    """Returns the draft without the sizing commands of matrices that nothing accesses."""
    unused = sizing_without_use(draft, np.ones(len(draft.table), dtype=np.bool_))
    if not unused.any():
        return draft
    return attrs.evolve(draft, table=draft.table.compress(~unused, axis=0))
