"""Pass: rows are brought into the order of an output where they have the fewest columns."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler.arrays import freeze
from nnet3_compiler.commands import (
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
    NoOperationMarker,
    Propagate,
    ProvideOutput,
    StoreStats,
)
from nnet3_compiler.debug_info import MatrixDebugInfo
from nnet3_compiler.declaration import ALPHA_COLUMN, FIRST_OPERAND_COLUMN, OPCODE_COLUMN, alpha_bits
from nnet3_descriptors.components.properties import ComponentProperties as Property
from nnet3_optimizer.analysis.csr import Ids
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.passes.uses import Uses
from nnet3_optimizer.program import Program

_FIRST, _SECOND, _THIRD = range(FIRST_OPERAND_COLUMN, FIRST_OPERAND_COLUMN + 3)
_ONE = alpha_bits(1.0)
_BACKWARD = (Backprop.OPCODE, BackpropNoModelUpdate.OPCODE)
_GATHERING = {
    MatrixCopy.OPCODE: CopyRows.OPCODE,
    CopyRows.OPCODE: CopyRows.OPCODE,
    MatrixAdd.OPCODE: AddRows.OPCODE,
    AddRows.OPCODE: AddRows.OPCODE,
}
"""What does the same as a command to rows in another order."""

_SCATTERING = (CopyToRowsMulti.OPCODE, AddToRowsMulti.OPCODE)
NONE = 0

Rows = npt.NDArray[np.integer]


def order_rows_early(program: Program) -> Program:
    """Changes the order of rows before the components that lead to an output, not after them.

    The compiler has rows in the order of times, the user in the order of sequences. The last layers
    of a network have the most columns, so there it costs most to copy all rows in another order,
    and to keep them in both.

    1. The output is a copy of all rows of a matrix in another order, each once; its derivative, if
       the user gives one, is copied back into the first order and used for nothing else.
    2. What the rows go through are copies of whole matrices and simple components, which work row
       by row, without memo and not at random. Their updates and statistics are sums over rows.
       Nothing else reads or writes the matrices on the way, neither values nor derivatives.
    3. The order is changed by the commands that copy values to the input of the first of these
       components, and those that take its input derivative elsewhere: they get other lists of rows.
       Of several places the one with the fewest columns is taken.

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
    markers = program.positions(NoOperationMarker.OPCODE)
    outputs = program.positions(ProvideOutput.OPCODE)
    copies = program.positions(CopyRows.OPCODE)
    if len(markers) != 1 or not len(copies):
        return program
    uses = Uses(program)
    edit: Edit | None = None
    for output in outputs[outputs < markers[0]].tolist():
        path = _Path(program, uses, output, int(markers[0]))
        if path.find():
            edit = edit or Edit(program)
            _Reordering(program, edit, path).change()
    return edit.program() if edit else program


@attrs.frozen(kw_only=True)
class _Stage:
    """A component on the way to an output.

    Attributes:
        columns: Columns of its input.
        sources: Commands that write its input.
        targets: Commands that read its input derivative.
        steps: How many pairs of matrices are on the way from here on.
    """

    columns: int
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    steps: int


