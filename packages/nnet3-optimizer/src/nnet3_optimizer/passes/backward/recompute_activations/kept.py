"""Matrices that are kept from the forward to the backward part, and recipes for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import attrs
from nnet3_computation.analysis import CommandKinds
from nnet3_computation.arrays import Ids
from nnet3_computation.commands import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    TABLE_WIDTH,
    MatrixCopy,
    Table,
    alpha_bits,
)

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit

OUTPUT, INPUT, INDEXES = range(FIRST_OPERAND_COLUMN, FIRST_OPERAND_COLUMN + 3)
"""The columns of the table for the output, the input and the list of copies and additions."""

NOTHING = 0
_ONE = alpha_bits(1.0)

_Value = TypeVar("_Value")


@attrs.frozen(kw_only=True, eq=False)
class Recipe:
    """Commands that make the content of a matrix again before the backward part reads it.

    Attributes:
        matrix: The matrix.
        last_forward, first_backward: The last command of the forward part and the first of the
            backward part that use it; between the two its memory is free.
        steps: (N, TABLE_WIDTH) the commands that write all elements that are read later.
        sources: The matrices that they read, other than the matrix itself.
        part: The submatrix that is kept in a matrix of its own, from which the rest is copied; 0
            for none. The steps that read it name it.
    """

    matrix: int
    last_forward: int
    first_backward: int
    steps: Table
    sources: tuple[int, ...]
    part: int = NOTHING


class Kept:
    """Matrices that both parts access, and that no command writes to after the forward part.

    Attributes:
        draft: The draft.
        edit: Gets what recipes need.
        uses: The accesses to submatrices, by matrix.
        writes: (N,) the accesses that write to these matrices.
    """

    def __init__(self, draft: Draft, marker: int, edit: Edit, candidates: Ids) -> None:
        """Looks at all candidates at once.

        Args:
            draft: The draft.
            marker: The command between the two parts.
            edit: Gets what recipes need.
            candidates: Matrices that both parts use.
        """
        self.draft = draft
        self.edit = edit
        self.uses = uses = draft.analysis.uses
        read_only = candidates[uses.last_write[candidates] < marker]
        before, after = uses.around(read_only, marker)
        self._gap: dict[int, tuple[int, int]] = dict(
            zip(read_only.tolist(), zip(before.tolist(), after.tolist(), strict=True), strict=True)
        )
        at = uses.of_matrices(read_only)
        at = at[uses.command[at] < marker]
        self.writes = at[uses.writes[at]]
        rows = draft.table[uses.command[at]]
        # With scale 1, and after the last write.
        self._reads = at[
            ~uses.writes[at]
            & (rows[:, ALPHA_COLUMN] == _ONE)
            & (uses.command[at] >= uses.last_write[uses.matrix[at]])
        ]
        self._kinds = draft.opcodes[uses.command[self._reads]]

    def reads_by(self, kinds: CommandKinds) -> Ids:
        """Returns the accesses of commands of some kinds that read candidates unscaled."""
        found: Ids = self._reads[kinds.among(self._kinds)]
        return found

    def first_backward(self, matrix: int) -> int:
        """Returns the first command of the backward part that reads a matrix."""
        return self._gap[matrix][1]

    def recipe(self, matrix: int, steps: Table, sources: set[int], part: int = NOTHING) -> Recipe:
        """Returns a recipe for a matrix; see `Recipe` for steps, sources and part."""
        last_forward, first_backward = self._gap[matrix]
        return Recipe(
            matrix=matrix,
            last_forward=last_forward,
            first_backward=first_backward,
            steps=steps,
            sources=tuple(sorted(sources)),
            part=part,
        )


def by_key(keys: Ids, values: Iterable[_Value]) -> dict[int, list[_Value]]:
    """Returns the values of each key, in their order."""
    found: dict[int, list[_Value]] = {}
    for key, value in zip(keys.tolist(), values, strict=True):
        found.setdefault(key, []).append(value)
    return found


def copy_of(output: int, given: int) -> list[int]:
    """Returns the row of the command that copies one submatrix to another."""
    row = [0] * TABLE_WIDTH
    row[OPCODE_COLUMN], row[ALPHA_COLUMN] = MatrixCopy.OPCODE, _ONE
    row[OUTPUT], row[INPUT] = output, given
    return row
