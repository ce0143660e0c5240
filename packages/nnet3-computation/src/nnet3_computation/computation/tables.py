"""The parts of a computation: read-only arrays and tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from nnet3_descriptors.components import PrecomputedIndexes
from nnet3_descriptors.structure import NetworkFingerprint

from nnet3_computation.arrays import IntArray
from nnet3_computation.arrays.read_only import (
    as_table,
    frozen_array,
    frozen_arrays,
    pair_arrays,
    pair_table,
)
from nnet3_computation.commands import TABLE_WIDTH
from nnet3_computation.computation.debug_info import DebugInfoOfRows, MatrixDebugInfo
from nnet3_computation.computation.memory_plan import MemoryPlan
from nnet3_computation.errors import ComputationError
from nnet3_computation.request_fingerprint import RequestFingerprint

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
