"""Closing a computation in several segments to a loop."""

from __future__ import annotations

from typing import NamedTuple

import attrs
import numpy as np
from nnet3_computation import commands
from nnet3_computation.analysis import MATRIX, Analysis, Layout, PairLists
from nnet3_computation.arrays import NONE, Ids, IntArray, same
from nnet3_computation.commands import Table, command_rows
from nnet3_computation.computation import NnetComputation, T
from nnet3_descriptors import indexes, values
from numpy.typing import NDArray

from nnet3_compiler.errors import CompilationError

ALLOCATIONS = (commands.AllocMatrixUndefined.OPCODE, commands.AllocMatrixZeroed.OPCODE)


def matrix_use(computation: NnetComputation) -> tuple[Ids, Ids]:
    """Returns the first and the last command that uses each matrix; see `Analysis.matrix_use`.

    A swap, which only a closed loop has, does not count.
    """
    table = computation.command_table
    components = int(table[:, commands.FIRST_OPERAND_COLUMN].max(initial=0)) + 1
    analysis = Analysis(
        layout=Layout(matrices=computation.matrices, submatrices=computation.submatrices),
        table=table,
        pair_lists=PairLists(computation.indexes_multi),
        component_properties=np.zeros(components, np.int32),  # whether they add does not matter
    )
    return analysis.matrix_use


def with_tight_lifetimes(computation: NnetComputation) -> NnetComputation:
    """Moves every allocation right before the first use, every deallocation after the last.

    Matrices that no command uses are neither allocated nor freed any more.
    """
    table = computation.command_table
    opcodes = table[:, commands.OPCODE_COLUMN]
    first_use, last_use = matrix_use(computation)
    place = np.arange(len(table)) * 2
    allocates, frees = np.isin(opcodes, ALLOCATIONS), opcodes == commands.DeallocMatrix.OPCODE
    # The first operand of other commands may be something else, such as a component.
    whole = np.where(allocates | frees, table[:, commands.FIRST_OPERAND_COLUMN], 0)
    matrix = computation.submatrices[whole, MATRIX]
    place[allocates] = first_use[matrix[allocates]] * 2 - 1
    place[frees] = last_use[matrix[frees]] * 2 + 1
    kept = ~((allocates | frees) & (last_use[matrix] == NONE))
    order = np.argsort(place, kind="stable")
    return attrs.evolve(computation, command_table=table[order[kept[order]]], memory_plan=None)


class Repetition(NamedTuple):
    """Two segments of a computation after which the state is the same, but for a shift in time.

    Attributes:
        first: The earlier segment, from 0.
        second: The later one; the segments after the first up to this one repeat.
        partners: Pairs of matrices: one that is alive after the first segment, and the one in its
            place after the second.
    """

    first: int
    second: int
    partners: list[tuple[int, int]]

    @property
    def length(self) -> int:
        """The number of segments that repeat."""
        return self.second - self.first


def close_loop(
    computation: NnetComputation, shift: int, *, begin: int = 0, unseen: int = 0, unit: int = 1
) -> NnetComputation | None:
    """Closes a computation in several segments to a loop.

    Args:
        computation: Has debug info, no backward part, and matrices that are allocated only as long
            as they are used.
        shift: The number of frames from one segment to the next.
        begin: See `find_repetition`, as for the other arguments.
        unseen: The same.
        unit: The same.

    Returns:
        The first segments, a label, the segments that repeat, and the way back to the label; None
        if nothing repeats.

    Raises:
        CompilationError: See `find_repetition`.
    """
    found = find_repetition(computation, shift, begin=begin, unseen=unseen, unit=unit)
    if found is None:
        return None
    ends = computation.segment_ends
    return _closed(computation, ends[found.first] + 1, ends[found.second] + 1, found.partners)


