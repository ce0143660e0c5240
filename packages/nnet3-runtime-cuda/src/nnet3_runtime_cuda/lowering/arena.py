"""One block of memory for all matrices of a computation, views of it, and moves within it.

Views are of submatrices, and of lists of rows where these lie at regular distances. So copies and
sums of rows, which commands without a component record, become few operations on strided views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from nnet3_computation.computation import NnetComputation
from nnet3_computation.memory import MemoryPlan, plan_memory
from nnet3_descriptors import check_limit

from nnet3_runtime_cuda.errors import DeviceMemoryError
from nnet3_runtime_cuda.lowering.areas import Area, areas_of, wholes_of
from nnet3_runtime_cuda.operations import Array, Tape

Positions = npt.NDArray[np.int64]
"""The starts of rows in the arena, in elements."""

NO_BREAKS: Final[Positions] = np.zeros(0, dtype=np.int64)


class RegularBlocks(NamedTuple):
    """Blocks that cover rows 0, 1, ... of several lists in order.

    Block b has the rows first + i * outer + j * inner of each list, 0 <= i < runs, 0 <= j < length.
    Lists of thousands of sequences can have as many blocks: they are arrays, not objects.

    Attributes:
        start: (blocks,): position in the lists of the first row.
        runs: (blocks,): number of them.
        length: (blocks,): number of rows in each run.
        first: (number of lists, blocks): position in the arena of the first row.
        outer: (number of lists, blocks): distance of the runs.
        inner: (number of lists, blocks): distance of the rows of a run.
    """

    start: Positions
    runs: Positions
    length: Positions
    first: Positions
    outer: Positions
    inner: Positions


def regular_blocks(lists: Positions) -> RegularBlocks:
    """Splits lists of rows that belong together into regular blocks, in order.

    Takes time in proportion to the number of rows.

    Args:
        lists: (number of lists, rows): column i has the place of row i in each list.

    Returns:
        Blocks that cover the rows 0, 1, ... in order; greedy, not always the fewest.
    """
    start = _progressions(lists)
    length = np.diff(start, append=lists.shape[1])
    first = lists[:, start]
    second = np.minimum(start + 1, lists.shape[1] - 1)
    inner = np.where(length > 1, lists[:, second] - first, 0)
    # Runs that may be joined have the same length and the same distances of rows.
    alike = np.concatenate([inner, length[None]])
    at = _progressions(first, breaks=_changes(alike))
    runs = np.diff(at, append=len(start))
    # A block of one run has no next one: it gets the distance 0.
    outer = first[:, np.where(runs > 1, at + 1, at)] - first[:, at]
    return RegularBlocks(start[at], runs, length[at], first[:, at], outer, inner[:, at])


def _progressions(lists: Positions, breaks: Positions = NO_BREAKS) -> Positions:
    """Where the longest progressions begin, taken greedily from the left.

    Args:
        lists: (number of lists, places): numbers that should change by equal steps; at least one
            place.
        breaks: Places at which a progression must not go on, ascending.
    """
    # Bends: places where the step to the next place differs from the step before. A bend is the
    # last place of a progression, unless it is the first.
    bends = _changes(np.diff(lists, axis=1))
    part = np.searchsorted(breaks, bends, side="right")
    firsts = np.concatenate([[0], breaks])[part]
    is_inside = bends > firsts
    bends, part = bends[is_inside], part[is_inside]
    # Among adjacent bends, every second one is the first place of a progression.
    is_apart = np.concatenate([[True], (np.diff(bends) > 1) | (np.diff(part) > 0)])[: len(bends)]
    places = np.arange(len(bends))
    since = places - np.maximum.accumulate(np.where(is_apart, places, 0))
    is_first = np.zeros(lists.shape[1], dtype=np.bool_)
    is_first[0] = True
    is_first[breaks] = True
    is_first[bends[since % 2 == 0] + 1] = True
    return np.flatnonzero(is_first)


def _changes(lists: Positions) -> Positions:
    """The places at which some list differs from the place before, ascending."""
    return np.flatnonzero((lists[:, 1:] != lists[:, :-1]).any(axis=0)) + 1


PIECE = 64
"""The size of the arena is a multiple of this many elements."""
ALIGNMENT = 64
"""Matrices begin at multiples of this many bytes."""


def _plan(computation: NnetComputation) -> MemoryPlan:
    """Returns the plan of a computation if it has this alignment, or else makes one."""
    plan = computation.memory_plan
    if plan is None:
        return plan_memory(computation, alignment=ALIGNMENT)
    for offsets in (plan.offsets, plan.compressed_offsets):
        if (offsets[offsets >= 0] % ALIGNMENT).any():
            return plan_memory(computation, alignment=ALIGNMENT)
    return plan


class Arena:
    """The memory of a computation.

    Attributes:
        size: Number of elements.
        nbytes: Its size.
        areas: The area of each submatrix.
        wholes: All of each matrix.
    """

    def __init__(
        self,
        computation: NnetComputation,
        empty: Callable[[tuple[int, ...], npt.DTypeLike], Array] = np.empty,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        """Takes memory from `empty`, for the memory plan of the computation or a new one.

        Raises:
            DeviceMemoryError: The matrices need more than `Limits.matrix_bytes`, or more than is
                free.
        """
        plan = _plan(computation)
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        # The plan counts in float32 elements of 4 bytes, whatever the dtype is.
        self._offsets = plan.offsets // 4
        self._compressed_offsets = plan.compressed_offsets // 4
        self.areas, self.wholes = areas_of(computation), wholes_of(computation)
        size = -(-plan.arena_bytes // 4)
        # Rounded up, so that the arena can be viewed as pieces of many widths.
        self.size = -(-max(size, 1) // PIECE) * PIECE
        self.nbytes = self.size * self._dtype.itemsize
        what = "the bytes of the matrices of the computation"
        check_limit("matrix_bytes", self.nbytes, what, DeviceMemoryError)
        try:
            self._memory = empty((self.size,), self._dtype)
        except MemoryError as error:
            raise DeviceMemoryError(
                f"the matrices of the computation need {self.nbytes} bytes, which cannot be had"
            ) from error
        matrix, row, _, column, _ = computation.submatrices.astype(np.int64).T
        self._strides = computation.matrices[matrix, 1].astype(np.int64)
        self._starts = self._offsets[matrix] + row * self._strides + column
        # Submatrix 0 stands for none.
        self._views: dict[Area, Array] = {self.areas[0]: np.empty((0, 0), dtype=self._dtype)}

    def view(self, area: Area) -> Array:
        """The (rows, columns) view of an area; the same object on each call."""
        view = self._views.get(area)
        if view is None:
            size, stride = self._dtype.itemsize, self.wholes[area.matrix].columns
            start = self.offset(area.matrix) + area.row * stride + area.column
            # Unlike `as_strided`, this checks bounds, and takes a quarter of the time.
            view = self._views[area] = np.ndarray(
                (area.rows, area.columns),
                self._dtype,
                self._memory,
                start * size,
                (stride * size, size),
            )
        return view

    def flat(self, matrix: int) -> Array:
        """The memory of a matrix: one-dimensional."""
        start, whole = self.offset(matrix), self.wholes[matrix]
        return self._memory[start : start + whole.rows * whole.columns]

    def blocks(self, blocks: RegularBlocks, number: int, columns: int) -> Iterator[Array]:
        """A (runs, length, columns) view of each block of a list of rows, by the list's number."""
        size = self._dtype.itemsize
        starts, outer, inner = (
            (places[number] * size).tolist()
            for places in (blocks.first, blocks.outer, blocks.inner)
        )
        shapes = zip(blocks.runs.tolist(), blocks.length.tolist(), repeat(columns))
        strides = zip(outer, inner, repeat(size))
        # There can be a million blocks: no Python code runs between them.
        return map(np.ndarray, shapes, repeat(self._dtype), repeat(self._memory), starts, strides)

    def compressed(self, matrix: int, columns: int, dtype: npt.DTypeLike) -> Array:
        """The (rows, columns) view of the compressed form of a matrix."""
        rows = self.wholes[matrix].rows
        start = int(self._compressed_offsets[matrix]) * self._dtype.itemsize
        size = rows * columns * np.dtype(dtype).itemsize
        memory = self._memory.view(np.uint8)[start : start + size]
        return memory.view(dtype).reshape(rows, columns)

    def row_positions(self, submatrix: int) -> Positions:
        """The start of each row of a submatrix, in elements."""
        rows = np.arange(self.areas[submatrix].rows, dtype=np.int64)
        return rows * int(self._strides[submatrix]) + int(self._starts[submatrix])

    def positions(self, submatrices: Positions, rows: Positions) -> Positions:
        """The start of row rows[i] of submatrix submatrices[i], in elements."""
        starts: Positions = self._starts[submatrices] + rows * self._strides[submatrices]
        return starts

    def pieces(self, width: int) -> Array:
        """The whole arena as rows of `width` elements, which must divide its size."""
        return self._memory.reshape(-1, width)

    def offset(self, matrix: int) -> int:
        """The start of a matrix, in elements."""
        return int(self._offsets[matrix])


