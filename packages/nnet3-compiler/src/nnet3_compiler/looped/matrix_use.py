"""The first and the last command that uses each matrix."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation.arrays import NONE
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    SCHEMA,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    DeallocMatrix,
    OperandKind,
)
from nnet3_computation.computation import NnetComputation
from numpy.typing import NDArray

from nnet3_compiler.assembly.step_info import MATRIX

ALLOCATIONS = (AllocMatrixUndefined.OPCODE, AllocMatrixZeroed.OPCODE)


@attrs.frozen(kw_only=True, eq=False)
class MatrixUse:
    """The first and the last command that uses each matrix; allocation does not count.

    Attributes:
        first: (M,) int64, positions of commands; the number of commands if nothing uses it.
        last: (M,) int64; -1 if nothing uses it.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @classmethod
    def of(cls, computation: NnetComputation) -> MatrixUse:
        """Returns the first and last uses of the matrices of a computation."""
        table = computation.command_table
        opcodes = table[:, OPCODE_COLUMN]
        matrix_of = computation.submatrices[:, MATRIX]
        uses = SCHEMA.is_matrix[opcodes] & (table > 0)
        uses[np.isin(opcodes, (*ALLOCATIONS, DeallocMatrix.OPCODE))] = False
        position, column = np.nonzero(uses)
        positions, matrices = [position], [matrix_of[table[position, column]]]
        lists = SCHEMA.kind[opcodes] == OperandKind.INDEXES_MULTI
        for command, at in zip(*np.nonzero(lists), strict=True):
            pairs = computation.indexes_multi[int(table[command, at])]
            named = matrix_of[np.unique(pairs[pairs[:, 0] != NONE, 0])]
            matrices.append(named)
            positions.append(np.full(len(named), command))
        matrix, place = np.concatenate(matrices), np.concatenate(positions)
        first = np.full(len(computation.matrices), len(table), np.int64)
        last = np.full(len(computation.matrices), NONE, np.int64)
        np.minimum.at(first, matrix, place)
        np.maximum.at(last, matrix, place)
        return cls(first=first, last=last)


def with_tight_lifetimes(computation: NnetComputation) -> NnetComputation:
    """Moves every allocation right before the first use, every deallocation after the last.

    Matrices that no command uses are neither allocated nor freed any more.
    """
    table = computation.command_table
    opcodes = table[:, OPCODE_COLUMN]
    use = MatrixUse.of(computation)
    place = np.arange(len(table)) * 2
    allocates, frees = np.isin(opcodes, ALLOCATIONS), opcodes == DeallocMatrix.OPCODE
    # The first operand of other commands may be something else, such as a component.
    whole = np.where(allocates | frees, table[:, FIRST_OPERAND_COLUMN], 0)
    matrix = computation.submatrices[whole, MATRIX]
    place[allocates] = use.first[matrix[allocates]] * 2 - 1
    place[frees] = use.last[matrix[frees]] * 2 + 1
    kept = ~((allocates | frees) & (use.last[matrix] == NONE))
    order = np.argsort(place, kind="stable")
    return attrs.evolve(computation, command_table=table[order[kept[order]]], memory_plan=None)
