"""Pass: rows get the order of an output at the place where they have the fewest columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from nnet3_computation import analysis, arrays
from nnet3_computation import commands as c
from nnet3_computation.computation import MatrixDebugInfo
from nnet3_descriptors.components import ComponentProperties as Property
from nnet3_descriptors.values import frozen

from nnet3_optimizer.debug_info import by_sequence
from nnet3_optimizer.draft import Draft, Edit


def order_rows_early(draft: Draft) -> Draft:
    """Changes the order of rows before the components that lead to an output, not after them.

    The compiler has rows in the order of times, the user in the order of sequences. The last layers
    of a network have the most columns, so there it costs most to copy all rows in another order,
    and to keep them in both.

    1. The output is a copy of all rows of a matrix in another order, each once; its derivative, if
       the user gives one, is copied back into the first order and used for nothing else.
    2. On the way are only copies of whole matrices, and simple components, which work row by row,
       without memo and not at random. Their updates and statistics are sums over rows.
       Nothing else reads or writes the matrices on the way, neither values nor derivatives.
    3. The commands that copy values to the input of the first of these components, and the commands
       that read its input derivative, change the order: they get other lists of rows. The place
       with the fewest columns is taken.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 8
        m4 = 4 x 4
        m5 = 4 x 8
        i0 = 0, 2, 1, 3
        m1 = accept input
        m2 = undefined
        m2 = m1
        m3 = zeros
        m3 = widen.propagate(m2)
        m5 = undefined
        m5 = m3[i0]
        provide output3 = m5
        segment end
        free m1
        free m2
        free m3

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 8
        m4 = 4 x 4
        m5 = 4 x 8
        i0 = 0, 2, 1, 3
        i1 = 0, 2, 1, 3
        m1 = accept input
        m2 = undefined
        m2 = m1[i1]
        m3 = zeros
        m3 = widen.propagate(m2)
        m5 = undefined
        m5 = m3
        provide output3 = m5
        segment end
        free m1
        free m2
        free m3
    """
    markers = draft.positions(c.NoOperationMarker.OPCODE)
    outputs = draft.positions(c.ProvideOutput.OPCODE)
    copies = draft.positions(c.CopyRows.OPCODE)
    if len(markers) != 1 or not len(copies):
        return draft
    uses = draft.analysis.uses
    edit: Edit | None = None
    for output in outputs[outputs < markers[0]].tolist():
        path = Path(draft, uses, output, int(markers[0]))
        if path.find():
            edit = edit or Edit(draft)
            _Reordering(draft, edit, path).change()
    if not edit:
        return draft
    after = edit.draft()
    # Only lists of rows change, and copies become copies of rows: accesses stay the same.
    after.analysis.take_over(draft.analysis, "submatrix_accesses", "uses", "lifetimes")
    return after


class _Reordering:
    """Gives commands along a path other lists of rows."""

    def __init__(self, draft: Draft, edit: Edit, path: Path) -> None:
        self.draft = draft
        self.edit = edit
        self.path = path
        self.places = path.places
        self._lists: dict[bytes, int] = {}
        self._by_sequence: dict[tuple[int, int, int], bool] = {}

    def change(self) -> None:
        """Changes the order of rows where the path starts, and no more where it ends."""
        table = self.edit.table
        for command in (self.path.last_copy, self.path.first_copy):
            if command != NONE:
                table[command, c.OPCODE_COLUMN] = c.MatrixCopy.OPCODE
                table[command, THIRD] = 0
        for command in self.path.start.sources:
            self._gather(command, self.path.order)
        for command in self.path.start.targets:
            opcode = int(table[command, c.OPCODE_COLUMN])
            if opcode in GATHERING:
                self._take(command)
            else:
                self._multi(command, self.path.order)
        for matrix in self.path.matrices:
            self._reorder_debug_info(matrix)

    def _list(self, rows: Rows) -> int:
        key = rows.astype(np.int32).tobytes()
        if key not in self._lists:
            self._lists[key] = self.edit.indexes(rows.astype(np.int32))
        return self._lists[key]

    def _gather(self, command: int, order: arrays.Ids | Rows) -> None:
        """Row i becomes the old row order[i]."""
        row = self.edit.table[command]
        if row[c.OPCODE_COLUMN] == c.CopyRowsMulti.OPCODE:
            self._multi(command, order)
            return
        indexes = order
        if row[c.OPCODE_COLUMN] == c.CopyRows.OPCODE:
            indexes = self.draft.indexes[row[THIRD]][order]
        row[c.OPCODE_COLUMN] = c.CopyRows.OPCODE
        row[THIRD] = self._list(indexes)

    def _take(self, command: int) -> None:
        """Old row j of the matrix that is read is now row places[j]."""
        row = self.edit.table[command]
        indexes: Rows = self.places
        if row[c.OPCODE_COLUMN] in (c.CopyRows.OPCODE, c.AddRows.OPCODE):
            old = self.draft.indexes[row[THIRD]]
            indexes = np.where(old < 0, -1, self.places[old])
        row[c.OPCODE_COLUMN] = GATHERING[int(row[c.OPCODE_COLUMN])]
        row[THIRD] = self._list(indexes)

    def _multi(self, command: int, order: arrays.Ids | Rows) -> None:
        row = self.edit.table[command]
        pairs = self.draft.indexes_multi[row[SECOND]]
        row[SECOND] = self.edit.indexes_multi(pairs.take(order, axis=0))

    def _reorder_debug_info(self, matrix: int) -> None:
        if not self.draft.debug_info:
            return
        info = self.draft.debug_info[matrix]
        if info.node < 0:
            return
        if self._is_by_sequence(len(info.pattern), len(info.sequences), info.block):
            self.edit.debug_info(matrix, by_sequence(info))
            return
        pattern = frozen(info.cindexes[self.path.order])
        self.edit.debug_info(matrix, MatrixDebugInfo(is_deriv=info.is_deriv, pattern=pattern))

    def _is_by_sequence(self, frames: int, sequences: int, block: int) -> bool:
        """Whether the order puts all frames of a sequence together, if blocks of them are now."""
        key = frames, sequences, block
        if key not in self._by_sequence:
            rows = np.arange(frames * sequences).reshape(-1, max(1, sequences), block)
            wanted = rows.transpose(1, 0, 2).ravel()
            self._by_sequence[key] = bool(sequences) and np.array_equal(wanted, self.path.order)
        return self._by_sequence[key]


FIRST, SECOND, THIRD = range(c.FIRST_OPERAND_COLUMN, c.FIRST_OPERAND_COLUMN + 3)
"""Columns of the operands of copies."""

_BACKWARD = (c.Backprop.OPCODE, c.BackpropNoModelUpdate.OPCODE)
GATHERING = {
    c.MatrixCopy.OPCODE: c.CopyRows.OPCODE,
    c.CopyRows.OPCODE: c.CopyRows.OPCODE,
    c.MatrixAdd.OPCODE: c.AddRows.OPCODE,
    c.AddRows.OPCODE: c.AddRows.OPCODE,
}
"""The command that does the same to rows in another order."""

_SCATTERING = (c.CopyToRowsMulti.OPCODE, c.AddToRowsMulti.OPCODE)
NONE = 0

Rows = npt.NDArray[np.integer]


class Stage(NamedTuple):
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

    def __init__(self, draft: Draft, uses: analysis.Uses, output: int, marker: int) -> None:
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
        if len(writers) != 1 or not self.draft.copies_whole(writers[0], c.CopyRows.OPCODE):
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
        if len(readers) != 1 or not self.draft.copies_whole(readers[0], c.CopyRows.OPCODE):
            return nothing
        row = self.draft.row(readers[0])
        if not np.array_equal(self.draft.indexes[row[THIRD]], self.places):
            return nothing
        self.first_copy = readers[0]
        deriv = self.uses.matrix_of(row[FIRST])
        return (value, deriv) if self.uses.users_of(deriv, writing=True) == readers else nothing

    def _accepted(self, node: int) -> int:
        """The matrix of the derivative of an output; NONE if there is none."""
        for command in self.draft.positions(c.AcceptInput.OPCODE).tolist():
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
            if len(sources) != 1 or not self.draft.copies_whole(sources[0], c.MatrixCopy.OPCODE):
                return
            value, deriv = self.uses.matrix_of(self.draft.row(sources[0])[SECOND]), NONE
            next_reader = sources[0]
            if given_deriv != NONE:
                if len(targets) != 1 or not self.draft.copies_whole(
                    targets[0], c.MatrixCopy.OPCODE
                ):
                    return
                deriv = self.uses.matrix_of(self.draft.row(targets[0])[FIRST])
                if self.uses.users_of(deriv, writing=True) != targets:
                    return

    def _component(self, value: int, deriv: int, reader: int) -> tuple[int, int] | None:
        """The input and input derivative of the component that makes a value; None without one."""
        writers = self.uses.users_of(value, writing=True)
        if len(writers) != 1 or self.draft.row(writers[0])[c.OPCODE_COLUMN] != c.Propagate.OPCODE:
            return None
        forward = c.operands_of(self.draft.row(writers[0]))
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
            if len(backward) != 1 or self.draft.row(backward[0])[c.OPCODE_COLUMN] not in _BACKWARD:
                return None
            row = c.operands_of(self.draft.row(backward[0]))
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
        if row[c.OPCODE_COLUMN] != c.StoreStats.OPCODE:
            return False
        stored = c.operands_of(row)
        return (
            self.uses.matrix_of(stored.output) == value
            and self.uses.matrix_of(stored.input) in (NONE, given)
            and self.draft.layout.are_whole(
                *(each for each in (stored.output, stored.input) if each)
            )
        )

    def _all_rows(self, submatrix: int) -> bool:
        part = self.uses.rectangle(submatrix)
        return part.rows == int(self.draft.matrices[part.matrix, 0])

    def _can_gather(self, command: int, given: int) -> bool:
        """Whether a command copies to all rows of a matrix from others."""
        row = self.draft.row(command)
        if row[c.OPCODE_COLUMN] not in (
            c.MatrixCopy.OPCODE,
            c.CopyRows.OPCODE,
            c.CopyRowsMulti.OPCODE,
        ):
            return False
        if not self._all_rows(row[FIRST]):
            return False
        if row[c.OPCODE_COLUMN] != c.CopyRowsMulti.OPCODE:
            return self.uses.matrix_of(row[SECOND]) != given
        read = self.draft.pair_lists.named[row[SECOND]]
        return not (self.draft.layout.matrix_of.take(read) == given).any()

    def _can_take(self, command: int, deriv: int) -> bool:
        """Whether a command copies or adds rows of a derivative to another matrix, one by one."""
        row = self.draft.row(command)
        if row[c.OPCODE_COLUMN] in GATHERING:
            return self._all_rows(row[SECOND]) and self.uses.matrix_of(row[SECOND]) == deriv
        return row[c.OPCODE_COLUMN] in _SCATTERING and self._all_rows(row[FIRST])
