"""Parts of a computation, each of which becomes a model, and the state between them.

Later commands may read only a few rows of a matrix of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import numpy as np
from nnet3_computation import (
    OPCODE_COLUMN,
    SCHEMA,
    AcceptInput,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    CompressMatrix,
    DeallocMatrix,
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
        ranges, loop_start = computation.forward_segments
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


Rows = NDArray[np.bool_]
"""Whether a row is used, for each row of a matrix."""


@attrs.frozen(eq=False)
class RowUse:
    """The use that a part makes of its state.

    Attributes:
        used: The rows of each matrix that operators read, or that are outputs.
        origins: For each matrix that is handed on (rows, 3): a row of it, and the given matrix and
            the row there that it copies elements from.
    """

    used: dict[int, Rows]
    origins: dict[int, NDArray[np.intp]]


def with_rows_that_matter(parts: Parts, use_of: Callable[[Part], RowUse]) -> Parts:
    """Returns parts with the rows of the state that commands read, sooner or later.

    Args:
        parts: With all rows of the state.
        use_of: Returns the use that a part makes of its state.
    """
    if not any(len(part.given) for part in parts.segments):
        return parts
    uses = [use_of(part) for part in parts.segments]
    matters = [dict(use.used) for use in uses]
    ends = [*range(1, len(uses)), parts.loop_start]
    changed = True
    while changed:
        changed = False
        for k, use in reversed(list(enumerate(uses))):
            end = ends[k]
            if end is None:
                continue
            before = _before(use, matters[end])
            for matrix, rows in before.items():
                both = matters[k][matrix] | rows
                changed |= bool((both != matters[k][matrix]).any())
                matters[k][matrix] = both
    return attrs.evolve(
        parts,
        segments=tuple(
            attrs.evolve(
                part,
                given=_numbers(matters[k]),
                handed_on={} if end is None else _numbers(matters[end]),
            )
            for k, (part, end) in enumerate(zip(parts.segments, ends, strict=True))
        ),
    )


def _before(use: RowUse, after: dict[int, Rows]) -> dict[int, Rows]:
    """Returns the rows that are copied to rows which are used afterwards."""
    found = {matrix: np.zeros_like(rows) for matrix, rows in use.used.items()}
    for matrix, rows in after.items():
        origins = use.origins[matrix]
        needed = origins[rows[origins[:, 0]]]
        for source in found:
            found[source][needed[needed[:, 1] == source, 2]] = True
    return found


def _numbers(rows: dict[int, Rows]) -> dict[int, NDArray[np.intp]]:
    """Returns the numbers of rows that matter; none of a matrix whose rows are only copied."""
    return {matrix: np.flatnonzero(each) for matrix, each in rows.items()}
