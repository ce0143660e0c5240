"""The fields of a computation, and the checks that they do not contradict each other.

The checks cover what every operand refers to, not whether the commands make sense together: for
that there are `check_runnable`, and `check_computation` of nnet3-optimizer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import numpy as np
from nnet3_descriptors import components, structure
from numpy.typing import NDArray

from nnet3_computation import arrays, request
from nnet3_computation.commands import COMMAND_TYPES, SCHEMA, NoOperationLabel
from nnet3_computation.commands.declaration import (
    ALPHA_COLUMN,
    OPCODE_COLUMN,
    TABLE_WIDTH,
    Operand,
    OperandKind,
    alpha_value,
)
from nnet3_computation.computation.parts import DebugInfoOfRows, MatrixDebugInfo, MemoryPlan
from nnet3_computation.errors import ComputationError

_Value = TypeVar("_Value")


def converted(field: str, convert: Callable[..., _Value], *arguments: Any) -> _Value:
    """Returns a converted value; the error about one that can't be converted names the field."""
    try:
        return convert(*arguments)
    except (TypeError, ValueError, OverflowError) as error:
        raise ComputationError(f"{field}: {error}") from error


def _matrices(value: Any) -> arrays.IntArray:
    return converted("matrices", arrays.as_table, value, 2)


def _submatrices(value: Any) -> arrays.IntArray:
    return converted("submatrices", arrays.as_table, value, 5)


def _commands(value: Any) -> arrays.IntArray:
    return converted("command_table", arrays.as_table, value, TABLE_WIDTH)


def _rows(value: Any) -> tuple[arrays.IntArray, ...]:
    return converted("indexes", arrays.frozen_arrays, value)


def _pairs(value: Any) -> tuple[arrays.IntArray, ...]:
    return converted("indexes_multi", arrays.pair_arrays, value)


def _ranges(value: Any) -> tuple[arrays.IntArray, ...]:
    return converted("indexes_ranges", arrays.pair_arrays, value)


def _precomputed(value: Any) -> tuple[components.PrecomputedIndexes | None, ...]:
    return converted("precomputed_indexes", tuple, value)


def _steps(value: Any) -> arrays.IntArray:
    return converted("steps", arrays.as_table, value, 2)


def _requests(value: Any) -> tuple[request.RequestFingerprint, ...]:
    return converted("requests", tuple, value)


def _infos(value: Any) -> Sequence[MatrixDebugInfo]:
    if isinstance(value, DebugInfoOfRows):  # makes a tuple on first use
        return value
    return converted("matrix_debug_info", tuple, value)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ComputationTables:
    """The fields of `NnetComputation`, which says what they mean, before they are validated.

    Raises:
        ComputationError: A field has a wrong type or shape.
    """

    matrices: arrays.IntArray = attrs.field(default=((0, 0),), converter=_matrices)
    submatrices: arrays.IntArray = attrs.field(default=((0, 0, 0, 0, 0),), converter=_submatrices)
    command_table: arrays.IntArray = attrs.field(default=(), converter=_commands)
    indexes: tuple[arrays.IntArray, ...] = attrs.field(default=(), converter=_rows)
    indexes_multi: tuple[arrays.IntArray, ...] = attrs.field(default=(), converter=_pairs)
    indexes_ranges: tuple[arrays.IntArray, ...] = attrs.field(default=(), converter=_ranges)
    precomputed_indexes: tuple[components.PrecomputedIndexes | None, ...] = attrs.field(
        default=(None,), converter=_precomputed
    )
    need_model_derivative: bool = False
    matrix_debug_info: Sequence[MatrixDebugInfo] = attrs.field(default=(), converter=_infos)
    steps: arrays.IntArray = attrs.field(default=(), converter=_steps)
    network: structure.NetworkFingerprint | None = None
    requests: tuple[request.RequestFingerprint, ...] = attrs.field(default=(), converter=_requests)
    memory_plan: MemoryPlan | None = None


def validate(computation: ComputationTables) -> None:
    """Raises a ComputationError that names the first thing that is wrong."""
    _check_kinds(computation)
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
    if computation.steps.size and int(computation.steps.min()) < 0:
        bad = int(np.flatnonzero((computation.steps < 0).any(axis=1))[0])
        raise ComputationError(
            f"steps[{bad}] = {computation.steps[bad].tolist()}: expected a node and a number of "
            "rows, neither negative"
        )
    plan = computation.memory_plan
    if plan is not None and len(plan.offsets) != len(computation.matrices):
        raise ComputationError(
            f"memory_plan must have one offset for each of the {len(computation.matrices)} "
            f"matrices (got {len(plan.offsets)})"
        )
    infos = computation.matrix_debug_info
    if infos and len(infos) != len(computation.matrices):
        raise ComputationError(
            f"matrix_debug_info must have one entry for each of the {len(computation.matrices)} "
            f"matrices (got {len(infos)})"
        )