class _Path:
    """What rows go through on the way to an output.

    Attributes:
        order: Row i of the output is row order[i] of what it is copied from.
        last_copy, first_copy: The command that copies to the output, and the one that copies from
            its derivative (NONE if there is no derivative).
        matrices: The matrices on the way whose rows change places.
        start: Where the order is changed instead.
    """

    def __init__(self, program: Program, uses: Uses, output: int, marker: int) -> None:
        self.program = program
        self.uses = uses
        self.marker = marker
        self._output = output
        self._properties = program.component_properties
        self.order: Rows = np.zeros(0, np.int64)
        self.last_copy, self.first_copy = NONE, NONE
        self.matrices: list[int] = []
        self.start = _Stage(columns=0, sources=(), targets=(), steps=0)

    # -- looking at commands -------------------------------------------------------------------

    def _row(self, command: int) -> list[int]:
        row: list[int] = self.program.table[command].tolist()
        return row

    def _matrix(self, submatrix: int) -> int:
        return self.uses.parts[submatrix].matrix

    def _users(self, matrix: int, *, writing: bool) -> list[int]:
        """The commands that write to a matrix, or only read it; freeing it does not count."""
        at = self.uses.of_matrix(matrix)
        commands = self.uses.command[at[self.uses.writes[at] == writing]]
        users: list[int] = np.unique(commands).tolist()
        return users

    def _is_whole(self, *submatrices: int) -> bool:
        return bool(self.program.layout.is_whole[list(submatrices)].all())

    def _copies_whole(self, command: int, opcode: int) -> bool:
        """Whether a command copies one whole matrix to another, as it is."""
        row = self._row(command)
        return (
            row[OPCODE_COLUMN] == opcode
            and row[ALPHA_COLUMN] == _ONE
            and self._is_whole(row[_FIRST], row[_SECOND])
        )

    # -- following the path --------------------------------------------------------------------

    def find(self) -> bool:
        """Follows the path back from the output; returns whether the order can change early."""
        value, deriv = self._ends()
        if value == NONE:
            return False
        stages = []
        for stage, matrices in self._stages(value, deriv):
            self.matrices += matrices
            stages.append(stage)
        width = int(self.program.matrices[value, 1])
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
        provided, node = self._row(self._output)[_FIRST:_THIRD]
        writers = self._users(self._matrix(provided), writing=True)
        if len(writers) != 1 or not self._copies_whole(writers[0], CopyRows.OPCODE):
            return nothing
        row = self._row(writers[0])
        self.order = self.program.indexes[row[_THIRD]].astype(np.int64)
        self.last_copy = writers[0]
        count = len(self.order)
        value = self._matrix(row[_SECOND])
        if count != int(self.program.matrices[value, 0]) or self.order.min(initial=0) < 0:
            return nothing
        places = np.full(count, -1)
        places[self.order] = np.arange(count)
        if (places < 0).any():
            return nothing
        accepted = self._accepted(node)
        if accepted == NONE:
            return value, NONE
        readers = self._users(accepted, writing=False)
        if len(readers) != 1 or not self._copies_whole(readers[0], CopyRows.OPCODE):
            return nothing
        row = self._row(readers[0])
        if not np.array_equal(self.program.indexes[row[_THIRD]], places):
            return nothing
        self.first_copy = readers[0]
        deriv = self._matrix(row[_FIRST])
        return (value, deriv) if self._users(deriv, writing=True) == readers else nothing

    def _accepted(self, node: int) -> int:
        """The matrix of the derivative of an output; NONE if there is none."""
        for command in self.program.positions(AcceptInput.OPCODE).tolist():
            row = self._row(command)
            if command > self.marker and row[_SECOND] == node:
                return self._matrix(row[_FIRST])
        return NONE

    def _stages(self, value: int, deriv: int) -> Iterator[tuple[_Stage, list[int]]]:
        """Yields the components on the way, last one first, and the matrices between them."""
        next_reader, steps = self.last_copy, 0
        while True:
            found = self._component(value, deriv, next_reader)
            if found is None:
                return
            given, given_deriv = found
            matrices = [each for each in (value, given, deriv, given_deriv) if each != NONE]
            steps += len(matrices)
            sources = self._users(given, writing=True)
            targets = [] if given_deriv == NONE else self._users(given_deriv, writing=False)
            can_start = all(self._can_gather(each, given) for each in sources) and all(
                self._can_take(each, given_deriv) for each in targets
            )
            yield (
                _Stage(
                    columns=int(self.program.matrices[given, 1]),
                    sources=tuple(sources) if can_start else (),
                    targets=tuple(targets),
                    steps=steps,
                ),
                matrices,
            )
            # On to what is copied here as a whole.
            if len(sources) != 1 or not self._copies_whole(sources[0], MatrixCopy.OPCODE):
                return
            value, deriv = self._matrix(self._row(sources[0])[_SECOND]), NONE
            next_reader = sources[0]
            if given_deriv != NONE:
                if len(targets) != 1 or not self._copies_whole(targets[0], MatrixCopy.OPCODE):
                    return
                deriv = self._matrix(self._row(targets[0])[_FIRST])
                if self._users(deriv, writing=True) != targets:
                    return

    def _component(self, value: int, deriv: int, reader: int) -> tuple[int, int] | None:
        """The input and input derivative of the component that makes a value; None for rule 2."""
        writers = self._users(value, writing=True)
        if len(writers) != 1 or self._row(writers[0])[OPCODE_COLUMN] != Propagate.OPCODE:
            return None
        forward = Propagate.from_row(self._row(writers[0]))
        properties = int(self._properties[forward.component])
        wrong = int(Property.USES_MEMO | Property.RANDOM)
        if not properties & Property.SIMPLE or properties & wrong:
            return None
        given = self._matrix(forward.input)
        if given == value or not self._is_whole(forward.input, forward.output):
            return None
        backward = [] if deriv == NONE else self._users(deriv, writing=False)
        given_deriv = NONE
        if deriv != NONE:
            if len(backward) != 1 or self._row(backward[0])[OPCODE_COLUMN] not in _BACKWARD:
                return None
            row = Backprop.from_row(self._row(backward[0]))
            given_deriv = self._matrix(row.input_deriv)
            named = row.output_deriv, row.input_deriv, row.input_value, row.output_value
            fits = [
                row.component == forward.component,
                self._is_whole(*(each for each in named if each)),
                self._matrix(row.output_deriv) == deriv,
                self._matrix(row.input_value) in (NONE, given),
                self._matrix(row.output_value) in (NONE, value),
                given_deriv not in (deriv, value, given),
                given_deriv == NONE or self._users(given_deriv, writing=True) == backward,
            ]
            if not all(fits):
                return None
        allowed = {reader, writers[0], *backward}
        others = {*self._users(value, writing=False), *self._users(given, writing=False)} - allowed
        if not all(self._stores_stats_of(each, value, given) for each in others):
            return None
        return given, given_deriv

    def _stores_stats_of(self, command: int, value: int, given: int) -> bool:
        row = self._row(command)
        if row[OPCODE_COLUMN] != StoreStats.OPCODE:
            return False
        stored = StoreStats.from_row(row)
        return (
            self._matrix(stored.output) == value
            and self._matrix(stored.input) in (NONE, given)
            and self._is_whole(*(each for each in (stored.output, stored.input) if each))
        )

    def _all_rows(self, submatrix: int) -> bool:
        part = self.uses.parts[submatrix]
        return part.rows == int(self.program.matrices[part.matrix, 0])

    def _can_gather(self, command: int, given: int) -> bool:
        """Whether a command copies to all rows of a matrix from others."""
        row = self._row(command)
        if row[OPCODE_COLUMN] not in (MatrixCopy.OPCODE, CopyRows.OPCODE, CopyRowsMulti.OPCODE):
            return False
        read = {self._matrix(each) for each in self.uses.read_by(command)}
        return self._all_rows(row[_FIRST]) and given not in read

    def _can_take(self, command: int, deriv: int) -> bool:
        """Whether a command takes rows of a derivative elsewhere, one by one."""
        row = self._row(command)
        if row[OPCODE_COLUMN] in _GATHERING:
            return self._all_rows(row[_SECOND]) and self._matrix(row[_SECOND]) == deriv
        return row[OPCODE_COLUMN] in _SCATTERING and self._all_rows(row[_FIRST])


