"""Twelve kinds of damage to computations, as by faulty compilers and passes."""

from collections.abc import Callable
from random import Random

import attrs
import numpy as np
from nnet3_computation import NnetComputation
from nnet3_computation import commands as c

COPY_OF_SUM = {
    c.MatrixAdd.OPCODE: c.MatrixCopy.OPCODE,
    c.AddRows.OPCODE: c.CopyRows.OPCODE,
    c.AddRowsMulti.OPCODE: c.CopyRowsMulti.OPCODE,
    c.AddToRowsMulti.OPCODE: c.CopyToRowsMulti.OPCODE,
}
SUM_OF_COPY = {copy: add for add, copy in COPY_OF_SUM.items()}

Damage = Callable[[Random, NnetComputation], NnetComputation | None]
"""Damages a computation; returns None if the computation has nothing to damage this way.

Raises a ComputationError if the damaged computation cannot be constructed.
"""


def _with_table(computation: NnetComputation, table: np.ndarray) -> NnetComputation:
    return attrs.evolve(computation, command_table=table)


def _any_command(rng: Random, computation: NnetComputation) -> int:
    """A random command that has an effect."""
    idle = (c.NoOperation.OPCODE, c.NoOperationMarker.OPCODE)
    opcodes = computation.command_table[:, c.OPCODE_COLUMN].tolist()
    return rng.choice([at for at, opcode in enumerate(opcodes) if opcode not in idle])


def deleted(rng: Random, computation: NnetComputation) -> NnetComputation:
    """A command is missing."""
    at = _any_command(rng, computation)
    return _with_table(computation, np.delete(computation.command_table, at, axis=0))


def duplicated(rng: Random, computation: NnetComputation) -> NnetComputation:
    """A command is there twice."""
    at, table = _any_command(rng, computation), computation.command_table
    return _with_table(computation, np.insert(table, at, table[at], axis=0))


def moved(rng: Random, computation: NnetComputation) -> NnetComputation:
    """A command is somewhere else."""
    at, table = _any_command(rng, computation), computation.command_table
    rest = np.delete(table, at, axis=0)
    to = rng.choice([place for place in range(len(table)) if place != at])
    return _with_table(computation, np.insert(rest, to, table[at], axis=0))


def swapped(rng: Random, computation: NnetComputation) -> NnetComputation:
    """Two neighbouring commands are in the wrong order."""
    table = computation.command_table.copy()
    at = rng.randrange(len(table) - 1)
    table[[at, at + 1]] = table[[at + 1, at]]
    return _with_table(computation, table)


def _any_submatrix_operand(rng: Random, computation: NnetComputation) -> tuple[int, int]:
    """The place in the table of an operand that names a submatrix."""
    table = computation.command_table
    is_submatrix = c.SCHEMA.is_matrix[table[:, c.OPCODE_COLUMN]] & (table > 0)
    at, column = rng.choice(np.argwhere(is_submatrix).tolist())
    return at, column


def wrong_submatrix(rng: Random, computation: NnetComputation) -> NnetComputation:
    """A command names another submatrix."""
    at, column = _any_submatrix_operand(rng, computation)
    table = computation.command_table.copy()
    numbers = range(1, len(computation.submatrices))
    table[at, column] = rng.choice([s for s in numbers if s != table[at, column]] or [0])
    return _with_table(computation, table)


def wrong_offset(rng: Random, computation: NnetComputation) -> NnetComputation:
    """A command names a submatrix one row or column beside the right one."""
    at, column = _any_submatrix_operand(rng, computation)
    table, submatrices = computation.command_table.copy(), computation.submatrices
    place = submatrices[table[at, column]].copy()
    place[rng.choice([1, 3])] += rng.choice([-1, 1])
    table[at, column] = len(submatrices)
    return attrs.evolve(
        computation, command_table=table, submatrices=np.concatenate([submatrices, place[None]])
    )


