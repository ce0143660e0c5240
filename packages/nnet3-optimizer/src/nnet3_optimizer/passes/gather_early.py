"""Pass: the forward part gathers the rows that the backward part reads from many matrices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from nnet3_computation import analysis, memory
from nnet3_computation import commands as c
from nnet3_computation.arrays import Bools, Ids, ordering, where
from nnet3_descriptors.indexes import distinct

from nnet3_optimizer.draft import Draft, Edit

_OUTPUT, _INPUT = (c.columns(c.MatrixCopy)[name] for name in ("output", "input"))
_ONE = c.alpha_bits(1.0)
_WORTH_IT = 0.75
"""The copies may need at most this part of the memory of their sources."""


def gather_early(draft: Draft) -> Draft:
    """Copies parts of matrices before the marker that would be copied after it.

    A recurrent component has one matrix for each time; for the update of a model, parts of them are
    gathered in the backward part. Until then each matrix is kept as a whole. If the part is
    gathered early, the matrix can be freed.

    1. The target is used in the backward part alone, and written by MatrixCopy commands with the
       scale 1. Each copies from a separate matrix to separate rows, and sets all of their columns.
       All of them come before anything reads the target.
    2. The sources are neither inputs nor outputs, and are not written after the marker. After the
       marker only the copied parts of them are read. These reads then go to the target instead,
       which has the same elements.
    3. The target is smaller than 3/4 of the sources.
    4. The target is allocated just before the first copy, and each source freed after its last use.

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
        m6 += m4
        m6 += m4
        provide input = m6
        free m1
        free m4
        free m5
    """
    markers = draft.positions(c.NoOperationMarker.OPCODE)
    if (
        c.is_in_segments(draft.table)
        or not len(markers)
        or len(draft.positions(c.SwapMatrix.OPCODE))
    ):
        return draft
    marker = int(markers[0])
    found = [_copies(draft, marker, target) for target in _targets(draft, marker).tolist()]
    worth_it = [copies for copies in found if copies is not None and _is_worth_it(draft, copies)]
    if not worth_it:
        return draft
    edit = Edit(draft)
    _move(draft, edit, worth_it)
    for copies in worth_it:
        _read_copies(draft, edit, copies)
    return edit.draft()


def _targets(draft: Draft, marker: int) -> Ids:
    """Returns the matrices that may be targets: each is written by copies of possible sources.

    `_copies` checks what happens to the sources after the marker, and who reads a target.
    """
    first, last = draft.analysis.matrix_use
    lifetimes = draft.analysis.lifetimes
    is_source = (first >= 0) & (first < marker) & (last > marker)
    is_source &= ~lifetimes.is_output & ~lifetimes.is_input
    copies = draft.positions(c.MatrixCopy.OPCODE)
    copies = copies[copies > marker]
    rows, matrix_of = draft.table.take(copies, axis=0), draft.layout.matrix_of
    source = matrix_of.take(rows[:, _INPUT])
    copies = copies[(rows[:, c.ALPHA_COLUMN] == _ONE) & is_source[source]]
    if not len(copies):
        return where(is_source[:0])
    at = draft.positions(c.AllocMatrixUndefined.OPCODE, c.AllocMatrixZeroed.OPCODE)
    allocated = matrix_of.take(draft.table[at, c.FIRST_OPERAND_COLUMN])
    once = np.bincount(allocated, minlength=len(draft.matrices)) == 1
    is_target = np.zeros(len(draft.matrices), dtype=np.bool_)
    is_target[matrix_of.take(draft.table[copies, _OUTPUT])] = True
    is_target &= once & (first > marker) & ~lifetimes.is_output
    is_copy = np.zeros(len(draft.table), dtype=np.bool_)
    is_copy[copies] = True
    accesses = draft.analysis.submatrix_accesses
    is_other = ~is_copy & (draft.opcodes != c.AllocMatrixZeroed.OPCODE)
    otherwise = where(((accesses.access & analysis.WRITE) != 0) & is_other.take(accesses.command))
    is_target[matrix_of.take(accesses.submatrix.take(otherwise))] = False
    return where(is_target)


class _Gathering(NamedTuple):
    """Copies that make a target, and can be made in the forward part.

    Attributes:
        target: The matrix that they make.
        command: (N,) their positions.
        source: (N,) the matrices that they copy from.
        last_forward: (N,) the last command before the marker that uses each source.
        reader: (R,) the commands after the marker that then read the target.
        submatrix: (R,) the submatrices of sources that they read now.
        copy: (R,) which of the copies each of them reads.
    """

    target: int
    command: Ids
    source: Ids
    last_forward: Ids
    reader: Ids
    submatrix: Ids
    copy: Ids


def _copies(draft: Draft, marker: int, target: int) -> _Gathering | None:
    """Returns the copies that make a target; None if they break rule 1 or 2."""
    uses, table = draft.analysis.uses, draft.table
    at = uses.of_matrix(target)
    writes, users = uses.writes[at], uses.command[at]
    command = users[writes]
    rows = table[command]
    source = draft.submatrices[rows[:, _INPUT], analysis.MATRIX].astype(np.int64)
    reads = users[~writes]
    if len(reads) and reads[0] < command[-1]:
        return None
    if len(distinct(source)) < len(source) or _share_rows(draft, rows[:, _OUTPUT]):
        return None
    # All accesses to the sources: before the marker, the copies themselves, and others.
    at_sources = uses.of_matrices(source)
    copy = np.repeat(np.arange(len(source)), uses.splits[source + 1] - uses.splits[source])
    user = uses.command[at_sources]
    is_forward = user < marker
    last_forward = np.full(len(source), -1, dtype=np.int64)
    # Of several assignments to one element the last one holds.
    last_forward[copy[is_forward]] = user[is_forward]
    later = where(~is_forward & (user != command[copy]))
    reader, copy, submatrix = user[later], copy[later], uses.submatrix[at_sources[later]]
    taken = draft.submatrices[rows[:, _INPUT]]
    wrong = uses.writes[at_sources[later]] | (
        analysis.LIST_COLUMN[table[reader, c.OPCODE_COLUMN]] > 0
    )
    wrong |= ~analysis.contain(taken[copy], draft.submatrices[submatrix])
    if wrong.any():
        return None
    return _Gathering(target, command, source, last_forward, reader, submatrix, copy)


def _share_rows(draft: Draft, outputs: c.Table) -> bool:
    """Whether one of several parts of a matrix lacks columns, or covers rows of another."""
    parts = draft.submatrices[outputs].astype(np.int64)
    if (parts[:, analysis.NUM_COLS] != draft.matrices[parts[:, analysis.MATRIX], 1]).any():
        return True
    parts = parts[np.argsort(parts[:, analysis.ROW_OFFSET], kind="stable")]
    end = parts[:, analysis.ROW_OFFSET] + parts[:, analysis.NUM_ROWS]
    return bool((parts[1:, analysis.ROW_OFFSET] < end[:-1]).any())


def _is_worth_it(draft: Draft, copies: _Gathering) -> bool:
    sizes = memory.matrix_bytes(draft.matrices.take([copies.target, *copies.source], axis=0))
    return int(sizes[0]) <= _WORTH_IT * int(sizes[1:].sum())


def _move(draft: Draft, edit: Edit, found: list[_Gathering]) -> None:
    """Makes copies in the forward part; targets are allocated for the first, sources freed."""
    table, lifetimes = draft.table, draft.analysis.lifetimes
    is_free = draft.opcodes == c.DeallocMatrix.OPCODE
    others = where(~is_free)
    last_forward = np.concatenate([copies.last_forward for copies in found])
    # After the matrices that are freed there already.
    place = np.append(others, len(table))[others.searchsorted(last_forward + 1)]
    order = ordering(place)
    place = place[order]
    command = np.concatenate([copies.command for copies in found])[order]
    source = np.concatenate([copies.source for copies in found])[order]
    target = np.repeat([each.target for each in found], [len(each.command) for each in found])
    target = target[order]
    allocated, freed = lifetimes.allocate[target], lifetimes.deallocate[source]
    wanted = np.ones((len(place), 3), dtype=np.bool_)
    wanted[:, 0] = _are_first(target)
    wanted[:, 2] = _are_first(source[::-1])[::-1] & (freed >= 0)
    moved = np.stack([allocated, command, freed], axis=1)
    edit.insert(np.repeat(place, 3)[wanted.ravel()], table[moved[wanted]])
    edit.delete(moved[wanted])
    # A reader of sources may come after the present last reader of the target.
    ends = sorted(
        (int(lifetimes.deallocate[copies.target]), int(copies.reader.max(initial=-1)))
        for copies in found
    )
    for free, last_reader in ends:
        if 0 <= free < last_reader:
            edit.insert(last_reader + 1, table[[free]])
            edit.delete(free)


def _are_first(values: Ids) -> Bools:
    """Whether each value occurs for the first time, (N,)."""
    number = np.arange(len(values))
    first = np.zeros(int(values.max(initial=0)) + 1, dtype=np.int64)
    # Of several assignments to one element the last one holds.
    first[values[::-1]] = number[::-1]
    are_first: Bools = first.take(values) == number
    return are_first


def _read_copies(draft: Draft, edit: Edit, copies: _Gathering) -> None:
    """Lets later readers of sources read the copies instead."""
    rows = draft.table[copies.command]
    made, taken = (draft.submatrices[rows[copies.copy, at]] for at in (_OUTPUT, _INPUT))
    parts = draft.submatrices[copies.submatrix]
    parts[:, analysis.MATRIX] = made[:, analysis.MATRIX]
    parts[:, analysis.OFFSETS] += made[:, analysis.OFFSETS] - taken[:, analysis.OFFSETS]
    numbers = edit.submatrices(parts)
    named = c.SCHEMA.is_matrix[draft.opcodes[copies.reader]]
    named &= draft.table[copies.reader] == copies.submatrix[:, None]
    which, column = named.nonzero()
    edit.table[copies.reader[which], column] = numbers[which]
