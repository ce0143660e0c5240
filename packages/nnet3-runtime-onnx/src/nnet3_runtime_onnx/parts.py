"""Parts of a computation, each of which becomes a model, and the state between them.

Later commands may read only a few rows of a matrix of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from nnet3_descriptors import Nnet
from numpy.typing import NDArray

STATE, NEXT_STATE = "state", "next_state"
"""The prefixes of the names of inputs and outputs that are state."""

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


def segments_of(computation: NnetComputation) -> tuple[Part, ...]:
    """Returns the forward segments of a computation, with all rows of matrices that are alive.

    The last one of a loop includes the way back to its label.
    """
    ranges, loop_start = computation.forward_segments
    effects = [_effects(computation, each) for each in ranges]
    rows = computation.matrices[:, 0].tolist()
    live = [
        {matrix: np.arange(rows[matrix]) for matrix in sorted(numbers)}
        for numbers in _live(effects, loop_start)
    ]
    return tuple(Part(each, live[k], live[k + 1]) for k, each in enumerate(ranges))


def joined(segments: Sequence[Part]) -> Part:
    """Returns segments that follow one another as one part."""
    first, last = segments[0], segments[-1]
    commands = range(first.commands.start, last.commands.stop)
    return Part(commands, first.given, last.handed_on)


def state_names(nnet: Nnet, computation: NnetComputation) -> list[str]:
    """Returns a name for each matrix: the name of its node, if it is known, and its number."""
    names = []
    for matrix in range(len(computation.matrices)):
        node = -1
        if computation.matrix_debug_info:
            node = computation.matrix_debug_info[matrix].node
        names.append(f"m{matrix}" if node < 0 else f"{nnet.nodes[node].name}.m{matrix}")
    return names


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


RowUse = tuple[dict[int, Rows], dict[int, NDArray[np.intp]]]
"""The use that a part makes of its state: the rows of each matrix that operators read, or that are
outputs. And for each matrix that is handed on (rows, 3): a row of it, and the given matrix and the
row there that it copies elements from."""


def with_rows_that_matter(
    segments: Sequence[Part], loop_start: int | None, use_of: Callable[[Part], RowUse]
) -> tuple[Part, ...]:
    """Returns segments with the rows of the state that commands read, sooner or later.

    Args:
        segments: With all rows of the state.
        loop_start: The segment that a loop goes back to; None if there is no loop.
        use_of: Returns the use that a part makes of its state.
    """
    if not any(len(part.given) for part in segments):
        return tuple(segments)
    matters, origins = zip(*map(use_of, segments), strict=True)
    ends = [*range(1, len(segments)), loop_start]
    changed = True
    while changed:
        changed = False
        for k in reversed(range(len(segments))):
            end = ends[k]
            if end is None:
                continue
            for matrix, rows in _before(matters[k], origins[k], matters[end]).items():
                both = matters[k][matrix] | rows
                changed |= bool((both != matters[k][matrix]).any())
                matters[k][matrix] = both
    return tuple(
        attrs.evolve(
            part,
            given=_numbers(matters[k]),
            handed_on={} if end is None else _numbers(matters[end]),
        )
        for k, (part, end) in enumerate(zip(segments, ends, strict=True))
    )


def _before(
    given: dict[int, Rows], origins: dict[int, NDArray[np.intp]], after: dict[int, Rows]
) -> dict[int, Rows]:
    """Returns the rows that are copied to rows which are used afterwards."""
    found = {matrix: np.zeros_like(rows) for matrix, rows in given.items()}
    for matrix, rows in after.items():
        needed = origins[matrix][rows[origins[matrix][:, 0]]]
        for source in found:
            found[source][needed[needed[:, 1] == source, 2]] = True
    return found


def _numbers(rows: dict[int, Rows]) -> dict[int, NDArray[np.intp]]:
    """Returns the numbers of rows that matter; none of a matrix whose rows are only copied."""
    return {matrix: np.flatnonzero(each) for matrix, each in rows.items()}
