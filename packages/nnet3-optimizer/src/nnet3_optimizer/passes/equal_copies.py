"""Pass: rows that are gathered twice in the same way are gathered once."""

from __future__ import annotations

import numpy as np
from nnet3_compiler.commands import SCHEMA, CopyRows, CopyRowsMulti
from nnet3_compiler.declaration import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    OperandKind,
)
from nnet3_optimizer.analysis.variables import MATRIX
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.loops import is_in_segments
from nnet3_optimizer.passes.unused_matrices import SIZING, without_unused_matrices
from nnet3_optimizer.passes.uses import Uses
from nnet3_optimizer.program import Program

_OUTPUT, _SECOND, _THIRD = range(FIRST_OPERAND_COLUMN, FIRST_OPERAND_COLUMN + 3)


def share_equal_copies(program: Program) -> Program:
    """Lets all that reads a second copy of the same rows read the first one.

    Two branches of a network that look at one recurrent layer each gather its output of all times.

    1. Two CopyRows, or two CopyRowsMulti, set all of a matrix each, with the same scale, the same
       rows and the same sources. Nothing else writes to these matrices, so they stay equal; neither
       is an input or an output.
    2. Nothing writes to the sources between the two.
    3. The first matrix is freed after the last use of the second one.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        i0 = 2, 0, 1, 1
        m1 = accept input
        m2 = undefined
        m3 = undefined
        m2 = m1[i0]
        m3 = m1[i0]
        m4 = zeros
        m4 = affine.propagate(m2)
        m4 += m3
        provide output = m4
        segment end
        free m1
        free m2
        free m3

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        i0 = 2, 0, 1, 1
        m1 = accept input
        m2 = undefined
        m2 = m1[i0]
        m4 = zeros
        m4 = affine.propagate(m2)
        m4 += m2
        provide output = m4
        segment end
        free m1
        free m2
    """
    at = program.positions(CopyRows.OPCODE, CopyRowsMulti.OPCODE)
    at = at[program.layout.is_whole[program.table[at, _OUTPUT]]]
    if len(at) < 2 or is_in_segments(program.table):
        return program
    uses = Uses(program)
    first: dict[tuple[tuple[int, ...], bytes], int] = {}
    edit: Edit | None = None
    for command in at.tolist():
        earlier = first.setdefault(_what(program, command), command)
        if earlier != command and _stay_equal(program, uses, earlier, command):
            edit = edit or Edit(program)
            _share(program, uses, edit, earlier, command)
    return without_unused_matrices(edit.program()) if edit else program


def _what(program: Program, command: int) -> tuple[tuple[int, ...], bytes]:
    """What a command copies."""
    row = program.table[command].tolist()
    if row[OPCODE_COLUMN] == CopyRows.OPCODE:
        source = program.submatrices[row[_SECOND]].tolist()
        return (*row[:_OUTPUT], *source), program.indexes[row[_THIRD]].tobytes()
    return tuple(row[:_OUTPUT]), program.indexes_multi[row[_SECOND]].tobytes()


def _stay_equal(program: Program, uses: Uses, one: int, other: int) -> bool:
    """Checks the rules for two commands that copy the same."""
    lifetimes = program.analysis.lifetimes
    matrices = program.submatrices[program.table[[one, other], _OUTPUT], MATRIX].tolist()
    for matrix, command in zip(matrices, (one, other), strict=True):
        at = uses.of_matrix(matrix)
        written = np.unique(uses.command[at[uses.writes[at]]]).tolist()
        if written != [command] or lifetimes.is_input[matrix] or lifetimes.is_output[matrix]:
            return False
        if _is_in_lists(program, uses, matrix):
            return False
    if not all(uses.is_unchanged(each, one, other) for each in uses.read_by(one)):
        return False
    last = int(uses.command[uses.of_matrix(matrices[1])[-1]])
    return int(lifetimes.deallocate[matrices[0]]) > last


def _is_in_lists(program: Program, uses: Uses, matrix: int) -> bool:
    """Whether a list of (submatrix, row) pairs names a matrix."""
    commands = uses.command[uses.of_matrix(matrix)]
    commands = commands[program.table[commands, _OUTPUT] > 0]
    kinds = SCHEMA.kind[program.opcodes[commands]]
    with_lists = commands[(kinds == OperandKind.INDEXES_MULTI).any(axis=1)]
    outputs = program.submatrices[program.table[with_lists, _OUTPUT], MATRIX]
    return bool((outputs != matrix).any())


def _share(program: Program, uses: Uses, edit: Edit, one: int, other: int) -> None:
    """Removes a copy, and names the first one where it was named."""
    kept, dropped = program.submatrices[program.table[[one, other], _OUTPUT], MATRIX].tolist()
    named = np.where(SCHEMA.is_matrix[program.opcodes], program.table, 0)
    at = np.argwhere(program.submatrices[named, MATRIX] == dropped).tolist()
    is_sizing = SIZING.among(program.opcodes)
    numbers: dict[int, int] = {}
    for command, column in at:
        submatrix = int(program.table[command, column])
        if is_sizing[command]:
            edit.delete(command)
            continue
        if submatrix not in numbers:
            place = np.array([uses.parts[submatrix]._replace(matrix=kept)])
            numbers[submatrix] = int(edit.submatrices(place)[0])
        edit.table[command, column] = numbers[submatrix]
    edit.delete(other)
