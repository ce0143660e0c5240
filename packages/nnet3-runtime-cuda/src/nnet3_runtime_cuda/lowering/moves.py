"""What commands without a component record: copies and sums of rows, moves, compression.

Lists of rows become few strided operations on the arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.lowering.arena import Arena, Positions, regular_blocks
from nnet3_runtime_cuda.operations import Array, Operations

MAX_BLOCKS = 24
"""The most regular blocks of few rows each; lists with more of them are gathered instead."""

MIN_ROWS_PER_BLOCK = 4


def record_move(
    tape: Operations,
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
    if len(blocks) > MAX_BLOCKS and len(target) < MIN_ROWS_PER_BLOCK * len(blocks):
        _record_gathered(tape, arena, target, source, columns, alpha, add=add)
        return
    outputs, sources = (arena.blocks(blocks, number, columns) for number in range(2))
    for out, values in zip(outputs, sources, strict=True):
        record_scaled(tape, values, alpha, out, add=add)


def record_fill(
    tape: Operations, arena: Arena, target: Positions, columns: int, value: float
) -> None:
    """Records that rows are set to a value; each has `columns` columns."""
    if not len(target):
        return
    for rows in arena.blocks(regular_blocks(target[None]), 0, columns):
        tape.fill(value, rows)


def record_scaled(tape: Operations, source: Array, alpha: float, out: Array, *, add: bool) -> None:
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
    tape: Operations,
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
    tape: Operations, arena: Arena, source: Positions, pieces: Positions, width: int, out: Array
) -> None:
    rows = (source[:, None] // width + pieces).reshape(-1)
    tape.take_rows(arena.pieces(width), rows, out.reshape(-1, width))


# ---- handing matrices over ----

Memory = tuple[int, Array]
"""The place of a matrix: its first element in the arena, and its view (rows, columns)."""


def record_moves(tape: Operations, moves: Sequence[tuple[Memory, Memory]]) -> None:
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
"""The number for packed signs; see `Operations.pack_signs`."""


def stored_as(kind: int, columns: int) -> tuple[int, np.dtype[Any]]:
    """How many numbers are stored for some columns of a matrix, and their type."""
    return -(-columns // 8) if kind == ONE_BIT else columns, np.dtype(_INTEGERS.get(kind, np.uint8))


def record_compress(
    tape: Operations, kind: int, limit: float, values: Array, stored: Array, *, truncate: bool
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
    tape.convert(units, stored)


def record_decompress(
    tape: Operations, kind: int, limit: float, stored: Array, values: Array
) -> None:
    """Records the inverse of `record_compress`; if limit is 0, 1 for positive and 0 else."""
    if kind == ONE_BIT:
        tape.unpack_signs(stored, values)
    elif limit == 0.0:
        tape.copy(stored.view(np.bool_), values)
    else:
        tape.multiply(stored, limit / np.iinfo(stored.dtype).max, values)
