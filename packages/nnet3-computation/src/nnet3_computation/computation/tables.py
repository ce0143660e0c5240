"""The fields of a computation, and the checks that they do not contradict each other.

The checks cover what every operand refers to, not whether the commands make sense together: for
that there are `check_runnable`, and `check_computation` of nnet3-optimizer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np
from nnet3_descriptors.components import PrecomputedIndexes
from nnet3_descriptors.structure import NetworkFingerprint
from numpy.typing import NDArray

from nnet3_computation.arrays import (
    IntArray,
    as_table,
    every,
    frozen_array,
    frozen_arrays,
    pair_arrays,
    pair_table,
    run_starts,
)
from nnet3_computation.commands import COMMAND_TYPES, SCHEMA, NoOperationLabel
from nnet3_computation.commands.declaration import (
    ALPHA_COLUMN,
    OPCODE_COLUMN,
    TABLE_WIDTH,
    Command,
    Operand,
    OperandKind,
    alpha_value,
)
from nnet3_computation.computation.parts import DebugInfoOfRows, MatrixDebugInfo, MemoryPlan
from nnet3_computation.errors import ComputationError
from nnet3_computation.request import RequestFingerprint

EMPTY_MATRICES = frozen_array([[0, 0]])
EMPTY_SUBMATRICES = frozen_array([[0, 0, 0, 0, 0]])


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Adds the name of the field to the error about a value that it can't hold."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise ComputationError(f"{field}: {error}") from error


def matrix_table(value: Any) -> IntArray:
    """Returns the matrices as a read-only (rows, 2) int32 array."""
    with naming("matrices"):
        return pair_table(value)


def submatrix_table(value: Any) -> IntArray:
    """Returns the submatrices as a read-only (rows, 5) int32 array."""
    with naming("submatrices"):
        return as_table(value, 5)


def table_of_commands(value: Any) -> IntArray:
    """Returns the commands as a read-only (rows, TABLE_WIDTH) int32 array."""
    with naming("command_table"):
        return as_table(value, TABLE_WIDTH)


def row_lists(value: Any) -> tuple[IntArray, ...]:
    """Returns the lists of rows as read-only int32 arrays."""
    with naming("indexes"):
        return frozen_arrays(value)


def pair_lists(value: Any) -> tuple[IntArray, ...]:
    """Returns the lists of pairs as read-only (rows, 2) int32 arrays."""
    with naming("indexes_multi"):
        return pair_arrays(value)


def range_lists(value: Any) -> tuple[IntArray, ...]:
    """Returns the lists of ranges as read-only (rows, 2) int32 arrays."""
    with naming("indexes_ranges"):
        return pair_arrays(value)


def precomputed_tuple(value: Any) -> tuple[PrecomputedIndexes | None, ...]:
    """Returns the precomputed indexes as a tuple."""
    with naming("precomputed_indexes"):
        return tuple(value)


def info_sequence(value: Any) -> Sequence[MatrixDebugInfo]:
    """Returns the debug info as a tuple, or as an object that makes one on first use."""
    if isinstance(value, DebugInfoOfRows):
        return value
    with naming("matrix_debug_info"):
        return tuple(value)


def step_table(value: Any) -> IntArray:
    """Returns the steps as a read-only (rows, 2) int32 array."""
    with naming("steps"):
        return pair_table(value)


def request_tuple(value: Any) -> tuple[RequestFingerprint, ...]:
    """Returns the fingerprints of requests as a tuple."""
    with naming("requests"):
        return tuple(value)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ComputationTables:
    """The parts of a computation. An `NnetComputation` has the same parts, validated.

    Attributes:
        matrices: (M, 2) int32: rows, columns.
        submatrices: (S, 5) int32: matrix, row_offset, num_rows, col_offset, num_cols.
        command_table: (C, TABLE_WIDTH) int32, one command in each row; `commands` shows it as
            objects, `SCHEMA` says what the columns of each opcode are.
        indexes: Lists of rows; -1 for none.
        indexes_multi: (rows, 2) int32 each: submatrix, row; (-1, -1) for none.
        indexes_ranges: (rows, 2) int32 each: begin, end (not included); (-1, -1) for none.
        precomputed_indexes: The precomputed indexes of non-simple components; entry 0 is None.
        need_model_derivative: Whether the model derivative was asked for.
        matrix_debug_info: The cindexes of the rows of each matrix; empty if not wanted.
        steps: (steps, 2) int32: node and number of rows of the steps from which it was compiled,
            without steps that have no rows; empty if not known. Passes do not change it.
        network: The fingerprint of the network that it was compiled for; None if not known.
        requests: The fingerprint of the request of each segment that it was compiled from, in
            order; empty if not known. A loop has those of the first segments.
        memory_plan: Places for the matrices in one arena; None if the runtime decides.

    Raises:
        ComputationError: A field has a wrong type or shape.
    """

    matrices: IntArray = attrs.field(default=EMPTY_MATRICES, converter=matrix_table)
    submatrices: IntArray = attrs.field(default=EMPTY_SUBMATRICES, converter=submatrix_table)
    command_table: IntArray = attrs.field(default=(), converter=table_of_commands)
    indexes: tuple[IntArray, ...] = attrs.field(default=(), converter=row_lists)
    indexes_multi: tuple[IntArray, ...] = attrs.field(default=(), converter=pair_lists)
    indexes_ranges: tuple[IntArray, ...] = attrs.field(default=(), converter=range_lists)
    precomputed_indexes: tuple[PrecomputedIndexes | None, ...] = attrs.field(
        default=(None,), converter=precomputed_tuple
    )
    need_model_derivative: bool = False
    matrix_debug_info: Sequence[MatrixDebugInfo] = attrs.field(default=(), converter=info_sequence)
    steps: IntArray = attrs.field(default=(), converter=step_table)
    network: NetworkFingerprint | None = None
    requests: tuple[RequestFingerprint, ...] = attrs.field(default=(), converter=request_tuple)
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


def whole_submatrices(submatrices: IntArray, matrices: IntArray) -> NDArray[np.bool_]:
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
        ("network", NetworkFingerprint, _if_there(computation.network)),
        ("requests", RequestFingerprint, computation.requests),
        ("memory_plan", MemoryPlan, _if_there(computation.memory_plan)),
        ("precomputed_indexes", PrecomputedIndexes, computation.precomputed_indexes[1:]),
    )
    for name, kind, values in fields:
        for value in values:
            if not isinstance(value, kind):
                found = type(value).__name__
                raise ComputationError(f"{name}: expected {kind.__name__}, found {found}")


def _if_there(value: object) -> tuple[object, ...]:
    return () if value is None else (value,)


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
    matrix, *ranges = np.ascontiguousarray(submatrices[1:].T)
    valid = (matrix > 0) & (matrix < len(matrices))
    size = matrices.take(matrix if every(valid) else np.where(valid, matrix, 0), axis=0)
    for axis, (offset, count) in enumerate((ranges[:2], ranges[2:])):
        valid &= (offset >= 0) & (count > 0) & (count <= size[:, axis] - offset)
    if not every(valid):
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
    if not every(finite):
        bad = int(np.argmin(finite))
        raise ComputationError(
            f"commands[{bad}] has the scale {alpha_value(int(alpha[bad]))}, expected a finite one"
        )
    order = opcodes.astype(np.int16).argsort(kind="stable")  # int16 takes a radix sort
    rows = table.take(order, axis=0)
    begins = run_starts(rows[:, OPCODE_COLUMN]).nonzero()[0]
    types = rows[begins, OPCODE_COLUMN]
    limits = _limits(computation)
    valid = np.minimum.reduceat(rows, begins) >= _LEAST[types]
    valid &= np.maximum.reduceat(rows, begins) < limits[_KIND[types]]
    is_whole = whole_submatrices(computation.submatrices, computation.matrices)
    groups = [*itertools.pairwise([*begins.tolist(), len(rows)])]
    if not every(valid):
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
            if not every(fits):
                bad = int(np.argmin(fits))
                raise _fault(rows[begin + bad], int(order[begin + bad]), operand, fault)


def _limits(computation: ComputationTables) -> NDArray[np.int64]:
    """One past the largest value of an operand of each kind, by the number of the kind."""
    limits = _UNLIMITED.copy()
    limits[_COUNTED] = (
        1,
        len(computation.submatrices),
        len(computation.submatrices),
        len(computation.precomputed_indexes),
        len(computation.indexes),
        len(computation.indexes_multi),
        len(computation.indexes_ranges),
        len(computation.command_table),
    )
    return limits


_EXPONENT = 0x7F800000
"""The bits of the exponent of a float32; an infinity or nan has all of them set."""

_UNLIMITED = np.full(max(OperandKind) + 1, 2**31)
_COUNTED = np.array(
    [
        OperandKind.NONE,
        OperandKind.SUBMATRIX,
        OperandKind.WHOLE_MATRIX,
        OperandKind.PRECOMPUTED,
        OperandKind.INDEXES,
        OperandKind.INDEXES_MULTI,
        OperandKind.INDEXES_RANGES,
        OperandKind.LABEL,
    ]
)


def _kinds() -> NDArray[np.int8]:
    """`SCHEMA.kind`, where opcode and alpha count as numbers that refer to nothing."""
    kinds = SCHEMA.kind.copy()
    kinds[:, OPCODE_COLUMN] = OperandKind.VALUE
    kinds[[each.OPCODE for each in COMMAND_TYPES if each.HAS_ALPHA], ALPHA_COLUMN] = (
        OperandKind.VALUE
    )
    return kinds


def _least() -> NDArray[np.int64]:
    """The smallest value of each column by opcode: (opcodes, TABLE_WIDTH)."""
    least = (SCHEMA.is_matrix & ~SCHEMA.optional).astype(np.int64)
    least[:, ALPHA_COLUMN] = np.where(_KIND[:, ALPHA_COLUMN] == OperandKind.VALUE, -(2**31), 0)
    return least


def _looked_at(command_type: type[Command] | None) -> tuple[Operand, ...]:
    """The operands of a command class that accept only some of the numbers in their range."""
    kinds = (OperandKind.WHOLE_MATRIX, OperandKind.LABEL)
    operands = command_type.OPERANDS if command_type else ()
    return tuple(item for item in operands if item.kind in kinds)


_KIND = _kinds()
_LEAST = _least()
_LOOKED_AT = tuple(_looked_at(each) for each in SCHEMA.types)


def _out_of_range(
    rows: IntArray, positions: NDArray[np.intp], column: int, limits: NDArray[np.int64]
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


def _fault(row: IntArray, position: int, operand: Operand, fault: str) -> ComputationError:
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
        valid &= row < limits.take(submatrix if every(valid) else np.where(valid, submatrix, 0))
        if not every(valid):
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
        if not every(valid):
            bad = int(np.flatnonzero(~valid)[0])
            raise ComputationError(
                f"indexes_ranges[{number}][{bad}] = {ranges[bad].tolist()} is no range, "
                "nor (-1, -1)"
            )
