"""Checks that a computation does not contradict itself.

They cover what every operand refers to, not whether the commands make sense together: that is the
checker of the optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from nnet3_descriptors.indexes import distinct
from numpy.typing import NDArray

from nnet3_compiler.arrays import IntArray
from nnet3_compiler.commands import SCHEMA, NoOperationLabel
from nnet3_compiler.declaration import (
    ALPHA_COLUMN,
    OPCODE_COLUMN,
    TABLE_WIDTH,
    Command,
    Operand,
    OperandKind,
)
from nnet3_compiler.errors import ComputationError

if TYPE_CHECKING:
    from nnet3_compiler.computation import NnetComputation


def validate(computation: NnetComputation) -> None:
    """Raises a ComputationError that names the first thing that is wrong."""
    _check_shape("matrices", computation.matrices, 2)
    _check_shape("submatrices", computation.submatrices, 5)
    _check_shape("command_table", computation.command_table, TABLE_WIDTH)
    _check_shape("steps", computation.steps, 2)
    _check_matrices(computation.matrices)
    _check_submatrices(computation.submatrices, computation.matrices)
    if not computation.precomputed_indexes or computation.precomputed_indexes[0] is not None:
        raise ComputationError("precomputed_indexes[0] must be None")
    _check_commands(computation)
    _check_index_tables(computation)
    infos = computation.matrix_debug_info
    if infos and len(infos) != len(computation.matrices):
        raise ComputationError(
            f"matrix_debug_info must have one entry for each of the {len(computation.matrices)} "
            f"matrices (got {len(infos)})"
        )


def whole_submatrices(submatrices: IntArray, matrices: IntArray) -> NDArray[np.bool_]:
    """Returns which submatrices cover a whole matrix: (S,) bool; submatrix 0 does not."""
    same_size = submatrices[:, [2, 4]] == matrices[submatrices[:, 0]]
    covers: NDArray[np.bool_] = same_size.all(axis=1)
    covers[0] = False
    return covers


def _check_shape(name: str, array: IntArray, columns: int) -> None:
    if array.ndim != 2 or array.shape[1] != columns:
        raise ComputationError(f"{name} must have the shape (rows, {columns}) (got {array.shape})")


def _check_matrices(matrices: IntArray) -> None:
    if not len(matrices) or matrices[0].any():
        raise ComputationError("matrices[0] must be the empty matrix, (0, 0)")
    if len(matrices) > 1 and int(matrices[1:].min()) < 1:
        bad = 1 + int(np.flatnonzero((matrices[1:] < 1).any(axis=1))[0])
        raise ComputationError(f"matrices[{bad}] is empty: {matrices[bad].tolist()}")


def _check_submatrices(submatrices: IntArray, matrices: IntArray) -> None:
    if not len(submatrices) or submatrices[0].any():
        raise ComputationError("submatrices[0] must be the empty one, (0, 0, 0, 0, 0)")
    matrix = submatrices[1:, 0]
    known = (matrix > 0) & (matrix < len(matrices))
    size = matrices[np.where(known, matrix, 0)]
    offset, count = submatrices[1:, 1::2], submatrices[1:, 2::2]
    valid = known & ((offset >= 0) & (count > 0) & (count <= size - offset)).all(axis=1)
    if not valid.all():
        bad = 1 + int(np.flatnonzero(~valid)[0])
        raise ComputationError(
            f"submatrices[{bad}] = {submatrices[bad].tolist()} (matrix, row_offset, num_rows, "
            f"col_offset, num_cols) is no part of one of the {len(matrices) - 1} matrices"
        )


def _check_commands(computation: NnetComputation) -> None:
    """Checks the columns of all commands of a type together."""
    table = computation.command_table
    opcodes = table[:, OPCODE_COLUMN]
    limits = _limits(computation)
    is_whole = whole_submatrices(computation.submatrices, computation.matrices)
    is_label = opcodes == NoOperationLabel.OPCODE
    for opcode in distinct(opcodes).tolist():
        positions = np.flatnonzero(opcodes == opcode)
        command_type = SCHEMA.types[opcode] if 0 <= opcode < len(SCHEMA.types) else None
        if command_type is None:
            raise ComputationError(f"commands[{positions[0]}] has the unknown opcode {opcode}")
        rows = table[positions]
        least, most = rows.min(axis=0).tolist(), rows.max(axis=0).tolist()
        used = {OPCODE_COLUMN, ALPHA_COLUMN} if command_type.HAS_ALPHA else {OPCODE_COLUMN}
        for item in command_type.OPERANDS:
            column = item.column
            used.add(column)
            if least[column] < item.least or most[column] >= limits[item.kind]:
                valid = (rows[:, column] >= item.least) & (rows[:, column] < limits[item.kind])
                fault = f"is out of range: there are {limits[item.kind]} of kind {item.kind.name}"
                raise _fault(command_type, item, positions, rows, valid, fault)
            if item.kind is OperandKind.WHOLE_MATRIX:
                if not (valid := is_whole[rows[:, column]]).all():
                    fault = "does not cover a whole matrix"
                    raise _fault(command_type, item, positions, rows, valid, fault)
            elif item.kind is OperandKind.LABEL and not (valid := is_label[rows[:, column]]).all():
                fault = "is not the position of a NoOperationLabel"
                raise _fault(command_type, item, positions, rows, valid, fault)
        if any(least[column] or most[column] for column in set(range(TABLE_WIDTH)) - used):
            raise ComputationError(
                f"commands[{positions[0]}] or a later {command_type.__name__} has a value in an "
                "unused column of the table, which must be 0"
            )


def _limits(computation: NnetComputation) -> dict[OperandKind, int]:
    """One past the largest value of an operand of each kind."""
    limits = dict.fromkeys(OperandKind, 2**31)
    limits[OperandKind.SUBMATRIX] = len(computation.submatrices)
    limits[OperandKind.WHOLE_MATRIX] = len(computation.submatrices)
    limits[OperandKind.PRECOMPUTED] = len(computation.precomputed_indexes)
    limits[OperandKind.INDEXES] = len(computation.indexes)
    limits[OperandKind.INDEXES_MULTI] = len(computation.indexes_multi)
    limits[OperandKind.INDEXES_RANGES] = len(computation.indexes_ranges)
    limits[OperandKind.LABEL] = len(computation.command_table)
    return limits


def _fault(
    command_type: type[Command],
    operand: Operand,
    positions: NDArray[np.intp],
    rows: IntArray,
    valid: NDArray[np.bool_],
    fault: str,
) -> ComputationError:
    """Returns the error for the first command whose operand is not valid."""
    bad = int(np.argmin(valid))
    return ComputationError(
        f"commands[{positions[bad]}]: {command_type.__name__}.{operand.name} = "
        f"{rows[bad, operand.column]} {fault}"
    )


def _check_index_tables(computation: NnetComputation) -> None:
    for number, indexes in enumerate(computation.indexes):
        if indexes.ndim != 1 or (indexes.size and int(indexes.min()) < -1):
            raise ComputationError(f"indexes[{number}] must be a list of numbers from -1 on")
    sizes = computation.submatrices[:, 2]
    for number, pairs in enumerate(computation.indexes_multi):
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ComputationError(f"indexes_multi[{number}] must have the shape (rows, 2)")
        submatrix, row = pairs[:, 0], pairs[:, 1]
        named = (submatrix > 0) & (submatrix < len(sizes))
        named &= (row >= 0) & (row < sizes[np.where(named, submatrix, 0)])
        valid = named | ((submatrix == -1) & (row == -1))
        if not valid.all():
            bad = int(np.flatnonzero(~valid)[0])
            raise ComputationError(
                f"indexes_multi[{number}][{bad}] = {pairs[bad].tolist()} is no row of a submatrix, "
                "nor (-1, -1)"
            )
    for number, ranges in enumerate(computation.indexes_ranges):
        if ranges.ndim != 2 or ranges.shape[1] != 2:
            raise ComputationError(f"indexes_ranges[{number}] must have the shape (rows, 2)")
        begin, end = ranges[:, 0], ranges[:, 1]
        valid = ((begin >= 0) & (begin <= end)) | ((begin == -1) & (end == -1))
        if not valid.all():
            bad = int(np.flatnonzero(~valid)[0])
            raise ComputationError(
                f"indexes_ranges[{number}][{bad}] = {ranges[bad].tolist()} is no range, "
                "nor (-1, -1)"
            )
