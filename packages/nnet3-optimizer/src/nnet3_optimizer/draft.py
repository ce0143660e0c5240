"""A computation while passes rewrite it: its arrays, and the analysis that belongs to them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation import ComputationError
from nnet3_computation.analysis import Analysis, Findings, Layout, PairLists
from nnet3_computation.arrays import Ids
from nnet3_computation.commands import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    Table,
    alpha_bits,
)
from nnet3_computation.computation import MatrixDebugInfo, NnetComputation
from nnet3_descriptors.structure import component_properties

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_descriptors.components import PrecomputedIndexes

_ONE = alpha_bits(1.0)


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
    table: Table
    indexes: tuple[Table, ...]
    pair_lists: PairLists
    indexes_ranges: tuple[Table, ...]
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

    @property
    def findings(self) -> Findings:
        """The analysis so far; a pass may hand on the results that it did not change."""
        return self.analysis.findings

    def in_order(self, order: Ids) -> Self:
        """Returns the draft with its commands in another order.

        Args:
            order: (C,) the present position of each command.
        """
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        moved = attrs.evolve(self, table=self.table.take(order, axis=0))
        moved.findings.submatrix_accesses = self.analysis.submatrix_accesses.moved(place)
        return moved

    @property
    def matrices(self) -> Table:
        """(M, 2) int32: rows, columns."""
        return self.layout.matrices

    @property
    def submatrices(self) -> Table:
        """(S, 5) int32: matrix, row_offset, num_rows, col_offset, num_cols."""
        return self.layout.submatrices

    @property
    def opcodes(self) -> Ids:
        """(C,) int64, the kinds of the commands."""
        return self.analysis.opcodes

    @property
    def indexes_multi(self) -> tuple[Table, ...]:
        """The lists of (submatrix, row) pairs, (rows, 2) int32 each."""
        return self.pair_lists.lists

    def positions(self, *opcodes: int) -> Ids:
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
            row[OPCODE_COLUMN] == opcode
            and row[ALPHA_COLUMN] == _ONE
            and self.layout.are_whole(*row[FIRST_OPERAND_COLUMN:][:2])
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