# ---- moves: copies and sums of rows, compression ----

MAX_BLOCKS = 24
"""The most regular blocks of few rows each; lists with more of them are gathered instead."""

MIN_ROWS_PER_BLOCK = 4


def record_move(
    tape: Tape,
    arena: Arena,
    target: Positions,
    source: Positions,
    columns: int,
    alpha: float,
    *,
    add: bool,
) -> None:
    """Records row target[i] (+)= alpha * row source[i], for rows of `columns` columns.

    Args:
        tape: Records the arithmetic.
        arena: The memory in which the rows lie.
        target: (rows,) the starts of the rows to change; none twice.
        source: (rows,) the starts of the rows to read.
        columns: Number of columns of each row.
        alpha: A factor.
        add: Whether to add to the rows; otherwise they are overwritten.
    """
    if not len(target):
        return
    blocks = regular_blocks(np.stack([target, source]))
    count = len(blocks.start)
    if count > MAX_BLOCKS and len(target) < MIN_ROWS_PER_BLOCK * count:
        _record_gathered(tape, arena, target, source, columns, alpha, add=add)
        return
    outputs, sources = (arena.blocks(blocks, number, columns) for number in range(2))
    for out, values in zip(outputs, sources, strict=True):
        record_scaled(tape, values, alpha, out, add=add)


