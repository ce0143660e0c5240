"""Pass: what the backward part gathers from many matrices is gathered in the forward part."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from nnet3_compiler.commands import (
    SCHEMA,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    MatrixCopy,
    NoOperationMarker,
    SwapMatrix,
)
from nnet3_compiler.declaration import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    OperandKind,
    alpha_bits,
)
from nnet3_optimizer.analysis.csr import Ids
from nnet3_optimizer.analysis.variables import MATRIX, NUM_COLS, NUM_ROWS, ROW_OFFSET, Table
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.loops import is_in_segments
from nnet3_optimizer.memory.live import matrix_bytes
from nnet3_optimizer.operands import columns
from nnet3_optimizer.passes.sizing import move_sizing_commands
from nnet3_optimizer.passes.uses import Part, Uses
from nnet3_optimizer.program import Program

_OUTPUT, _INPUT = (columns(MatrixCopy)[name] for name in ("output", "input"))
_ONE = alpha_bits(1.0)
_WORTH_IT = 0.75
"""The largest part of the memory of what is copied from that the copies may need."""


def gather_early(program: Program) -> Program:
    """Copies parts of matrices before the marker that would be copied after it.

    A recurrent component has one matrix for each time; for the update of a model, parts of them are
    gathered in the backward part. Until then each matrix is kept as a whole. If its part is
    gathered at once, it need not be.

    1. The target is used in the backward part alone, and written by MatrixCopy commands with scale
       1, each from a matrix of its own to rows of its own, of which it sets all columns. All of
       them come before anything reads the target.
    2. The sources are neither inputs nor outputs, are not written after the marker, and nothing but
       what was copied of them is used there. Those uses look at the target instead, which is what
       the copy was made of.
    3. The target is smaller than 3/4 of the sources.

    Before::

        m1 = 2 x 4
        m2 = 2 x 8
        m3 = 2 x 4
        m4 = 2 x 4
        m5 = 2 x 4
        m6 = 2 x 4
        m1 = accept input
        m2 = zeros
        m2 = widen.propagate(m1)
        m3 = undefined
        m3 = sigmoid.propagate(m2(:, 4:7))
        provide output = m3
        segment end
        m5 = accept output
        m4 = undefined
        m4 = m2(:, 4:7)
        m6 = undefined
        m6 = m5
        m6 += m2(:, 4:7)
        m6 += m4
        provide input = m6
        free m1
        free m2
        free m4
        free m5

    After::

        m1 = 2 x 4
        m2 = 2 x 8
        m3 = 2 x 4
        m4 = 2 x 4
        m5 = 2 x 4
        m6 = 2 x 4
        m1 = accept input
        m2 = zeros
        m2 = widen.propagate(m1)
        free m1
        m3 = undefined
        m3 = sigmoid.propagate(m2(:, 4:7))
        m4 = undefined
        m4 = m2(:, 4:7)
        free m2
        provide output = m3
        segment end
        m5 = accept output
        m6 = undefined
        m6 = m5
        free m5
        m6 += m4
        m6 += m4
        free m4
        provide input = m6
    """
    markers = program.positions(NoOperationMarker.OPCODE)
    if (
        is_in_segments(program.table)
        or not len(markers)
        or len(program.positions(SwapMatrix.OPCODE))
    ):
        return program
    marker = int(markers[0])
    targets = _targets(program, marker)
    if not len(targets):
        return program
    search = _Search(program, marker)
    edit: Edit | None = None
    for target in targets.tolist():
        copies = search.copies(target)
        if copies and _is_worth_it(program, target, copies):
            edit = edit or Edit(program)
            _move(program, search.uses, edit, copies)
    return move_sizing_commands(edit.program()) if edit else program


def _targets(program: Program, marker: int) -> Ids:
    """Returns the matrices that are first used by a MatrixCopy in the backward part."""
    first, _ = program.analysis.matrix_use
    used = np.flatnonzero(first > marker)
    by_copy = program.opcodes[first[used]] == MatrixCopy.OPCODE
    lifetimes = program.analysis.lifetimes
    at = program.positions(AllocMatrixUndefined.OPCODE, AllocMatrixZeroed.OPCODE)
    allocated = program.submatrices[program.table[at, FIRST_OPERAND_COLUMN], MATRIX]
    once = np.bincount(allocated, minlength=len(program.matrices)) == 1
    targets: Ids = used[by_copy & once[used] & ~lifetimes.is_output[used]]
    return targets


class _Copy(NamedTuple):
    """A copy that can be made in the forward part.

    Attributes:
        command: Its position.
        source: The matrix that is copied from.
        last_forward: The last command before the marker that uses the source.
        readers: The commands after the marker that then read the copy, and the submatrices of the
            source that they read now.
    """

    command: int
    source: int
    last_forward: int
    readers: list[tuple[int, int]]


class _Search:
    """Looks for copies that can be made in the forward part."""

    def __init__(self, program: Program, marker: int) -> None:
        self.program = program
        self.marker = marker
        self.uses = Uses(program)
        lifetimes = program.analysis.lifetimes
        self._is_given = (lifetimes.is_output | lifetimes.is_input).tolist()
        multi = int(OperandKind.INDEXES_MULTI)
        self._has_list = (SCHEMA.kind == multi).any(axis=1)[program.opcodes].tolist()

    def copies(self, target: int) -> list[_Copy]:
        """Returns the copies that make a target; none if rule 1 or 2 fails."""
        program, uses = self.program, self.uses
        at = uses.of_matrix(target)
        writers = at[uses.writes[at]]
        rows = program.table[uses.command[writers]]
        exact = (rows[:, OPCODE_COLUMN] == MatrixCopy.OPCODE) & (rows[:, ALPHA_COLUMN] == _ONE)
        if not exact.all():
            return []
        sources = program.submatrices[rows[:, _INPUT], MATRIX]
        readers = uses.command[at[~uses.writes[at]]]
        if len(readers) and readers[0] < uses.command[writers[-1]]:
            return []
        if len(np.unique(sources)) < len(sources) or _share_rows(program, rows[:, _OUTPUT]):
            return []
        copies = []
        for given, command in zip(
            rows[:, _INPUT].tolist(), uses.command[writers].tolist(), strict=True
        ):
            copy = self._copy(given, command)
            if copy is None:
                return []
            copies.append(copy)
        return copies

    def _copy(self, given: int, command: int) -> _Copy | None:
        """The copy of a submatrix that a command makes; None if rule 2 fails."""
        uses = self.uses
        part = uses.parts[given]
        if self._is_given[part.matrix]:
            return None
        at = uses.of_matrix(part.matrix)
        last_forward = -1
        readers = []
        for user, submatrix, writes in zip(
            uses.command[at].tolist(),
            uses.submatrix[at].tolist(),
            uses.writes[at].tolist(),
            strict=True,
        ):
            if user < self.marker:
                last_forward = user
            elif user != command:
                if writes or self._has_list[user] or not part.contains(uses.parts[submatrix]):
                    return None
                readers.append((user, submatrix))
        if last_forward < 0:
            return None
        return _Copy(command, part.matrix, last_forward, readers)


def _share_rows(program: Program, outputs: Table) -> bool:
    """Whether one of several parts of a matrix lacks columns, or covers rows of another."""
    parts = program.submatrices[outputs].astype(np.int64)
    if (parts[:, NUM_COLS] != program.matrices[parts[:, MATRIX], 1]).any():
        return True
    parts = parts[np.argsort(parts[:, ROW_OFFSET], kind="stable")]
    end = parts[:, ROW_OFFSET] + parts[:, NUM_ROWS]
    return bool((parts[1:, ROW_OFFSET] < end[:-1]).any())


def _is_worth_it(program: Program, target: int, copies: list[_Copy]) -> bool:
    sizes = matrix_bytes(program.matrices)
    held = sum(int(sizes[copy.source]) for copy in copies)
    return int(sizes[target]) <= _WORTH_IT * held


def _move(program: Program, uses: Uses, edit: Edit, copies: list[_Copy]) -> None:
    """Makes the copies in the forward part, and lets others read them."""
    commands = np.array([copy.command for copy in copies])
    rows = program.table[commands]
    edit.delete(commands)
    edit.insert(np.array([copy.last_forward + 1 for copy in copies]), rows.copy())
    parts, places = [], []
    for copy, row in zip(copies, rows.tolist(), strict=True):
        made, taken = uses.parts[row[_OUTPUT]], uses.parts[row[_INPUT]]
        for command, submatrix in copy.readers:
            parts.append(_moved(uses.parts[submatrix], taken, made))
            places.append((command, submatrix))
    if not parts:
        return
    is_matrix = SCHEMA.is_matrix[program.opcodes[[command for command, _ in places]]]
    numbers = edit.submatrices(np.array(parts)).tolist()
    for (command, submatrix), number, named in zip(places, numbers, is_matrix, strict=True):
        edit.table[command, named & (program.table[command] == submatrix)] = number


def _moved(part: Part, taken: Part, made: Part) -> Part:
    """A part of what was copied, in the copy."""
    row, col = part.row - taken.row + made.row, part.col - taken.col + made.col
    return Part(made.matrix, row, part.rows, col, part.cols)
