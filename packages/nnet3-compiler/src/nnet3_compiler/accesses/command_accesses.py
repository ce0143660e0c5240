"""The reads, writes, allocations and deallocations of the commands of a computation."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.structure import component_properties

from nnet3_compiler.accesses.accesses import (
    AccessLists,
    Lifetimes,
    SubmatrixAccesses,
    matrix_accesses,
)
from nnet3_compiler.accesses.layout import Layout
from nnet3_compiler.accesses.pair_lists import PairLists
from nnet3_compiler.accesses.variables import Table
from nnet3_compiler.arrays.csr import Ids, where
from nnet3_compiler.commands import OPCODE_COLUMN
from nnet3_compiler.computation import NnetComputation

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


@attrs.frozen(kw_only=True, eq=False)
class CommandAccesses:
    """The reads, writes, allocations and deallocations of a computation's commands, by matrix.

    Attributes:
        layout: The matrices and submatrices.
        table: (C, TABLE_WIDTH) int32, the commands.
        pair_lists: The lists of submatrices and rows that commands refer to.
        component_properties: (components,) int32, bits of `ComponentProperties`.
    """

    layout: Layout
    table: Table
    pair_lists: PairLists
    component_properties: npt.NDArray[np.int32]

    @classmethod
    def of(cls, nnet: Nnet, computation: NnetComputation) -> Self:
        """Returns the analysis of a computation, which may be of another network."""
        return cls(
            layout=Layout(matrices=computation.matrices, submatrices=computation.submatrices),
            table=computation.command_table,
            pair_lists=PairLists(computation.indexes_multi),
            component_properties=component_properties(nnet),
        )

    @cached_property
    def opcodes(self) -> Ids:
        """(C,) int64, the kinds of the commands; as wide as positions, so that lookups are fast."""
        return self.table[:, OPCODE_COLUMN].astype(np.int64)

    @property
    def matrices(self) -> Table:
        """(M, 2) int32: rows, columns."""
        return self.layout.matrices

    @property
    def submatrices(self) -> Table:
        """(S, 5) int32: matrix, row_offset, num_rows, col_offset, num_cols."""
        return self.layout.submatrices

    def positions(self, *opcodes: int) -> Ids:
        """Returns the positions of the commands of these kinds, ascending."""
        wanted = self.opcodes == opcodes[0]
        for opcode in opcodes[1:]:
            wanted |= self.opcodes == opcode
        return where(wanted)

    @cached_property
    def submatrix_accesses(self) -> SubmatrixAccesses:
        """The submatrices that commands read and write, by command."""
        return SubmatrixAccesses.of(
            self.opcodes, self.table, self.pair_lists, self.component_properties
        )

    @cached_property
    def matrix_accesses(self) -> AccessLists:
        """The commands that access each matrix; allocation with zeros counts as a write."""
        return matrix_accesses(self.layout, self.submatrix_accesses)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """Where matrices are allocated and freed, and which are inputs and outputs."""
        return Lifetimes.of(self.opcodes, self.table, self.matrices, self.submatrices)
