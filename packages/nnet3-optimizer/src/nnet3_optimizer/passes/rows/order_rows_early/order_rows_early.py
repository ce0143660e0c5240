"""Pass: rows get the order of an output at the place where they have the fewest columns."""

from __future__ import annotations

import numpy as np
from nnet3_computation.arrays import Ids, freeze
from nnet3_computation.commands import (
    OPCODE_COLUMN,
    AddRows,
    CopyRows,
    CopyRowsMulti,
    MatrixCopy,
    NoOperationMarker,
    ProvideOutput,
)
from nnet3_computation.computation import MatrixDebugInfo

from nnet3_optimizer.debug_info import by_sequence
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.passes.rows.order_rows_early.path import (
    GATHERING,
    NONE,
    SECOND,
    THIRD,
    Path,
    Rows,
)


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
    markers = draft.positions(NoOperationMarker.OPCODE)
    outputs = draft.positions(ProvideOutput.OPCODE)
    copies = draft.positions(CopyRows.OPCODE)
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
    after.findings.submatrix_accesses = draft.findings.submatrix_accesses
    after.findings.uses = draft.findings.uses
    after.findings.lifetimes = draft.findings.lifetimes
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
                table[command, OPCODE_COLUMN] = MatrixCopy.OPCODE
                table[command, THIRD] = 0
        for command in self.path.start.sources:
            self._gather(command, self.path.order)
        for command in self.path.start.targets:
            opcode = int(table[command, OPCODE_COLUMN])
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

    def _gather(self, command: int, order: Ids | Rows) -> None:
        """Row i becomes the old row order[i]."""
        row = self.edit.table[command]
        if row[OPCODE_COLUMN] == CopyRowsMulti.OPCODE:
            self._multi(command, order)
            return
        indexes = order
        if row[OPCODE_COLUMN] == CopyRows.OPCODE:
            indexes = self.draft.indexes[row[THIRD]][order]
        row[OPCODE_COLUMN] = CopyRows.OPCODE
        row[THIRD] = self._list(indexes)

    def _take(self, command: int) -> None:
        """Old row j of the matrix that is read is now row places[j]."""
        row = self.edit.table[command]
        indexes: Rows = self.places
        if row[OPCODE_COLUMN] in (CopyRows.OPCODE, AddRows.OPCODE):
            old = self.draft.indexes[row[THIRD]]
            indexes = np.where(old < 0, -1, self.places[old])
        row[OPCODE_COLUMN] = GATHERING[int(row[OPCODE_COLUMN])]
        row[THIRD] = self._list(indexes)

    def _multi(self, command: int, order: Ids | Rows) -> None:
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
        pattern = freeze(info.cindexes[self.path.order])
        self.edit.debug_info(matrix, MatrixDebugInfo(is_deriv=info.is_deriv, pattern=pattern))

    def _is_by_sequence(self, frames: int, sequences: int, block: int) -> bool:
        """Whether the order puts all frames of a sequence together, if blocks of them are now."""
        key = frames, sequences, block
        if key not in self._by_sequence:
            rows = np.arange(frames * sequences).reshape(-1, max(1, sequences), block)
            wanted = rows.transpose(1, 0, 2).ravel()
            self._by_sequence[key] = bool(sequences) and np.array_equal(wanted, self.path.order)
        return self._by_sequence[key]