def record_fill(tape: Tape, arena: Arena, target: Positions, columns: int, value: float) -> None:
    """Records that rows are set to a value; each has `columns` columns."""
    if not len(target):
        return
    for rows in arena.blocks(regular_blocks(target[None]), 0, columns):
        tape.fill(value, rows)


def record_scaled(tape: Tape, source: Array, alpha: float, out: Array, *, add: bool) -> None:
    """Records out (+)= alpha * source."""
    if not add:
        if alpha == 1.0:
            tape.copy(source, out)
        else:
            tape.multiply(source, alpha, out)
    elif alpha == 1.0:
        tape.add(out, source, out)
    elif alpha == -1.0:
        tape.subtract(out, source, out)
    else:
        tape.add_scaled(source, alpha, out)


def _record_gathered(
    tape: Tape,
    arena: Arena,
    target: Positions,
    source: Positions,
    columns: int,
    alpha: float,
    *,
    add: bool,
) -> None:
    """Records an irregular move through scratch memory, in pieces of rows.

    The width of a piece divides all positions and the number of columns, so the whole arena can be
    viewed as pieces; the move gathers and scatters these.
    """
    width = int(np.gcd.reduce(np.concatenate([target, source, [columns, arena.size]])))
    pieces = np.arange(columns // width, dtype=np.int64)
    values = tape.scratch(len(target), columns)
    _record_gather(tape, arena, source, pieces, width, values)
    if add:
        old = tape.scratch(len(target), columns)
        _record_gather(tape, arena, target, pieces, width, old)
        record_scaled(tape, values, alpha, old, add=True)
        values = old
    elif alpha != 1.0:
        tape.multiply(values, alpha, values)
    memory = arena.pieces(width)
    rows = (target[:, None] // width + pieces).reshape(-1)
    tape.put_rows(values.reshape(-1, width), rows, memory)


def _record_gather(
    tape: Tape, arena: Arena, source: Positions, pieces: Positions, width: int, out: Array
) -> None:
    rows = (source[:, None] // width + pieces).reshape(-1)
    tape.take_rows(arena.pieces(width), rows, out.reshape(-1, width))


# ---- handing matrices over ----

Memory = tuple[int, Array]
"""The place of a matrix: its first element in the arena, and its view (rows, columns)."""


def record_moves(tape: Tape, moves: Sequence[tuple[Memory, Memory]]) -> None:
    """Records that the contents of sources go to destinations, all as if at once.

    SwapMatrix exchanges the memory of two matrices, as a loop does between its rounds. Here every
    matrix has a fixed place, so the content is copied. The planner may have put the destination of
    one command at the place of another one's source: if an earlier move, or the move itself, writes
    to a source, the source is first copied to scratch memory.
    """
    sources = []
    for number, (source, _) in enumerate(moves):
        values = source[1]
        if any(_overlap(source, destination) for _, destination in moves[: number + 1]):
            values = tape.scratch(*values.shape)
            tape.copy(source[1], values)
        sources.append(values)
    for values, (_, (_, destination)) in zip(sources, moves, strict=True):
        tape.copy(values, destination)


def _overlap(one: Memory, other: Memory) -> bool:
    (begin, view), (other_begin, other_view) = one, other
    return begin < other_begin + other_view.size and other_begin < begin + view.size


# ---- matrices stored in fewer bits between the forward and the backward pass ----

_INTEGERS: dict[int, npt.DTypeLike] = {1: np.int8, 2: np.uint8, 3: np.int16, 4: np.uint16}
"""The type of stored elements, by the number that CompressMatrix gives."""

ONE_BIT = 5
"""The number for packed signs; see `Tape.pack_signs`."""


def stored_as(kind: int, columns: int) -> tuple[int, np.dtype[Any]]:
    """How many numbers are stored for some columns of a matrix, and their type."""
    return -(-columns // 8) if kind == ONE_BIT else columns, np.dtype(_INTEGERS.get(kind, np.uint8))


def record_compress(
    tape: Tape, kind: int, limit: float, values: Array, stored: Array, *, truncate: bool
) -> None:
    """Records stored = values in units of limit / largest integer, rounded.

    Args:
        tape: Records the arithmetic.
        kind: The number that CompressMatrix gives.
        limit: The largest value that can be stored; 0 to store only which values are positive.
        values: (rows, columns).
        stored: As `stored_as` says.
        truncate: Whether values beyond the limit may occur; they are stored as the limit.
    """
    if kind == ONE_BIT:
        tape.pack_signs(values, stored)
        return
    if limit == 0.0:
        tape.greater(values, 0.0, stored.view(np.bool_))
        return
    units, bounds = tape.scratch(*values.shape), np.iinfo(stored.dtype)
    tape.multiply(values, 1.0 / (limit / bounds.max), units)
    tape.round(units, units)
    if truncate:
        tape.maximum(units, float(bounds.min), units)
        tape.minimum(units, float(bounds.max), units)
    tape.copy(units, stored)


def record_decompress(tape: Tape, kind: int, limit: float, stored: Array, values: Array) -> None:
    """Records the inverse of `record_compress`; if limit is 0, 1 for positive and 0 else."""
    if kind == ONE_BIT:
        tape.unpack_signs(stored, values)
    elif limit == 0.0:
        tape.copy(stored.view(np.bool_), values)
    else:
        tape.multiply(stored, limit / np.iinfo(stored.dtype).max, values)
