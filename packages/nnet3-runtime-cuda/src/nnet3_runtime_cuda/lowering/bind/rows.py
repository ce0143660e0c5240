"""Copies and sums of lists of rows, recorded as few strided operations on the arena."""

from __future__ import annotations

import numpy as np

from nnet3_runtime_cuda.lowering.bind.arena import Arena, Positions, regular_blocks
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
