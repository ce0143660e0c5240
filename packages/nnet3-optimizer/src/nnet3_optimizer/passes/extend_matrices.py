"""Pass: a matrix gets some more rows so that all of another can move into it."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation import commands as c
from nnet3_computation.analysis import MATRIX, WRITE, CommandKinds, Layout, SubmatrixAccesses
from nnet3_computation.arrays import Ids, where

from nnet3_optimizer.debug_info import extended
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.merge_candidates import Candidates, contiguous_matrices, legal_by_place

WORTH_EXTENDING = 0.8
"""The least part of the rows of the source that the command copies already."""

_ONE = c.alpha_bits(1.0)

_DEFINING = CommandKinds.of(c.AcceptInput, c.AllocMatrixZeroed)
_OF_WHOLES = CommandKinds.of(
    c.AllocMatrixUndefined, c.AllocMatrixZeroed, c.DeallocMatrix, c.SetConst
)


def extend_matrices(draft: Draft) -> Draft:
    """Copies all rows of a matrix, where nearly all were copied, into a matrix made larger.

    By itself this copies more; but a copy of all of a matrix can often be removed by
    `merge_variables`, while a copy of a part can't.

    1. The command is a MatrixCopy with scale 1 between two matrices, of all columns and the first
       rows of the source, at least 0.8 of them but not all.
    2. It ends at the last row of the destination as it was; the destination is neither input nor
       output. Nothing but allocation, deallocation and setting to a constant names the new rows.
    3. The first write to the source sets all of its rows, also the rows that are copied only now.
    4. The copy of all rows is one that `merge_variables` can remove, by its rules.
    5. Loops, and computations in several segments that are to become loops, stay as they are.

    Before::

        m1 = 10 x 4
        m2 = 10 x 4
        m3 = 9 x 8
        m4 = 9 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m4 = zeros
        m2 = affine.propagate(m1)
        m3(:, 0:3) = m2(0:8, :)
        m3(:, 4:7) = m2(1:9, :)
        m4 = wide.propagate(m3)
        provide output = m4
        segment end
        free m1
        free m2
        free m3

    After::

        m1 = 10 x 4
        m2 = 10 x 4
        m3 = 10 x 8
        m4 = 9 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m4 = zeros
        m2 = affine.propagate(m1)
        m3(:, 0:3) = m2
        m3(0:8, 4:7) = m2(1:9, :)
        m4 = wide.propagate(m3(0:8, :))
        provide output = m4
        segment end
        free m1
        free m2
        free m3
    """
    if c.is_in_segments(draft.table):
        return draft
    at = draft.positions(c.MatrixCopy.OPCODE)
    part_of = ~draft.layout.is_whole & draft.layout.is_full_width
    at = at[part_of.take(draft.table[at, c.FIRST_OPERAND_COLUMN + 1])]
    at = at[draft.table[at, c.ALPHA_COLUMN] == _ONE]
    if not len(at):
        return draft
    at = at[_fits(draft, at)]
    at = at[_source_is_defined(draft, at)] if len(at) else at
    at = _removable(draft, at) if len(at) else at
    return _extended(draft, at) if len(at) else draft


def _fits(draft: Draft, at: np.ndarray) -> np.ndarray:
    """Returns which of these copies satisfy rules 1 and 2."""
    target = draft.submatrices.take(draft.table[at, c.FIRST_OPERAND_COLUMN], axis=0)
    source = draft.submatrices.take(draft.table[at, c.FIRST_OPERAND_COLUMN + 1], axis=0)
    source_size = draft.matrices.take(source[:, MATRIX], axis=0)
    target_size = draft.matrices.take(target[:, MATRIX], axis=0)
    lifetimes = draft.analysis.lifetimes
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


def _source_is_defined(draft: Draft, at: np.ndarray) -> np.ndarray:
    """Returns which of these copies satisfy rule 3."""
    matrix = draft.layout.matrix_of[draft.table[at, c.FIRST_OPERAND_COLUMN + 1]]
    allocates = draft.opcodes[draft.analysis.lifetimes.allocate[matrix]]
    is_defined: np.ndarray = _DEFINING.among(allocates)
    if not is_defined.all():
        accesses = draft.analysis.accesses_to_matrices(matrix)
        is_defined = accesses.access[accesses.splits[matrix]] == WRITE
    return is_defined


def _removable(draft: Draft, at: Ids) -> Ids:
    """Returns the copies, ascending, that could be merged away if they copied all rows.

    The new rows of the destination do not matter for that: no command reads them.
    """
    matrix = draft.layout.matrix_of[draft.table[at, c.FIRST_OPERAND_COLUMN + 1]]
    allocate = draft.analysis.lifetimes.allocate[matrix]
    either = np.ones(len(at), dtype=np.bool_)
    copies = Candidates(
        command=at,
        s1=draft.table[allocate, c.FIRST_OPERAND_COLUMN].astype(np.int64),
        s2=draft.table[at, c.FIRST_OPERAND_COLUMN].astype(np.int64),
        is_assignment=either,
        left=either,
        right=either,
    )
    fits = legal_by_place(draft, copies, contiguous_matrices(draft))
    named = draft.layout.matrix_of[np.concatenate([fits.s1, fits.s2])]
    accesses = draft.analysis.accesses_within(named)
    is_removable = [_is_removable(draft, accesses, *each) for each in zip(*fits[:3], strict=True)]
    return fits.command[is_removable]


def _is_removable(
    draft: Draft, accesses: SubmatrixAccesses, command: int, s1: int, s2: int
) -> bool:
    """Whether a copy is the first use of s2, and s1 and s2 stay equal as long as both are used.

    Args:
        draft: The draft.
        accesses: The accesses to the matrices of s1 and s2, and perhaps more.
        command: The copy.
        s1: The submatrix that it reads.
        s2: The submatrix that it writes.
    """
    layout = draft.layout
    matrix = layout.matrix_of.take(accesses.submatrix)
    of_s1 = matrix == layout.matrix_of[s1]
    of_s2 = where(matrix == layout.matrix_of[s2])
    of_s2 = of_s2[layout.overlap(accesses.submatrix.take(of_s2), np.full(len(of_s2), s2))]
    of_s2 = of_s2[draft.opcodes.take(accesses.command.take(of_s2)) != c.AllocMatrixZeroed.OPCODE]
    at, writes = accesses.command, (accesses.access & WRITE) != 0
    last_use, last_write = at[of_s1].max(), at[of_s1 & writes].max(initial=-1)
    again = at[of_s2[writes[of_s2] & (at[of_s2] > command)]].min(initial=len(draft.table))
    is_first = at[of_s2].min() == command
    return bool(is_first and (last_use == command or (last_write < command and last_use < again)))


def _extended(draft: Draft, at: np.ndarray) -> Draft:
    table = draft.table.copy()
    target = draft.submatrices[table[at, c.FIRST_OPERAND_COLUMN]].copy()
    source = draft.submatrices[table[at, c.FIRST_OPERAND_COLUMN + 1]].copy()
    source[:, 2] = target[:, 2] = draft.matrices[source[:, MATRIX], 0]
    matrices = draft.matrices.copy()
    np.maximum.at(matrices[:, 0], target[:, MATRIX], target[:, 1] + target[:, 2])
    grown = np.flatnonzero(matrices[:, 0] != draft.matrices[:, 0])
    whole = np.zeros((len(grown), 5), dtype=np.int32)
    whole[:, MATRIX], whole[:, 2], whole[:, 4] = grown, matrices[grown, 0], matrices[grown, 1]
    first = len(draft.submatrices)
    submatrices = np.concatenate([draft.submatrices, target, source, whole])
    table[at, c.FIRST_OPERAND_COLUMN] = first + np.arange(len(at))
    table[at, c.FIRST_OPERAND_COLUMN + 1] = first + len(at) + np.arange(len(at))
    new_whole = np.zeros(len(matrices), dtype=np.int32)
    new_whole[grown] = first + 2 * len(at) + np.arange(len(grown))
    _use_whole(draft, table, new_whole)
    debug_info = list(draft.debug_info)
    if debug_info:
        for matrix in grown.tolist():
            extra = int(matrices[matrix, 0] - draft.matrices[matrix, 0])
            debug_info[matrix] = extended(debug_info[matrix], extra)
    larger = attrs.evolve(
        draft,
        table=table,
        layout=Layout(matrices=matrices, submatrices=submatrices),
        debug_info=tuple(debug_info),
    )
    larger.analysis.lifetimes = draft.analysis.lifetimes
    return larger


def _use_whole(draft: Draft, table: c.Table, new_whole: c.Table) -> None:
    """Lets the commands that name whole matrices name all rows of the larger matrices."""
    at = _OF_WHOLES.positions(draft.opcodes)
    named = table[at, c.FIRST_OPERAND_COLUMN]
    is_constant = draft.opcodes[at] == c.SetConst.OPCODE
    whole = new_whole.take(draft.layout.matrix_of.take(named))
    changes = (whole > 0) & (draft.layout.is_whole.take(named) | ~is_constant)
    table[at[changes], c.FIRST_OPERAND_COLUMN] = whole[changes]
