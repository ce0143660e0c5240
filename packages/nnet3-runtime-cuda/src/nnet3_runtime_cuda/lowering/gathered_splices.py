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
- Each list names the rows of the one before, but for some at its beginning, and as many others at
  its end; no row is named twice or left out, or is one of the splice itself.
- But for these commands, only affine maps that gain by it touch the input's matrix; the
  derivative's is zeroed, and one affine map adds to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler import commands as c
from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.declaration import Command

from .pending_zeros import Area
from .taps import FEWEST_ROWS, GainsByTaps, Taps, blocks_of, input_of
from .uses import Uses, is_end

_Move = c.CopyRowsMulti | c.CopyToRowsMulti | c.AddToRowsMulti
_Pairs = npt.NDArray[np.integer]

FREES = (c.DeallocMatrix,)
"""May stand among commands that copy rows: nothing is written to what they free."""

MEMORY = (*FREES, c.AllocMatrixUndefined, c.AllocMatrixZeroed)
"""May stand among commands that add rows: they give memory to matrices that have the rows."""


@attrs.frozen(kw_only=True, eq=False)
class GatheredRows:
    """The rows of many matrices that a splice, or its derivative, is made of.

    Attributes:
        taps: The rows, one after another in the memory of the splice's matrix.
        rows: Submatrix and row of each, (rows, 2).
        moves: Positions of the commands that copy or add them, block by block.
        maps: Positions of the affine maps.
    """

    taps: Taps
    rows: _Pairs
    moves: tuple[int, ...]
    maps: tuple[int, ...]


def plan_gathered(
    computation: NnetComputation, gains: GainsByTaps, uses: Uses
) -> tuple[list[GatheredRows], list[GatheredRows]]:
    """Finds all inputs and all derivatives that are gathered.

    Args:
        computation: The computation, without a loop.
        gains: Whether a component computes with taps.
        uses: Those of the computation.
    """
    trace = _Trace(computation, uses, gains)
    return list(trace.inputs()), list(trace.derivatives())


class _Trace:
    """Looks at commands that copy or add rows of many matrices."""

    def __init__(self, computation: NnetComputation, uses: Uses, gains: GainsByTaps) -> None:
        self._computation, self._uses, self._gains = computation, uses, gains
        self._commands = uses.commands

    def inputs(self) -> Iterator[GatheredRows]:
        """Inputs that are gathered."""
        for position, command in enumerate(self._commands):
            if isinstance(command, c.CopyRowsMulti):
                found = self._gathered(self._moves(position, c.CopyRowsMulti, FREES))
                if found is not None and self._is_input(found):
                    yield found

    def derivatives(self) -> Iterator[GatheredRows]:
        """Derivatives whose blocks are added to rows."""
        for position, command in enumerate(self._commands):
            if isinstance(command, c.CopyToRowsMulti | c.AddToRowsMulti):
                found = self._gathered(self._moves(position, c.AddToRowsMulti, MEMORY))
                if found is not None and self._is_derivative(found):
                    yield found

    def _moves(
        self, position: int, following: type[_Move], among: tuple[type[Command], ...]
    ) -> dict[int, _Move]:
        """The command at a position, and those of a type behind it, perhaps among others."""
        found: dict[int, _Move] = {}
        for at in range(position, len(self._commands)):
            command = self._commands[at]
            if at == position or isinstance(command, following):
                assert isinstance(command, _Move)
                found[at] = command
            elif not isinstance(command, among):
                break
        return found

    def _gathered(self, moves: dict[int, _Move]) -> GatheredRows | None:
        """What the first of some commands are together, if they move the blocks of a splice."""
        places = [self._uses.place(_block_of(command)) for command in moves.values()]
        matrix, first = places[0]
        whole, columns = self._whole(matrix), first.column_end
        height, blocks = whole.row_end, blocks_of(whole, columns)
        count = len(blocks)
        if count < 2 or height < FEWEST_ROWS:
            return None
        if places[:count] != [(matrix, block) for block in blocks]:
            return None
        commands = list(moves.values())[:count]
        if any(command.alpha != 1.0 for command in commands):
            return None
        lists = [self._computation.indexes_multi[command.indexes_multi] for command in commands]
        distance = self._distance(lists)
        if not 0 < distance < height:
            return None
        rows = np.concatenate([lists[0], *(pairs[-distance:] for pairs in lists[1:])])
        starts = self._places(rows)
        if len(np.unique(starts, axis=0)) != len(rows) or (starts[:, 0] == matrix).any():
            return None
        uses = self._uses.between(matrix, -1, len(self._commands))
        others = {use.position for use in uses if not is_end(self._commands[use.position])}
        area = Area(0, len(rows), 0, columns)
        taps = Taps(matrix=matrix, area=area, count=count, distance=distance, is_packed=True)
        positions = tuple(moves)[:count]
        maps = tuple(sorted(others.difference(positions)))
        return GatheredRows(taps=taps, rows=rows, moves=positions, maps=maps)

    def _distance(self, lists: Sequence[_Pairs]) -> int:
        """How many rows each list is ahead of the one before; 0 if that is not so, or rows lack."""
        if any((pairs < 0).any() for pairs in lists):
            return 0
        places = [self._places(pairs) for pairs in lists]
        (ahead,) = np.nonzero((places[0] == places[1][0]).all(axis=1))
        distance = int(ahead[0]) if len(ahead) else 0
        regular = all(
            np.array_equal(before[distance:], after[: len(after) - distance])
            for before, after in itertools.pairwise(places)
        )
        return distance if regular else 0

    def _places(self, pairs: _Pairs) -> _Pairs:
        """Matrix, row and column where each row of a list begins: (rows, 3)."""
        submatrices = self._computation.submatrices[pairs[:, 0]]
        row = submatrices[:, 1] + pairs[:, 1]
        return np.stack([submatrices[:, 0], row, submatrices[:, 3]], axis=1)

    def _is_input(self, rows: GatheredRows) -> bool:
        """Whether affine maps of the whole splice follow, and nothing else."""
        for position in rows.maps:
            command = self._commands[position]
            if not isinstance(command, c.Propagate | c.Backprop) or position < rows.moves[-1]:
                return False
            is_whole = self._is_whole(input_of(command), rows)
            if not (is_whole and self._gains(command.component, rows.taps)):
                return False
        return bool(rows.maps)

    def _is_derivative(self, rows: GatheredRows) -> bool:
        """Whether one affine map sets the whole derivative, and it is zeroed before."""
        position = rows.maps[0] if len(rows.maps) == 1 else len(self._commands)
        if position > rows.moves[0]:
            return False
        command = self._commands[position]
        if not isinstance(command, c.Backprop | c.BackpropNoModelUpdate):
            return False
        is_zeroed = self._uses.is_zeroed(rows.taps.matrix, position)
        is_whole = is_zeroed and self._is_whole(command.input_deriv, rows)
        return is_whole and self._gains(command.component, rows.taps)

    def _is_whole(self, submatrix: int, rows: GatheredRows) -> bool:
        """Whether a submatrix is the whole matrix of a splice."""
        matrix = rows.taps.matrix
        return submatrix > 0 and self._uses.place(submatrix) == (matrix, self._whole(matrix))

    def _whole(self, matrix: int) -> Area:
        """All of a matrix."""
        rows, columns = self._computation.matrices[matrix].tolist()
        return Area(0, rows, 0, columns)


def _block_of(command: _Move) -> int:
    """The submatrix that is not a list of rows."""
    return command.output if isinstance(command, c.CopyRowsMulti) else command.input
