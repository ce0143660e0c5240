"""Pass: a matrix gets some more rows so that all of another can move into it."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_compiler.commands import (
    AcceptInput,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    DeallocMatrix,
    MatrixCopy,
    SetConst,
)
from nnet3_compiler.declaration import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    alpha_bits,
)
from nnet3_optimizer.analysis.accesses import WRITE
from nnet3_optimizer.analysis.kinds import CommandKinds
from nnet3_optimizer.analysis.layout import Layout
from nnet3_optimizer.analysis.variables import MATRIX, Table
from nnet3_optimizer.debug_info import extended
from nnet3_optimizer.loops import is_in_segments
from nnet3_optimizer.program import Program

WORTH_EXTENDING = 0.8
"""The least part of the rows of the source that has to be copied anyway."""

_ONE = alpha_bits(1.0)

_DEFINING = CommandKinds.of(AcceptInput, AllocMatrixZeroed)
_OF_WHOLES = CommandKinds.of(AllocMatrixUndefined, AllocMatrixZeroed, DeallocMatrix, SetConst)


def extend_matrices(program: Program) -> Program:
    """Copies all rows of a matrix where nearly all were copied, into a matrix made larger for it.

    By itself this copies more; but a copy of all of a matrix can often be removed by
    `merge_variables`, while a copy of a part can't.

    1. The command is a MatrixCopy with scale 1 between two matrices, of all columns and the first
       rows of the source, at least 0.8 of them but not all.
    2. It ends at the last row of the destination as it was; the destination is neither input nor
       output. Nothing but allocation, deallocation and setting to a constant names the new rows.
    3. All rows of the source are defined by what first writes to it, also those that are copied
       only now.
    4. Loops, and computations in several segments that are to become loops, stay as they are.

    Before::

        m1 = 10 x 4
        m2 = 9 x 8
        m3 = 9 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m2(:, 0:3) = m1(0:8, :)
        m2(:, 4:7) = m1(1:9, :)
        m3 = wide.propagate(m2)
        provide output = m3
        segment end
        free m1
        free m2

    After::

        m1 = 10 x 4
        m2 = 10 x 8
        m3 = 9 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m2(:, 0:3) = m1
        m2(0:8, 4:7) = m1(1:9, :)
        m3 = wide.propagate(m2(0:8, :))
        provide output = m3
        segment end
        free m1
        free m2
    """
    if is_in_segments(program.table):
        return program
    at = program.positions(MatrixCopy.OPCODE)
    part_of = ~program.layout.is_whole & program.layout.is_full_width
    at = at[part_of.take(program.table[at, FIRST_OPERAND_COLUMN + 1])]
    at = at[program.table[at, ALPHA_COLUMN] == _ONE]
    if not len(at):
        return program
    at = at[_fits(program, at)]
    at = at[_source_is_defined(program, at)] if len(at) else at
    return _extended(program, at) if len(at) else program


def _fits(program: Program, at: np.ndarray) -> np.ndarray:
    """Returns which of these copies satisfy rules 1 and 2."""
    target = program.submatrices.take(program.table[at, FIRST_OPERAND_COLUMN], axis=0)
    source = program.submatrices.take(program.table[at, FIRST_OPERAND_COLUMN + 1], axis=0)
    source_size = program.matrices.take(source[:, MATRIX], axis=0)
    target_size = program.matrices.take(target[:, MATRIX], axis=0)
    lifetimes = program.analysis.lifetimes
    outside = lifetimes.is_input | lifetimes.is_output
    fits: np.ndarray = (
        (source[:, MATRIX] != target[:, MATRIX])
        & ~outside[target[:, MATRIX]]
        & (source[:, 1] == 0)
        & (source[:, 3] == 0)
        & (source[:, 4] == source_size[:, 1])
        & (source[:, 2] < source_size[:, 0])
        & (source[:, 2] >= WORTH_EXTENDING * source_size[:, 0])
        & (target[:, 1] + target[:, 2] == target_size[:, 0])
    )
    return fits


def _source_is_defined(program: Program, at: np.ndarray) -> np.ndarray:
    """Returns which of these copies satisfy rule 3."""
    matrix = program.layout.matrix_of[program.table[at, FIRST_OPERAND_COLUMN + 1]]
    allocates = program.opcodes[program.analysis.lifetimes.allocate[matrix]]
    is_defined: np.ndarray = _DEFINING.among(allocates)
    if not is_defined.all():
        accesses = program.analysis.accesses_to_matrices(matrix)
        is_defined = accesses.access[accesses.splits[matrix]] == WRITE
    return is_defined


def _extended(program: Program, at: np.ndarray) -> Program:
    table = program.table.copy()
    target = program.submatrices[table[at, FIRST_OPERAND_COLUMN]].copy()
    source = program.submatrices[table[at, FIRST_OPERAND_COLUMN + 1]].copy()
    source[:, 2] = target[:, 2] = program.matrices[source[:, MATRIX], 0]
    matrices = program.matrices.copy()
    np.maximum.at(matrices[:, 0], target[:, MATRIX], target[:, 1] + target[:, 2])
    grown = np.flatnonzero(matrices[:, 0] != program.matrices[:, 0])
    whole = np.zeros((len(grown), 5), dtype=np.int32)
    whole[:, MATRIX], whole[:, 2], whole[:, 4] = grown, matrices[grown, 0], matrices[grown, 1]
    first = len(program.submatrices)
    submatrices = np.concatenate([program.submatrices, target, source, whole])
    table[at, FIRST_OPERAND_COLUMN] = first + np.arange(len(at))
    table[at, FIRST_OPERAND_COLUMN + 1] = first + len(at) + np.arange(len(at))
    new_whole = np.zeros(len(matrices), dtype=np.int32)
    new_whole[grown] = first + 2 * len(at) + np.arange(len(grown))
    _use_whole(program, table, new_whole)
    debug_info = list(program.debug_info)
    if debug_info:
        for matrix in grown.tolist():
            extra = int(matrices[matrix, 0] - program.matrices[matrix, 0])
            debug_info[matrix] = extended(debug_info[matrix], extra)
    larger = attrs.evolve(
        program,
        table=table,
        layout=Layout(matrices=matrices, submatrices=submatrices),
        debug_info=tuple(debug_info),
    )
    return larger.knowing(lifetimes=program.analysis.lifetimes)


def _use_whole(program: Program, table: Table, new_whole: Table) -> None:
    """Lets the commands that are about all of a matrix name all of it again."""
    at = _OF_WHOLES.positions(program.opcodes)
    named = table[at, FIRST_OPERAND_COLUMN]
    is_constant = program.opcodes[at] == SetConst.OPCODE
    whole = new_whole.take(program.layout.matrix_of.take(named))
    changes = (whole > 0) & (program.layout.is_whole.take(named) | ~is_constant)
    table[at[changes], FIRST_OPERAND_COLUMN] = whole[changes]
