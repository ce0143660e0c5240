"""Closing a computation in several segments to a loop."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_descriptors.indexes import NO_TIME

from nnet3_compiler.arrays import IntArray, same
from nnet3_compiler.commands import SCHEMA, GotoLabel, NoOperationLabel, ProvideOutput, SwapMatrix
from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.debug_info import MatrixDebugInfo, T
from nnet3_compiler.declaration import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    Access,
    OperandKind,
    Table,
)
from nnet3_compiler.emission import command_rows
from nnet3_compiler.errors import CompilationError
from nnet3_compiler.looped.lifetimes import Lifetimes
from nnet3_compiler.program.step_info import MATRIX


def close_loop(computation: NnetComputation) -> NnetComputation | None:
    """Closes a computation in several segments to a loop.

    Args:
        computation: Has debug info, no backward part, and matrices that are allocated only as long
            as they are used.

    Returns:
        The first segments, a label, the segments that repeat, and the way back to the label; None
        if nothing repeats.

    Raises:
        CompilationError: The computation has no debug info, or fewer than three segments.
    """
    ends = computation.segment_ends
    if len(ends) < 3:
        raise CompilationError(
            f"a loop is found in a computation of at least three segments (got {len(ends)})"
        )
    if not computation.matrix_debug_info:
        raise CompilationError("a loop is found by what matrices stand for: debug info is needed")
    boundaries = _Boundaries.of(computation)
    for first in range(len(ends)):
        for second in range(first + 1, (len(ends) + first + 1) // 2):
            pairs = boundaries.identified(first, second)
            if pairs is None:
                continue
            length = second - first
            body, following = (
                computation.command_table[ends[begin] + 1 : ends[begin + length] + 1]
                for begin in (first, second)
            )
            if _do_the_same(computation, body, following):
                return _closed(computation, ends[first] + 1, ends[second] + 1, pairs)
    return None


@attrs.frozen(kw_only=True, eq=False)
class _Boundaries:
    """What is alive between the segments.

    Attributes:
        computation: The computation.
        shift: How far times move from one segment to the next.
        alive: For each segment the matrices that are used before its end and after it.
    """

    computation: NnetComputation
    shift: int
    alive: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, computation: NnetComputation) -> _Boundaries:
        """Returns the boundaries of a computation in several segments."""
        lifetimes = Lifetimes.of(computation)
        return cls(
            computation=computation,
            shift=_shift_of_outputs(computation),
            alive=tuple(
                tuple(np.flatnonzero((lifetimes.first < end) & (lifetimes.last > end)).tolist())
                for end in computation.segment_ends
            ),
        )

    def identified(self, first: int, second: int) -> list[tuple[int, int]] | None:
        """Returns which matrices after one segment are those after another, shifted in time.

        Returns:
            Pairs of matrices (after the first, after the second); None if not all find a partner.
            Left out is what is alive after both and no longer written to.
        """
        if len(self.alive[first]) != len(self.alive[second]):
            return None
        before, after = (
            {self._kind(matrix, segment): matrix for matrix in self.alive[segment]}
            for segment in (first, second)
        )
        if not len(before) == len(after) == len(self.alive[first]):
            return None
        stays = {matrix for kind, matrix in before.items() if kind not in after}
        if stays != {matrix for kind, matrix in after.items() if kind not in before}:
            return None
        if any(self._is_written_again(matrix) for matrix in stays):
            return None
        return [(matrix, after[kind]) for kind, matrix in before.items() if kind in after]

    def _is_written_again(self, matrix: int) -> bool:
        """Whether a matrix is written to after the first segment that it is alive after.

        Values that all chunks share, such as an i-vector given once, are computed once.
        """
        computation = self.computation
        opcodes = computation.command_table[:, OPCODE_COLUMN]
        submatrices = np.flatnonzero(computation.submatrices[:, MATRIX] == matrix)
        written = SCHEMA.is_matrix[opcodes] & (SCHEMA.access[opcodes] & Access.WRITE > 0)
        written &= np.isin(computation.command_table, submatrices)
        commands = np.flatnonzero(written.any(axis=1))
        ends = zip(computation.segment_ends, self.alive, strict=True)
        first_end = next(end for end, alive in ends if matrix in alive)
        return len(commands) > 0 and int(commands[-1]) > first_end

    def _kind(self, matrix: int, segment: int) -> tuple[object, ...]:
        """Returns what tells matrices apart, times counted from the segment."""
        info = self.computation.matrix_debug_info[matrix]
        pattern = info.pattern.copy()
        pattern[pattern[:, T] != NO_TIME, T] -= segment * self.shift
        return (
            info.is_deriv,
            pattern.tobytes(),
            info.sequences.tobytes(),
            info.block,
            *self.computation.matrices[matrix].tolist(),
        )


def _shift_of_outputs(computation: NnetComputation) -> int:
    """Returns how far the times of the outputs move from the second segment to the third."""
    table, ends = computation.command_table, computation.segment_ends
    outputs = np.flatnonzero(table[:, OPCODE_COLUMN] == ProvideOutput.OPCODE)
    times = []
    for begin, end in ((ends[0], ends[1]), (ends[1], ends[2])):
        command = int(outputs[(outputs > begin) & (outputs < end)][0])
        info = _info(computation, int(table[command, FIRST_OPERAND_COLUMN]))
        times.append(int(info.pattern[0, T]))
    return times[1] - times[0]


def _info(computation: NnetComputation, submatrix: int) -> MatrixDebugInfo:
    return computation.matrix_debug_info[int(computation.submatrices[submatrix, MATRIX])]


def _do_the_same(computation: NnetComputation, first: Table, second: Table) -> bool:
    """Whether two pieces of a program are equal, but for which matrices they work on."""
    if len(first) != len(second) or not np.array_equal(first[:, :2], second[:, :2]):
        return False
    kind = SCHEMA.kind[first[:, OPCODE_COLUMN]]
    for number in (OperandKind.COMPONENT, OperandKind.NODE, OperandKind.VALUE):
        if not np.array_equal(first[kind == number], second[kind == number]):
            return False
    is_matrix = SCHEMA.is_matrix[first[:, OPCODE_COLUMN]]
    places = [computation.submatrices[table[is_matrix], MATRIX + 1 :] for table in (first, second)]
    sizes = [
        computation.matrices[computation.submatrices[table[is_matrix], MATRIX]]
        for table in (first, second)
    ]
    if not (same(*places) and same(*sizes)):
        return False
    return all(
        same(lists[one], lists[other])
        for number, lists in (
            (OperandKind.INDEXES, computation.indexes),
            (OperandKind.INDEXES_RANGES, computation.indexes_ranges),
            (OperandKind.INDEXES_MULTI, [pairs[:, 1:] for pairs in computation.indexes_multi]),
        )
        for one, other in zip(
            first[kind == number].tolist(), second[kind == number].tolist(), strict=True
        )
    )


def _closed(
    computation: NnetComputation, begin: int, end: int, pairs: list[tuple[int, int]]
) -> NnetComputation:
    """Returns the commands up to `end`, with a way back to `begin`."""
    swaps = np.array(_in_order(pairs), np.int32).reshape(-1, 2)
    whole = computation.whole_submatrices
    table = computation.command_table
    parts: list[IntArray] = [
        table[:begin],
        command_rows(NoOperationLabel, 1),
        table[begin:end],
        command_rows(
            SwapMatrix, len(swaps), destination=whole[swaps[:, 0]], source=whole[swaps[:, 1]]
        ),
        command_rows(GotoLabel, 1, label=begin),
    ]
    return attrs.evolve(computation, command_table=np.concatenate(parts))


def _in_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Orders swaps (destination, source) so that every destination has been handed on before.

    Times only move forward, so no destination waits for itself.
    """
    waiting = {destination: source for destination, source in pairs if destination != source}
    ordered = []
    while waiting:
        sources = set(waiting.values())
        ready = [destination for destination in waiting if destination not in sources]
        assert ready, "matrices wait for each other"
        ordered += [(destination, waiting.pop(destination)) for destination in ready]
    return ordered
