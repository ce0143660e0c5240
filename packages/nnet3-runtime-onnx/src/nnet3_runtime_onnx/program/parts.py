"""Parts of a computation, each of which becomes a model, and the state between them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
from nnet3_computation import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    SCHEMA,
    AcceptInput,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    CompressMatrix,
    DeallocMatrix,
    GotoLabel,
    NnetComputation,
    OperandKind,
    SwapMatrix,
)
from numpy.typing import NDArray

_MAKE = (
    AcceptInput.OPCODE,
    AllocMatrixUndefined.OPCODE,
    AllocMatrixZeroed.OPCODE,
    SwapMatrix.OPCODE,
)
"""Commands after which their first matrix has lost its former content."""

_DROP = (CompressMatrix.OPCODE, DeallocMatrix.OPCODE)
"""Commands after which a matrix has other content, or none."""

Numbers = frozenset[int]


State = Mapping[int, NDArray[np.intp]]
"""Matrices, ascending, and for each the rows that matter, ascending; maybe none."""


@attrs.frozen(eq=False)
class Part:
    """Commands that one model runs.

    Attributes:
        commands: Their positions.
        given: The results of earlier commands that these, or later ones, use.
        handed_on: The results and given matrices of these commands that later ones use.
    """

    commands: range
    given: State
    handed_on: State


@attrs.frozen(eq=False)
class Parts:
    """The forward segments of a computation.

    Attributes:
        segments: The segments; the last one of a loop includes the way back to its label.
        loop_start: The segment that a loop goes back to; None if there is no loop.
    """

    segments: tuple[Part, ...]
    loop_start: int | None

    @classmethod
    def of(cls, computation: NnetComputation) -> Parts:
        """Returns the segments of a computation, with all rows of matrices that are alive."""
        table = computation.command_table
        starts = [0, *(end + 1 for end in computation.segment_ends)]
        ends = starts[1:] or [len(table)]
        starts = starts[: len(ends)]
        loop_start = None
        if len(table) and table[-1, OPCODE_COLUMN] == GotoLabel.OPCODE:
            loop_start = starts.index(int(table[-1, FIRST_OPERAND_COLUMN]))
            ends[-1] = len(table)
        ranges = list(map(range, starts, ends))
        effects = [_effects(computation, each) for each in ranges]
        rows = computation.matrices[:, 0].tolist()
        live = [
            {matrix: np.arange(rows[matrix]) for matrix in sorted(numbers)}
            for numbers in _live(effects, loop_start)
        ]
        return cls(
            segments=tuple(Part(each, live[k], live[k + 1]) for k, each in enumerate(ranges)),
            loop_start=loop_start,
        )

    def joined(self, first: int, end: int) -> Part:
        """Returns the segments from `first` to before `end` as one part."""
        parts = self.segments[first:end]
        commands = range(parts[0].commands.start, parts[-1].commands.stop)
        return Part(commands, parts[0].given, parts[-1].handed_on)


def _effects(computation: NnetComputation, commands: range) -> tuple[Numbers, Numbers]:
    """Returns the matrices whose former content commands use, and the ones they make or drop."""
    used: set[int] = set()
    made: set[int] = set()
    matrix_of = computation.submatrices[:, 0]
    table = computation.command_table[commands.start : commands.stop]
    for row, kind in zip(table, SCHEMA.kind[table[:, OPCODE_COLUMN]], strict=True):
        opcode = int(row[OPCODE_COLUMN])
        named = matrix_of[row[SCHEMA.is_matrix[opcode] & (row > 0)]].tolist()
        if opcode in _MAKE or opcode in _DROP:
            first, *others = named
            used.update({*others} - made)
            made.add(first)
            continue
        lists = row[kind == OperandKind.INDEXES_MULTI].tolist()
        for number in lists:
            named += matrix_of[_submatrices(computation.indexes_multi[number])].tolist()
        used.update({*named} - made)
    return frozenset(used), frozenset(made)


def _submatrices(pairs: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the submatrices that a list of pairs names."""
    numbers = np.unique(pairs[:, 0])
    return numbers[numbers >= 0]


def _live(effects: list[tuple[Numbers, Numbers]], loop_start: int | None) -> list[Numbers]:
    """Returns the matrices that are alive before each segment, and after the last segment."""
    live: list[Numbers] = [frozenset()] * (len(effects) + 1)
    while True:
        before = list(live)
        if loop_start is not None:
            live[-1] = live[loop_start]
        for k in range(len(effects) - 1, -1, -1):
            used, made = effects[k]
            live[k] = used | (live[k + 1] - made)
        if live == before:
            return live
