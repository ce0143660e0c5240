"""Pass: what nothing refers to is dropped, what occurs twice is kept once."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from nnet3_compiler.commands import SCHEMA
from nnet3_compiler.declaration import OPCODE_COLUMN, OperandKind
from nnet3_optimizer.analysis.csr import Bools, Ids
from nnet3_optimizer.analysis.variables import MATRIX, Table
from nnet3_optimizer.program import Program


def renumber(program: Program) -> Program:
    """Drops unused matrices, submatrices, lists and numbers of memos; numbers the rest anew.

    1. A submatrix is used if a command or a used list of (submatrix, row) pairs names it, a matrix
       if a used submatrix is a part of it.
    2. Of equal submatrices, and of equal lists, the first is kept and stands for all.
    3. What is kept stays in its order; 0 stays 0.

    The commands are the same as before but for the numbers.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        i0 = 0, 1, 2, 3
        i1 = 3, 2, 1, 0
        i2 = 3, 2, 1, 0
        m1 = accept input
        m3 = undefined
        m3 = m1[i1]
        m3 += m1[i2]
        provide output = m3
        segment end
        free m1

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        i0 = 3:0:-1
        m1 = accept input
        m2 = undefined
        m2 = m1[i0]
        m2 += m1[i0]
        provide output = m2
        segment end
        free m1
    """
    table = program.table.copy()
    kinds = SCHEMA.kind[table[:, OPCODE_COLUMN]]
    names_multi = kinds == OperandKind.INDEXES_MULTI
    names_matrix = SCHEMA.is_matrix[table[:, OPCODE_COLUMN]]
    indexes = _keep_lists(program.indexes, table, kinds == OperandKind.INDEXES)
    ranges = _keep_lists(program.indexes_ranges, table, kinds == OperandKind.INDEXES_RANGES)
    multi = _keep_lists(program.indexes_multi, table, names_multi)
    used = _used(len(program.submatrices), table[names_matrix], *(pairs[:, 0] for pairs in multi))
    kept, new_submatrix = _first_of_equal(program.submatrices, used)
    table[names_matrix] = new_submatrix[table[names_matrix]]
    # Lists that named equal submatrices by different numbers are equal now.
    multi = _keep_lists(_renamed(multi, new_submatrix), table, names_multi)
    submatrices = program.submatrices[kept]
    matrix_used = _used(len(program.matrices), submatrices[:, MATRIX])
    submatrices[:, MATRIX] = (np.cumsum(matrix_used) - 1)[submatrices[:, MATRIX]]
    _number_memos(table, kinds == OperandKind.MEMO)
    kept_matrices = np.flatnonzero(matrix_used)
    debug_info = program.debug_info
    return attrs.evolve(
        program,
        table=table,
        submatrices=submatrices,
        matrices=program.matrices[kept_matrices],
        indexes=indexes,
        indexes_ranges=ranges,
        indexes_multi=multi,
        debug_info=tuple(debug_info[m] for m in kept_matrices.tolist()) if debug_info else (),
    )


def _number_memos(table: Table, is_memo: Bools) -> None:
    """Numbers the memos that are used from 1 on."""
    memos = table[is_memo]
    used = _used(int(memos.max(initial=0)) + 1, memos)
    table[is_memo] = (np.cumsum(used) - 1)[memos]


def _used(count: int, *references: Table) -> Bools:
    """Returns which of `count` things are referred to; the first always is, -1 is nothing."""
    used = np.zeros(count, dtype=np.bool_)
    used[0] = True
    for numbers in references:
        used[numbers[numbers > 0]] = True
    return used


def _keep_lists(lists: Sequence[Table], table: Table, refers: Bools) -> tuple[Table, ...]:
    """Keeps each list that is used once, and changes the operands `table[refers]` accordingly."""
    numbers = table[refers]
    if not len(lists) or not len(numbers):
        return ()
    used = np.zeros(len(lists), dtype=np.bool_)
    used[numbers] = True
    kept: list[Table] = []
    places: dict[tuple[int, bytes], int] = {}
    new = np.zeros(len(lists), dtype=np.int32)
    for number in np.flatnonzero(used).tolist():
        values = lists[number]
        place = places.setdefault((len(values), values.tobytes()), len(kept))
        if place == len(kept):
            kept.append(values)
        new[number] = place
    table[refers] = new[numbers]
    return tuple(kept)


def _renamed(lists: Sequence[Table], new_submatrix: Ids) -> tuple[Table, ...]:
    result = []
    for pairs in lists:
        renamed = pairs.copy()
        named = pairs[:, 0] > 0
        renamed[named, 0] = new_submatrix[pairs[named, 0]]
        renamed.flags.writeable = False
        result.append(renamed)
    return tuple(result)


def _first_of_equal(submatrices: Table, used: Bools) -> tuple[Ids, Ids]:
    """Returns the used submatrices without repetition, and the new number of each old one."""
    rows = _ranks(_pair(submatrices[:, 1], submatrices[:, 2]))
    cols = _ranks(_pair(submatrices[:, 3], submatrices[:, 4]))
    key = _ranks(_pair(submatrices[:, MATRIX], _ranks(_pair(rows, cols))))
    candidates = np.flatnonzero(used)
    first = np.full(int(key.max()) + 1, len(submatrices), dtype=np.int64)
    np.minimum.at(first, key[candidates], candidates)
    kept = candidates[first[key[candidates]] == candidates]
    new = np.full(len(submatrices), -1, dtype=np.int64)
    new[kept] = np.arange(len(kept))
    new[candidates] = new[first[key[candidates]]]
    return kept, new


def _pair(high: Table | Ids, low: Table | Ids) -> Ids:
    return (high.astype(np.int64) << 32) | low


def _ranks(keys: Ids) -> Ids:
    """Returns numbers from 0 that are equal where the keys are."""
    order = np.argsort(keys)
    ordered = keys[order]
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.cumsum(np.concatenate([[0], ordered[1:] != ordered[:-1]]))
    return ranks