class _Reordering:
    """Gives commands along a path other lists of rows."""

    def __init__(self, program: Program, edit: Edit, path: _Path) -> None:
        self.program = program
        self.edit = edit
        self.path = path
        self.places: Ids = np.empty(len(path.order), dtype=np.int64)
        self.places[path.order] = np.arange(len(path.order))
        self._lists: dict[bytes, int] = {}

    def change(self) -> None:
        """Changes the order of rows where the path starts, and no more where it ends."""
        table = self.edit.table
        for command in (self.path.last_copy, self.path.first_copy):
            if command != NONE:
                table[command, OPCODE_COLUMN] = MatrixCopy.OPCODE
                table[command, _THIRD] = 0
        for command in self.path.start.sources:
            self._gather(command, self.path.order)
        for command in self.path.start.targets:
            opcode = int(table[command, OPCODE_COLUMN])
            if opcode in _GATHERING:
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
        """Row i becomes what row order[i] was."""
        row = self.edit.table[command]
        if row[OPCODE_COLUMN] == CopyRowsMulti.OPCODE:
            self._multi(command, order)
            return
        indexes = order
        if row[OPCODE_COLUMN] == CopyRows.OPCODE:
            indexes = self.program.indexes[row[_THIRD]][order]
        row[OPCODE_COLUMN] = CopyRows.OPCODE
        row[_THIRD] = self._list(indexes)

    def _take(self, command: int) -> None:
        """Row j of what was read is now row places[j]."""
        row = self.edit.table[command]
        indexes: Rows = self.places
        if row[OPCODE_COLUMN] in (CopyRows.OPCODE, AddRows.OPCODE):
            old = self.program.indexes[row[_THIRD]]
            indexes = np.where(old < 0, -1, self.places[old])
        row[OPCODE_COLUMN] = _GATHERING[int(row[OPCODE_COLUMN])]
        row[_THIRD] = self._list(indexes)

    def _multi(self, command: int, order: Ids | Rows) -> None:
        row = self.edit.table[command]
        pairs = self.program.indexes_multi[row[_SECOND]]
        row[_SECOND] = self.edit.indexes_multi(pairs[order])

    def _reorder_debug_info(self, matrix: int) -> None:
        if not self.program.debug_info:
            return
        info = self.program.debug_info[matrix]
        if info.node >= 0:
            pattern = freeze(info.cindexes[self.path.order])
            self.edit.debug_info(matrix, MatrixDebugInfo(is_deriv=info.is_deriv, pattern=pattern))
