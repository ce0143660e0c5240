"""Matrices that are made again as a sum less its other terms."""

from __future__ import annotations

import numpy as np
from nnet3_computation.analysis import CommandKinds
from nnet3_computation.arrays import Ids
from nnet3_computation.commands import (
    ALPHA_COLUMN,
    OPCODE_COLUMN,
    AddRows,
    CopyRows,
    MatrixAdd,
    MatrixCopy,
    Propagate,
    Table,
    alpha_bits,
    alpha_value,
    columns,
)

from nnet3_optimizer.passes.backward.recompute_activations.kept import (
    INPUT,
    OUTPUT,
    Kept,
    Recipe,
    by_key,
    copy_of,
)
from nnet3_optimizer.passes.backward.recompute_activations.sensitive import is_looked_at_closely

_TERMS = CommandKinds.of(MatrixCopy, MatrixAdd)
_ADDITIONS = {
    MatrixCopy.OPCODE: MatrixAdd.OPCODE,
    MatrixAdd.OPCODE: MatrixAdd.OPCODE,
    CopyRows.OPCODE: AddRows.OPCODE,
    AddRows.OPCODE: AddRows.OPCODE,
}
"""By opcode of a copy or an addition, the opcode of the addition of the same rows."""

_PROPAGATE, _OF_PROPAGATE = columns(Propagate), ("component", "input", "output")


class TermsOfSums:
    """Matrices that were added to a sum that is kept, as are its other terms."""

    def __init__(self, kept: Kept) -> None:
        self._kept, self._draft, self._uses = kept, kept.draft, kept.uses
        reads = kept.reads_by(_TERMS)
        may_be_rounded = ~is_looked_at_closely(kept.draft)[kept.uses.matrix[reads]]
        self._added = self._additions(reads[may_be_rounded])
        totals = {total for added in self._added.values() for _, total in added}
        self._sums = self._writes_to(np.array(sorted(totals), dtype=np.int64))

    def _additions(self, reads: Ids) -> dict[int, list[tuple[int, int]]]:
        """By matrix the commands that add or copy all of it to another, and that other matrix."""
        matrix, command = self._uses.matrix[reads], self._uses.command[reads]
        layout, rows = self._draft.layout, self._draft.table[command]
        fits = layout.is_whole[rows[:, OUTPUT]] & layout.is_whole[rows[:, INPUT]]
        total = layout.matrix_of[rows[:, OUTPUT]]
        fits &= total != matrix
        values = zip(command[fits].tolist(), total[fits].tolist(), strict=True)
        return by_key(matrix[fits], values)

    def _writes_to(self, matrices: Ids) -> dict[int, list[tuple[int, bool, list[int]]]]:
        """By matrix the commands that write to it, whether they write all of it, and their rows."""
        uses = self._uses
        at = uses.of_matrices(matrices)
        at = at[uses.writes[at]]
        command = uses.command[at]
        is_whole = self._draft.layout.is_whole[uses.submatrix[at]].tolist()
        rows = self._draft.table.take(command, axis=0).tolist()
        return by_key(uses.matrix[at], zip(command.tolist(), is_whole, rows, strict=True))

    def find(self, matrix: int) -> Recipe | None:
        """Returns the recipe for a matrix; None if there is none."""
        for command, total in self._added.get(matrix, ()):
            found = self._without_other_terms(matrix, command, total)
            if found is not None:
                return self._kept.recipe(matrix, *found)
        return None

    def _without_other_terms(
        self, matrix: int, own: int, total: int
    ) -> tuple[Table, set[int]] | None:
        uses, whole_submatrix = self._uses, self._draft.layout.whole_submatrix
        first_backward = self._kept.first_backward(matrix)
        whole = int(whole_submatrix[matrix])
        steps = [copy_of(whole, int(whole_submatrix[total]))]
        sources = {total}
        for number, (command, writes_all, row) in enumerate(self._sums[total]):
            if command >= first_backward:
                break
            sets = row[OPCODE_COLUMN] in (MatrixCopy.OPCODE, CopyRows.OPCODE)
            if not writes_all or (sets and number):
                return None
            if command == own or self._is_identity(row):
                continue
            if row[OPCODE_COLUMN] not in _ADDITIONS:
                return None
            alpha = alpha_value(row[ALPHA_COLUMN])
            if abs(alpha) > 1.0 or not uses.is_unchanged(row[INPUT], command, first_backward):
                return None
            step = row.copy()
            step[OPCODE_COLUMN] = _ADDITIONS[row[OPCODE_COLUMN]]
            step[ALPHA_COLUMN], step[OUTPUT] = alpha_bits(-alpha), whole
            steps.append(step)
            sources.add(uses.matrix_of(row[INPUT]))
        return None if matrix in sources else (np.array(steps, np.int32), sources)

    def _is_identity(self, row: list[int]) -> bool:
        """Whether a command runs a NoOp in place."""
        if row[OPCODE_COLUMN] != Propagate.OPCODE:
            return False
        component, given, output = (row[_PROPAGATE[name]] for name in _OF_PROPAGATE)
        is_noop = self._draft.nnet.components[component].type == "NoOpComponent"
        return is_noop and self._uses.rectangles[given] == self._uses.rectangles[output]