def whole_submatrices(submatrices: arrays.IntArray, matrices: arrays.IntArray) -> NDArray[np.bool_]:
    """Returns which submatrices cover a whole matrix: (S,) bool; submatrix 0 does not."""
    size = matrices.take(submatrices[:, 0], axis=0)
    covers: NDArray[np.bool_] = submatrices[:, 2] == size[:, 0]
    covers &= submatrices[:, 4] == size[:, 1]
    covers[0] = False
    return covers


def _check_kinds(computation: ComputationTables) -> None:
    """Checks the fields that are no arrays."""
    fields: tuple[tuple[str, type, Sequence[object]], ...] = (
        ("need_model_derivative", bool, (computation.need_model_derivative,)),
        ("network", structure.NetworkFingerprint, _if_there(computation.network)),
        ("requests", request.RequestFingerprint, computation.requests),
        ("memory_plan", MemoryPlan, _if_there(computation.memory_plan)),
        ("precomputed_indexes", components.PrecomputedIndexes, computation.precomputed_indexes[1:]),
    )
    for name, kind, values in fields:
        for value in values:
            if not isinstance(value, kind):
                found = type(value).__name__
                raise ComputationError(f"{name}: expected {kind.__name__}, found {found}")


def _if_there(value: object) -> tuple[object, ...]:
    return () if value is None else (value,)


def _check_shape(name: str, array: arrays.IntArray, columns: int) -> None:
    if array.ndim != 2 or array.shape[1] != columns:
        raise ComputationError(f"{name} must have the shape (rows, {columns}) (got {array.shape})")


def _check_matrices(matrices: arrays.IntArray) -> None:
    if not len(matrices) or matrices[0].any():
        raise ComputationError("matrices[0] must be the empty matrix, (0, 0)")
    if len(matrices) > 1 and int(matrices[1:].min()) < 1:
        bad = 1 + int(np.flatnonzero((matrices[1:] < 1).any(axis=1))[0])
        raise ComputationError(f"matrices[{bad}] is empty: {matrices[bad].tolist()}")


def _check_submatrices(submatrices: arrays.IntArray, matrices: arrays.IntArray) -> None:
    if not len(submatrices) or submatrices[0].any():
        raise ComputationError("submatrices[0] must be the empty one, (0, 0, 0, 0, 0)")
    matrix, *ranges = np.ascontiguousarray(submatrices[1:].T)
    valid = (matrix > 0) & (matrix < len(matrices))
    size = matrices.take(matrix if arrays.every(valid) else np.where(valid, matrix, 0), axis=0)
    for axis, (offset, count) in enumerate((ranges[:2], ranges[2:])):
        valid &= (offset >= 0) & (count > 0) & (count <= size[:, axis] - offset)
    if not arrays.every(valid):
        bad = 1 + int(np.flatnonzero(~valid)[0])
        raise ComputationError(
            f"submatrices[{bad}] = {submatrices[bad].tolist()} (matrix, row_offset, num_rows, "
            f"col_offset, num_cols) does not lie within one of the {len(matrices) - 1} matrices"
        )


def _check_commands(computation: ComputationTables) -> None:
    """Checks the columns of all commands of a type together."""
    table = computation.command_table
    if not len(table):
        return
    opcodes = table[:, OPCODE_COLUMN]
    unknown = (opcodes < 0) | (opcodes >= len(SCHEMA.types))
    if not unknown.any():
        unknown = ~SCHEMA.known.take(opcodes)
    if unknown.any():
        bad = int(np.argmax(unknown))
        raise ComputationError(f"commands[{bad}] has the unknown opcode {opcodes[bad]}")
    alpha = table[:, ALPHA_COLUMN]
    finite = (alpha & _EXPONENT) != _EXPONENT
    if not arrays.every(finite):
        bad = int(np.argmin(finite))
        raise ComputationError(
            f"commands[{bad}] has the scale {alpha_value(int(alpha[bad]))}, expected a finite one"
        )
    order = opcodes.astype(np.int16).argsort(kind="stable")  # int16 takes a radix sort
    rows = table.take(order, axis=0)
    begins = arrays.run_starts(rows[:, OPCODE_COLUMN]).nonzero()[0]
    types = rows[begins, OPCODE_COLUMN]
    limits = _limits(computation)
    valid = np.minimum.reduceat(rows, begins) >= _LEAST[types]
    valid &= np.maximum.reduceat(rows, begins) < limits[_KIND[types]]
    is_whole = whole_submatrices(computation.submatrices, computation.matrices)
    groups = [*itertools.pairwise([*begins.tolist(), len(rows)])]
    if not arrays.every(valid):
        group, column = np.argwhere(~valid)[0].tolist()
        begin, end = groups[group]
        raise _out_of_range(rows[begin:end], order[begin:end], column, limits)
    for opcode, (begin, end) in zip(types.tolist(), groups, strict=True):
        for operand in _LOOKED_AT[opcode]:
            values = rows[begin:end, operand.column]
            if operand.kind is OperandKind.WHOLE_MATRIX:
                fits, fault = is_whole.take(values), "does not cover a whole matrix"
            else:
                fits = opcodes.take(values) == NoOperationLabel.OPCODE
                fault = "is not the position of a NoOperationLabel"
            if not arrays.every(fits):
                bad = int(np.argmin(fits))
                raise _fault(rows[begin + bad], int(order[begin + bad]), operand, fault)


