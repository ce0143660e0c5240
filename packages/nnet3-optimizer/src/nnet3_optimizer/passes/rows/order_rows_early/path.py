"""The way that rows take from where they are narrow to an output."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation.analysis import Uses
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    AcceptInput,
    AddRows,
    AddToRowsMulti,
    Backprop,
    BackpropNoModelUpdate,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    MatrixAdd,
    MatrixCopy,
    Propagate,
    StoreStats,
    operands_of,
)
from nnet3_descriptors.components import ComponentProperties as Property

from nnet3_optimizer.draft import Draft

FIRST, SECOND, THIRD = range(FIRST_OPERAND_COLUMN, FIRST_OPERAND_COLUMN + 3)
"""Columns of the operands of copies."""

_BACKWARD = (Backprop.OPCODE, BackpropNoModelUpdate.OPCODE)
GATHERING = {
    MatrixCopy.OPCODE: CopyRows.OPCODE,
    CopyRows.OPCODE: CopyRows.OPCODE,
    MatrixAdd.OPCODE: AddRows.OPCODE,
    AddRows.OPCODE: AddRows.OPCODE,
}
"""The command that does the same to rows in another order."""

_SCATTERING = (CopyToRowsMulti.OPCODE, AddToRowsMulti.OPCODE)
NONE = 0

Rows = npt.NDArray[np.integer]


@attrs.frozen(kw_only=True)
class Stage:
    """A component on the way to an output.

    Attributes:
        columns: Columns of its input.
        sources: Commands that write its input.
        targets: Commands that read its input derivative.
        steps: The number of pairs of matrices on the way from here on.
    """

    columns: int
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    steps: int


class Path:
    """The way of rows to an output.

    Attributes:
        order: Row i of the output is row order[i] of the matrix that it is copied from.
        places: The inverse: row i of this matrix is row places[i] of the output.
        last_copy, first_copy: The command that copies to the output, and the one that copies from
            its derivative (NONE if there is no derivative).
        matrices: The matrices on the way whose rows change places.
        start: The component at whose input the order is changed instead.
    """

    def __init__(self, draft: Draft, uses: Uses, output: int, marker: int) -> None:
        self.draft = draft
        self.uses = uses
        self.marker = marker
        self._output = output
        self._properties = draft.component_properties
        self.order: Rows = np.zeros(0, np.int64)
        self.places: Rows = self.order
        self.last_copy, self.first_copy = NONE, NONE
        self.matrices: list[int] = []
        self.start = Stage(columns=0, sources=(), targets=(), steps=0)

    def find(self) -> bool:
        """Follows the path back from the output; returns whether the order can change early."""
        value, deriv = self._ends()
        if value == NONE:
            return False
        stages = []
        for stage, matrices in self._stages(value, deriv):
            self.matrices += matrices
            stages.append(stage)
        width = int(self.draft.matrices[value, 1])
        good = [s for s in stages if s.columns < width and s.sources]
        if not good:
            return False
        self.start = min(good, key=lambda stage: stage.columns)
        del self.matrices[self.start.steps :]
        return True

    def _ends(self) -> tuple[int, int]:
        """The matrices that are copied to the output and from its derivative; NONE if rule 1 fails.

        The second one is NONE as well if there is no derivative.
        """
        nothing = NONE, NONE
        provided, node = self.draft.row(self._output)[FIRST:THIRD]
        writers = self.uses.users_of(self.uses.matrix_of(provided), writing=True)
        if len(writers) != 1 or not self.draft.copies_whole(writers[0], CopyRows.OPCODE):
            return nothing
        row = self.draft.row(writers[0])
        self.order = self.draft.indexes[row[THIRD]]
        self.last_copy = writers[0]
        count = len(self.order)
        value = self.uses.matrix_of(row[SECOND])
        if count != int(self.draft.matrices[value, 0]):
            return nothing
        if self.order.min(initial=0) < 0 or self.order.max(initial=-1) >= count:
            return nothing
        self.places = np.full(count, -1, np.int32)
        self.places[self.order] = np.arange(count, dtype=np.int32)
        if self.places.min(initial=0) < 0:
            return nothing
        accepted = self._accepted(node)
        if accepted == NONE:
            return value, NONE
        readers = self.uses.users_of(accepted, writing=False)
        if len(readers) != 1 or not self.draft.copies_whole(readers[0], CopyRows.OPCODE):
            return nothing
        row = self.draft.row(readers[0])
        if not np.array_equal(self.draft.indexes[row[THIRD]], self.places):
            return nothing
        self.first_copy = readers[0]
        deriv = self.uses.matrix_of(row[FIRST])
        return (value, deriv) if self.uses.users_of(deriv, writing=True) == readers else nothing

    def _accepted(self, node: int) -> int:
        """The matrix of the derivative of an output; NONE if there is none."""
        for command in self.draft.positions(AcceptInput.OPCODE).tolist():
            row = self.draft.row(command)
            if command > self.marker and row[SECOND] == node:
                return self.uses.matrix_of(row[FIRST])
        return NONE

    def _stages(self, value: int, deriv: int) -> Iterator[tuple[Stage, list[int]]]:
        """Yields the components on the way, last one first, and the matrices between them."""
        next_reader, steps = self.last_copy, 0
        while True:
            found = self._component(value, deriv, next_reader)
            if found is None:
                return
            given, given_deriv = found
            matrices = [each for each in (value, given, deriv, given_deriv) if each != NONE]
            steps += len(matrices)
            sources = self.uses.users_of(given, writing=True)
            targets = [] if given_deriv == NONE else self.uses.users_of(given_deriv, writing=False)
            can_start = all(self._can_gather(each, given) for each in sources) and all(
                self._can_take(each, given_deriv) for each in targets
            )
            yield (
                Stage(
                    columns=int(self.draft.matrices[given, 1]),
                    sources=tuple(sources) if can_start else (),
                    targets=tuple(targets),
                    steps=steps,
                ),
                matrices,
            )
            # On to the matrix that is copied here as a whole.
            if len(sources) != 1 or not self.draft.copies_whole(sources[0], MatrixCopy.OPCODE):
                return
            value, deriv = self.uses.matrix_of(self.draft.row(sources[0])[SECOND]), NONE
            next_reader = sources[0]
            if given_deriv != NONE:
                if len(targets) != 1 or not self.draft.copies_whole(targets[0], MatrixCopy.OPCODE):
                    return
                deriv = self.uses.matrix_of(self.draft.row(targets[0])[FIRST])
                if self.uses.users_of(deriv, writing=True) != targets:
                    return

    def _component(self, value: int, deriv: int, reader: int) -> tuple[int, int] | None:
        """The input and input derivative of the component that makes a value; None without one."""
        writers = self.uses.users_of(value, writing=True)
        if len(writers) != 1 or self.draft.row(writers[0])[OPCODE_COLUMN] != Propagate.OPCODE:
            return None
        forward = operands_of(self.draft.row(writers[0]))
        properties = int(self._properties[forward.component])
        wrong = int(Property.USES_MEMO | Property.RANDOM)
        if not properties & Property.SIMPLE or properties & wrong:
            return None
        given = self.uses.matrix_of(forward.input)
        if given == value or not self.draft.layout.are_whole(forward.input, forward.output):
            return None
        backward = [] if deriv == NONE else self.uses.users_of(deriv, writing=False)
        given_deriv = NONE
        if deriv != NONE:
            if len(backward) != 1 or self.draft.row(backward[0])[OPCODE_COLUMN] not in _BACKWARD:
                return None
            row = operands_of(self.draft.row(backward[0]))
            given_deriv = self.uses.matrix_of(row.input_deriv)
            named = row.output_deriv, row.input_deriv, row.input_value, row.output_value
            fits = [
                row.component == forward.component,
                self.draft.layout.are_whole(*(each for each in named if each)),
                self.uses.matrix_of(row.output_deriv) == deriv,
                self.uses.matrix_of(row.input_value) in (NONE, given),
                self.uses.matrix_of(row.output_value) in (NONE, value),
                given_deriv not in (deriv, value, given),
                given_deriv == NONE or self.uses.users_of(given_deriv, writing=True) == backward,
            ]
            if not all(fits):
                return None
        allowed = {reader, writers[0], *backward}
        others = {
            *self.uses.users_of(value, writing=False),
            *self.uses.users_of(given, writing=False),
        } - allowed
        if not all(self._stores_stats_of(each, value, given) for each in others):
            return None
        return given, given_deriv

    def _stores_stats_of(self, command: int, value: int, given: int) -> bool:
        row = self.draft.row(command)
        if row[OPCODE_COLUMN] != StoreStats.OPCODE:
            return False
        stored = operands_of(row)
        return (
            self.uses.matrix_of(stored.output) == value
            and self.uses.matrix_of(stored.input) in (NONE, given)
            and self.draft.layout.are_whole(
                *(each for each in (stored.output, stored.input) if each)
            )
        )

    def _all_rows(self, submatrix: int) -> bool:
        part = self.uses.rectangles[submatrix]
        return part.rows == int(self.draft.matrices[part.matrix, 0])

    def _can_gather(self, command: int, given: int) -> bool:
        """Whether a command copies to all rows of a matrix from others."""
        row = self.draft.row(command)
        if row[OPCODE_COLUMN] not in (MatrixCopy.OPCODE, CopyRows.OPCODE, CopyRowsMulti.OPCODE):
            return False
        if not self._all_rows(row[FIRST]):
            return False
        if row[OPCODE_COLUMN] != CopyRowsMulti.OPCODE:
            return self.uses.matrix_of(row[SECOND]) != given
        read = self.draft.pair_lists.named[row[SECOND]]
        return not (self.draft.layout.matrix_of.take(read) == given).any()

    def _can_take(self, command: int, deriv: int) -> bool:
        """Whether a command copies or adds rows of a derivative to another matrix, one by one."""
        row = self.draft.row(command)
        if row[OPCODE_COLUMN] in GATHERING:
            return self._all_rows(row[SECOND]) and self.uses.matrix_of(row[SECOND]) == deriv
        return row[OPCODE_COLUMN] in _SCATTERING and self._all_rows(row[FIRST])
