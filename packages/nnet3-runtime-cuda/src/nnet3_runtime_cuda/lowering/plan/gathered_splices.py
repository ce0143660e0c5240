"""Finds affine maps whose input is gathered several times from the rows of many matrices.

A layer that sees several steps of a recurrence has an input of as many blocks of columns, into each
of which rows of all steps are copied, the same rows but for the first and the last:

    m9(:, 0:511) = rows(j0)          j0 = m1[0:7], m2[0:7], m3[0:7], ... m69[0:7]
    m9(:, 512:1023) = rows(j1)       j1 = m2[0:7], m3[0:7], m4[0:7], ... m70[0:7]
    m9(:, 1024:1535) = rows(j2)      j2 = m3[0:7], m4[0:7], m5[0:7], ... m71[0:7]
    m10 = tdnn4.affine.propagate(m9)

It needs each row once: those of m1 to m71, 568 in all, and three taps at a distance of 8. They are
gathered, one after another, in the memory of m9. Backward, the sum of the blocks is made in the
memory of the derivative's matrix, and added to each row once:

    m9 = tdnn4.affine.backprop(m10, ...)
    rows(j0) = m9(:, 0:511)          m9 holds the sum, (568, 512), which goes to the
    rows(j1) += m9(:, 512:1023)  =>  rows of m1 to m71
    rows(j2) += m9(:, 1024:1535)

The rules:

- The blocks, of as many columns each, have all rows and columns of their matrix. The commands that
  copy or add rows follow one another in the order of the blocks, with factor 1. At most something
  is freed between them, and between those that add, also allocated: so the last can do it all.
  Nothing with rows that are added to is freed.
- Each list names the rows of the one before, but for some at its beginning, and as many others at
  its end; no row is named twice or left out, or is one of the splice itself.
- But for these commands, only affine maps that gain by it touch the input's matrix; the
  derivative's is zeroed, and one affine map adds to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from nnet3_compiler import NnetComputation
from nnet3_compiler import commands as c
from nnet3_compiler.commands import Command

from nnet3_runtime_cuda.lowering.areas import Area
from nnet3_runtime_cuda.lowering.plan.plan import GatheredRows, Taps
from nnet3_runtime_cuda.lowering.plan.taps import FEWEST_ROWS, GainsByTaps, blocks_of, input_of
from nnet3_runtime_cuda.lowering.plan.trace import Trace, is_end

_Move = c.CopyRowsMulti | c.CopyToRowsMulti | c.AddToRowsMulti
_Pairs = npt.NDArray[np.integer]

FREES = (c.DeallocMatrix,)
"""May stand among commands that copy rows: nothing is written to what they free."""

MEMORY = (*FREES, c.AllocMatrixUndefined, c.AllocMatrixZeroed)
"""May stand among commands that add rows: they give memory to matrices that have the rows."""


def gathered_inputs(trace: Trace, gains: GainsByTaps) -> Iterator[GatheredRows]:
    """Finds all inputs that are gathered.

    Args:
        trace: What the commands do.
        gains: Whether a component computes with taps.
    """
    for position, command in enumerate(_straight(trace)):
        if isinstance(command, c.CopyRowsMulti):
            found = _gathered(trace, _moves(trace, position, c.CopyRowsMulti, FREES))
            if found is not None and _is_input(trace, found, gains):
                yield found


def scattered_derivatives(trace: Trace, gains: GainsByTaps) -> Iterator[GatheredRows]:
    """Finds all derivatives whose blocks are added to rows; see `gathered_inputs`."""
    for position, command in enumerate(_straight(trace)):
        if isinstance(command, c.CopyToRowsMulti | c.AddToRowsMulti):
            found = _gathered(trace, _moves(trace, position, c.AddToRowsMulti, MEMORY))
            if found is not None and _is_derivative(trace, found, gains):
                yield found


def _straight(trace: Trace) -> Sequence[Command]:
    """All commands, if they run in their order; none of a loop."""
    return trace.commands if trace.label is None else ()


def _moves(
    trace: Trace, position: int, following: type[_Move], among: tuple[type[Command], ...]
) -> dict[int, _Move]:
    """The command at a position, and those of a type behind it, perhaps among others."""
    found: dict[int, _Move] = {}
    for at in range(position, len(trace.commands)):
        command = trace.commands[at]
        if at == position or isinstance(command, following):
            assert isinstance(command, _Move)
            found[at] = command
        elif not isinstance(command, among):
            break
    return found


def _gathered(trace: Trace, moves: dict[int, _Move]) -> GatheredRows | None:
    """What the first of some commands are together, if they move the blocks of a splice."""
    places = [trace.areas.of(_block_of(command)) for command in moves.values()]
    matrix, first = places[0]
    whole, columns = trace.areas.whole(matrix), first.column_end
    height, blocks = whole.row_end, blocks_of(whole, columns)
    count = len(blocks)
    if count < 2 or height < FEWEST_ROWS:
        return None
    if places[:count] != [(matrix, block) for block in blocks]:
        return None
    commands = list(moves.values())[:count]
    if any(command.alpha != 1.0 for command in commands):
        return None
    lists = [trace.computation.indexes_multi[command.indexes_multi] for command in commands]
    distance = _distance(trace, lists)
    if distance == 0:
        return None
    rows = joined_rows(lists, distance)
    starts = _places(trace, rows)
    if len(np.unique(starts, axis=0)) != len(rows) or (starts[:, 0] == matrix).any():
        return None
    uses = trace.between(matrix, -1, len(trace.commands))
    others = {use.position for use in uses if not is_end(trace.commands[use.position])}
    area = Area(0, len(rows), 0, columns)
    taps = Taps(matrix=matrix, area=area, count=count, distance=distance, is_packed=True)
    positions = tuple(moves)[:count]
    maps = tuple(sorted(others.difference(positions)))
    return GatheredRows(taps=taps, moves=positions, maps=maps)


def _distance(trace: Trace, lists: Sequence[_Pairs]) -> int:
    """How many rows each list is ahead of the one before; 0 if that is not so, or rows lack."""
    if any((pairs < 0).any() for pairs in lists):
        return 0
    places = [_places(trace, pairs) for pairs in lists]
    (ahead,) = np.nonzero((places[0] == places[1][0]).all(axis=1))
    distance = int(ahead[0]) if len(ahead) else 0
    regular = all(
        np.array_equal(before[distance:], after[: len(after) - distance])
        for before, after in itertools.pairwise(places)
    )
    return distance if regular else 0


def _places(trace: Trace, pairs: _Pairs) -> _Pairs:
    """Matrix, row and column where each row of a list begins: (rows, 3)."""
    submatrices = trace.computation.submatrices[pairs[:, 0]]
    row = submatrices[:, 1] + pairs[:, 1]
    return np.stack([submatrices[:, 0], row, submatrices[:, 3]], axis=1)


def _is_input(trace: Trace, rows: GatheredRows, gains: GainsByTaps) -> bool:
    """Whether affine maps of the whole splice follow, and nothing else."""
    for position in rows.maps:
        command = trace.commands[position]
        if not isinstance(command, c.Propagate | c.Backprop) or position < rows.moves[-1]:
            return False
        is_whole = _is_whole(trace, input_of(command), rows)
        if not (is_whole and gains(command.component, rows.taps.rows, rows.taps.offsets)):
            return False
    return bool(rows.maps)


def _is_derivative(trace: Trace, rows: GatheredRows, gains: GainsByTaps) -> bool:
    """Whether one affine map sets the whole derivative, and it is zeroed before."""
    position = rows.maps[0] if len(rows.maps) == 1 else len(trace.commands)
    if position > rows.moves[0]:
        return False
    command = trace.commands[position]
    if not isinstance(command, c.Backprop | c.BackpropNoModelUpdate):
        return False
    if _are_freed(trace, rows):
        return False
    is_zeroed = trace.is_zeroed(rows.taps.matrix, position)
    is_whole = is_zeroed and _is_whole(trace, command.input_deriv, rows)
    return is_whole and gains(command.component, rows.taps.rows, rows.taps.offsets)


def _are_freed(trace: Trace, rows: GatheredRows) -> bool:
    """Whether a matrix with some of the rows is freed before the last of the moves."""
    matrices = np.unique(_places(trace, rows_of(trace.computation, rows))[:, 0]).tolist()
    first, last = rows.moves[0], rows.moves[-1]
    return any(
        isinstance(trace.commands[use.position], c.DeallocMatrix)
        for matrix in matrices
        for use in trace.between(matrix, first, last)
    )


def _is_whole(trace: Trace, submatrix: int, rows: GatheredRows) -> bool:
    """Whether a submatrix is the whole matrix of a splice."""
    matrix = rows.taps.matrix
    return submatrix > 0 and trace.areas.of(submatrix) == (matrix, trace.areas.whole(matrix))


def joined_rows(lists: Sequence[_Pairs], distance: int) -> _Pairs:
    """Submatrix and row of each row of a splice, (rows, 2): once each, in order.

    Args:
        lists: Those of the blocks, (rows of a block, 2) each.
        distance: How many rows each list is ahead of the one before.
    """
    return np.concatenate([lists[0], *(pairs[-distance:] for pairs in lists[1:])])


def rows_of(computation: NnetComputation, gathered: GatheredRows) -> _Pairs:
    """Submatrix and row of each row that is gathered or scattered, (rows, 2)."""
    commands = [computation.commands[position] for position in gathered.moves]
    lists = [
        computation.indexes_multi[command.indexes_multi]
        for command in commands
        if isinstance(command, _Move)
    ]
    return joined_rows(lists, gathered.taps.distance)


def _block_of(command: _Move) -> int:
    """The submatrix that is not a list of rows."""
    return command.output if isinstance(command, c.CopyRowsMulti) else command.input