def _limits(computation: ComputationTables) -> NDArray[np.int64]:
    """One past the largest value of an operand of each kind, by the number of the kind."""
    limits = np.full(max(OperandKind) + 1, 2**31)
    for kind, limit in (
        (OperandKind.NONE, 1),
        (OperandKind.SUBMATRIX, len(computation.submatrices)),
        (OperandKind.WHOLE_MATRIX, len(computation.submatrices)),
        (OperandKind.PRECOMPUTED, len(computation.precomputed_indexes)),
        (OperandKind.INDEXES, len(computation.indexes)),
        (OperandKind.INDEXES_MULTI, len(computation.indexes_multi)),
        (OperandKind.INDEXES_RANGES, len(computation.indexes_ranges)),
        (OperandKind.LABEL, len(computation.command_table)),
    ):
        limits[kind] = limit
    return limits


_EXPONENT = 0x7F800000
"""The bits of the exponent of a float32; an infinity or nan has all of them set."""

_KIND = SCHEMA.kind.copy()
"""`SCHEMA.kind`, where opcode and alpha count as numbers that refer to nothing."""
_KIND[:, OPCODE_COLUMN] = OperandKind.VALUE
_KIND[[each.OPCODE for each in COMMAND_TYPES if each.HAS_ALPHA], ALPHA_COLUMN] = OperandKind.VALUE

_LEAST = (SCHEMA.is_matrix & ~SCHEMA.optional).astype(np.int64)
"""The smallest value of each column by opcode: (opcodes, TABLE_WIDTH)."""
_LEAST[:, ALPHA_COLUMN] = np.where(_KIND[:, ALPHA_COLUMN] == OperandKind.VALUE, -(2**31), 0)

_LOOKED_AT = {
    each.OPCODE: [
        item for item in each.OPERANDS if item.kind in (OperandKind.WHOLE_MATRIX, OperandKind.LABEL)
    ]
    for each in COMMAND_TYPES
}
"""By opcode the operands that accept only some of the numbers in their range."""


def _out_of_range(
    rows: arrays.IntArray, positions: NDArray[np.intp], column: int, limits: NDArray[np.int64]
) -> ComputationError:
    """Returns the error for the first of some commands of a type that has a wrong number."""
    opcode = int(rows[0, OPCODE_COLUMN])
    command_type = SCHEMA.types[opcode]
    assert command_type is not None
    kind = OperandKind(int(_KIND[opcode, column]))
    limit = int(limits[kind])
    bad = int(np.argmin((rows[:, column] >= _LEAST[opcode, column]) & (rows[:, column] < limit)))
    if kind is OperandKind.NONE:
        return ComputationError(
            f"commands[{positions[bad]}]: {command_type.__name__} has a value in an unused column "
            "of the table, which must be 0"
        )
    [operand] = [item for item in command_type.OPERANDS if item.column == column]
    fault = f"is out of range: there are {limit} of kind {kind.name}"
    return _fault(rows[bad], int(positions[bad]), operand, fault)


def _fault(row: arrays.IntArray, position: int, operand: Operand, fault: str) -> ComputationError:
    """Returns the error for a command whose operand is not valid."""
    command_type = SCHEMA.types[int(row[OPCODE_COLUMN])]
    assert command_type is not None
    return ComputationError(
        f"commands[{position}]: {command_type.__name__}.{operand.name} = {row[operand.column]} "
        f"{fault}"
    )


def _check_index_tables(computation: ComputationTables) -> None:
    for number, indexes in enumerate(computation.indexes):
        if indexes.ndim != 1 or (indexes.size and int(indexes.min()) < -1):
            raise ComputationError(f"indexes[{number}] must be a list of numbers from -1 on")
    # The number -1, for none, finds the last entry.
    limits = np.append(computation.submatrices[:, 2], 0)
    for number, pairs in enumerate(computation.indexes_multi):
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ComputationError(f"indexes_multi[{number}] must have the shape (rows, 2)")
        submatrix, row = np.ascontiguousarray(pairs.T)
        valid = (submatrix >= -1) & (submatrix < len(limits) - 1)
        valid &= (row >= -1) & ((row < 0) == (submatrix < 0))
        valid &= row < limits.take(
            submatrix if arrays.every(valid) else np.where(valid, submatrix, 0)
        )
        if not arrays.every(valid):
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
        if not arrays.every(valid):
            bad = int(np.flatnonzero(~valid)[0])
            raise ComputationError(
                f"indexes_ranges[{number}][{bad}] = {ranges[bad].tolist()} is no range, "
                "nor (-1, -1)"
            )