def wrong_row_range(rng: Random, computation: NnetComputation) -> NnetComputation | None:
    """A range of rows that are added up begins or ends one row off."""
    lists = computation.indexes_ranges
    places = [
        (number, row, column)
        for number, ranges in enumerate(lists)
        for row, (begin, end) in enumerate(ranges.tolist())
        for column in (0, 1)
        if begin < end
    ]
    if not places:
        return None
    number, row, column = rng.choice(places)
    changed = lists[number].copy()
    changed[row, column] += rng.choice([-1, 1])
    return attrs.evolve(
        computation, indexes_ranges=(*lists[:number], changed, *lists[number + 1 :])
    )


def wrong_row_index(rng: Random, computation: NnetComputation) -> NnetComputation | None:
    """A list of rows names another row that exists."""
    kinds = [kind for kind in ("indexes", "indexes_multi") if getattr(computation, kind)]
    if not kinds:
        return None
    kind = rng.choice(kinds)
    lists = getattr(computation, kind)
    number = rng.randrange(len(lists))
    changed = lists[number].copy()
    at = rng.randrange(len(changed))
    if kind == "indexes":
        size = max(int(changed.max()) + 1, 2)
        changed[at] = rng.choice([row for row in range(size) if row != changed[at]])
    else:
        submatrix, row = changed[at].tolist()
        if submatrix <= 0:
            return None
        rows = int(computation.submatrices[submatrix, 2])
        others = [other for other in range(rows) if other != row]
        if not others:
            return None
        changed[at, 1] = rng.choice(others)
    return attrs.evolve(computation, **{kind: (*lists[:number], changed, *lists[number + 1 :])})


SCALED = (*COPY_OF_SUM, *SUM_OF_COPY)


def wrong_scale(rng: Random, computation: NnetComputation) -> NnetComputation | None:
    """A copy or sum has another factor."""
    table = computation.command_table.copy()
    places = np.flatnonzero(np.isin(table[:, c.OPCODE_COLUMN], SCALED)).tolist()
    if not places:
        return None
    at = rng.choice(places)
    alpha = table[at : at + 1, c.ALPHA_COLUMN].copy().view(np.float32)
    factor = np.float32(rng.choice([-1.0, 0.5, 2.0, 1.001]))
    table[at, c.ALPHA_COLUMN] = (alpha * factor).view(np.int32)[0]
    return _with_table(computation, table)


def wrong_component(rng: Random, computation: NnetComputation) -> NnetComputation | None:
    """A command runs another component of the network."""
    table = computation.command_table.copy()
    columns = c.SCHEMA.component_column[table[:, c.OPCODE_COLUMN]]
    places = np.flatnonzero(columns).tolist()
    if not places:
        return None
    at = rng.choice(places)
    count = 1 + int(table[places, columns[places]].max())
    others = [each for each in range(count) if each != table[at, columns[at]]]
    if not others:
        return None
    table[at, columns[at]] = rng.choice(others)
    return _with_table(computation, table)


def _another_kind(
    rng: Random, computation: NnetComputation, kinds: dict[int, int]
) -> NnetComputation | None:
    table = computation.command_table.copy()
    places = np.flatnonzero(np.isin(table[:, c.OPCODE_COLUMN], list(kinds))).tolist()
    if not places:
        return None
    at = rng.choice(places)
    table[at, c.OPCODE_COLUMN] = kinds[int(table[at, c.OPCODE_COLUMN])]
    return _with_table(computation, table)


def copy_for_add(rng: Random, computation: NnetComputation) -> NnetComputation | None:
    """A command overwrites where it should add."""
    return _another_kind(rng, computation, COPY_OF_SUM)


def add_for_copy(rng: Random, computation: NnetComputation) -> NnetComputation | None:
    """A command adds where it should overwrite."""
    return _another_kind(rng, computation, SUM_OF_COPY)


_KINDS: tuple[Damage, ...] = (
    *(deleted, duplicated, moved, swapped, wrong_submatrix, wrong_offset, wrong_row_range),
    *(wrong_row_index, wrong_scale, wrong_component, copy_for_add, add_for_copy),
)
KINDS = {each.__name__.replace("_", " "): each for each in _KINDS}
"""The kinds of damage."""