def find_repetition(
    computation: NnetComputation, shift: int, *, begin: int = 0, unseen: int = 0, unit: int = 1
) -> Repetition | None:
    """Finds the first segments that repeat.

    Two states are the same if they have the same matrices, and if all segments that use them do the
    same.

    Args:
        computation: See `close_loop`.
        shift: The number of frames from one segment to the next.
        begin: The first segment after which states are compared. Before it a state may still grow,
            though it looks the same.
        unseen: The number of the last segments whose rows further segments might read: what is
            alive after them is not known.
        unit: The number of segments that repeat is a multiple of it.

    Returns:
        The repetition with the least first segment; None if nothing repeats.

    Raises:
        CompilationError: The computation has no debug info, or fewer than three segments; or the
            shift is not a positive number of frames of 32 bits, or another number is too small.
    """
    if not values.is_integer(shift) or not 0 < shift <= indexes.INT32_MAX:
        raise CompilationError(f"the shift must be a positive number of frames (got {shift!r})")
    for what, number, least in (("begin", begin, 0), ("unseen", unseen, 0), ("unit", unit, 1)):
        if not values.is_integer(number) or number < least:
            raise CompilationError(f"{what} must be an integer from {least} on (got {number!r})")
    ends = computation.segment_ends
    if len(ends) < 3:
        raise CompilationError(
            f"a loop is found in a computation of at least three segments (got {len(ends)})"
        )
    if not computation.matrix_debug_info:
        raise CompilationError("a loop is found by the rows of matrices: debug info is needed")
    first_use, last_use = matrix_use(computation)
    boundaries = _Boundaries(
        computation=computation,
        shift=shift,
        alive=[np.flatnonzero((first_use < end) & (last_use > end)).tolist() for end in ends],
        last_readers=np.searchsorted(ends, last_use),
    )
    seen = len(ends) - unseen
    for first in range(begin, seen):
        for second in range(first + unit, (seen + first + 1) // 2, unit):
            partners = boundaries.identified(first, second)
            if partners is None:
                continue
            alike = max(second - first, boundaries.num_readers(first, second, partners))
            if second + alike >= len(ends):
                continue
            after_first, after_second = (
                computation.command_table[ends[start] + 1 : ends[start + alike] + 1]
                for start in (first, second)
            )
            if _do_the_same(computation, after_first, after_second, partners):
                return Repetition(first=first, second=second, partners=partners)
    return None


class _Boundaries(NamedTuple):
    """The matrices that are alive between the segments.

    Attributes:
        computation: The computation.
        shift: The distance in time from one segment to the next.
        alive: For each segment the matrices that are used before its end and after it.
        last_readers: (M,), for each matrix the last segment that uses it.
    """

    computation: NnetComputation
    shift: int
    alive: list[list[int]]
    last_readers: NDArray[np.int64]

    def identified(self, first: int, second: int) -> list[tuple[int, int]] | None:
        """Pairs the matrices after one segment with the matrices after another, shifted in time.

        A matrix that has no such partner, but is alive after both segments, is its own partner: it
        holds values that all chunks share, or a state that passes have moved into one matrix.

        Returns:
            Pairs of matrices (after the first, after the second); None if not all find a partner.
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
        return [(matrix, after.get(kind, matrix)) for kind, matrix in before.items()]

    def num_readers(self, first: int, second: int, partners: list[tuple[int, int]]) -> int:
        """Returns how many segments after one, or after another, use matrices of its state.

        A pass may put a value into other columns of a matrix than in the segment before. Two states
        with such a matrix look alike until the last of these segments.
        """
        moving = np.array([pair for pair in partners if pair[0] != pair[1]], np.int64)
        last = self.last_readers[moving.reshape(-1, 2)]
        return int((last - [first, second]).max(initial=0))

    def _kind(self, matrix: int, segment: int) -> tuple[object, ...]:
        """Returns a key that tells matrices apart, with times counted from the segment."""
        info = self.computation.matrix_debug_info[matrix]
        pattern = info.pattern.copy()
        pattern[pattern[:, T] != indexes.NO_TIME, T] -= segment * self.shift
        return (
            info.is_deriv,
            pattern.tobytes(),
            info.sequences.tobytes(),
            info.block,
            *self.computation.matrices[matrix].tolist(),
        )


def _do_the_same(
    computation: NnetComputation, first: Table, second: Table, partners: list[tuple[int, int]]
) -> bool:
    """Whether two pieces of a computation are equal, but for which matrices they work on.

    Args:
        computation: The computation.
        first: Some of its commands.
        second: As many others.
        partners: Matrices of the first piece and of the second that have to stand in the same
            places. Debug info gives the first guess. It tells the cindexes of only one of several
            matrices that were merged, so what the pieces read and write decides.
    """
    if len(first) != len(second) or not np.array_equal(first[:, :2], second[:, :2]):
        return False
    kind = commands.SCHEMA.kind[first[:, commands.OPCODE_COLUMN]]
    for number in (
        commands.OperandKind.COMPONENT,
        commands.OperandKind.NODE,
        commands.OperandKind.VALUE,
    ):
        if not np.array_equal(first[kind == number], second[kind == number]):
            return False
    for number, lists in (
        (commands.OperandKind.PRECOMPUTED, computation.precomputed_indexes),
        (commands.OperandKind.INDEXES, computation.indexes),
        (commands.OperandKind.INDEXES_RANGES, computation.indexes_ranges),
        (commands.OperandKind.INDEXES_MULTI, [pairs[:, 1:] for pairs in computation.indexes_multi]),
    ):
        numbers = first[kind == number].tolist(), second[kind == number].tolist()
        if not all(same(lists[one], lists[other]) for one, other in zip(*numbers, strict=True)):
            return False
    named = [_submatrices(computation, table) for table in (first, second)]
    submatrices = [computation.submatrices[numbers] for numbers in named]
    matrices = [table[:, MATRIX] for table in submatrices]
    places = [table[:, MATRIX + 1 :] for table in submatrices]
    sizes = [computation.matrices[numbers] for numbers in matrices]
    return same(*places) and same(*sizes) and _is_one_to_one(np.stack(matrices, axis=1), partners)


def _submatrices(computation: NnetComputation, table: Table) -> NDArray[np.integer]:
    """Returns all submatrices that commands name, themselves or in lists, in order."""
    opcodes = table[:, commands.OPCODE_COLUMN]
    lists = table[commands.SCHEMA.kind[opcodes] == commands.OperandKind.INDEXES_MULTI].tolist()
    in_lists = [np.maximum(computation.indexes_multi[number][:, 0], 0) for number in lists]
    return np.concatenate([table[commands.SCHEMA.is_matrix[opcodes]], *in_lists])


def _is_one_to_one(matrices: NDArray[np.integer], partners: list[tuple[int, int]]) -> bool:
    """Whether pairs of matrices, (P, 2), and partners give each matrix exactly one other."""
    pairs = np.concatenate([matrices, np.array(partners, matrices.dtype).reshape(-1, 2)])
    pairs = np.unique(pairs, axis=0)
    return all(len(np.unique(column)) == len(pairs) for column in pairs.T)


def _closed(
    computation: NnetComputation, begin: int, end: int, pairs: list[tuple[int, int]]
) -> NnetComputation:
    """Returns the commands up to `end`, with a way back to `begin`."""
    swaps = np.array(_in_order(pairs), np.int32).reshape(-1, 2)
    whole = computation.whole_submatrices
    table = computation.command_table
    parts: list[IntArray] = [
        table[:begin],
        command_rows(commands.NoOperationLabel, 1),
        table[begin:end],
        command_rows(
            commands.SwapMatrix,
            len(swaps),
            destination=whole[swaps[:, 0]],
            source=whole[swaps[:, 1]],
        ),
        command_rows(commands.GotoLabel, 1, label=begin),
    ]
    return attrs.evolve(computation, command_table=np.concatenate(parts), memory_plan=None)


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
