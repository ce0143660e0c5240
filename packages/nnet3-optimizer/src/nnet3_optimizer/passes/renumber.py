"""Pass: what nothing refers to is dropped, what occurs twice is kept once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs
import numpy as np
from nnet3_compiler.commands import SCHEMA
from nnet3_compiler.declaration import OPCODE_COLUMN, OperandKind
from nnet3_optimizer.analysis.csr import Bools, Ids
from nnet3_optimizer.analysis.layout import Layout
from nnet3_optimizer.analysis.pair_lists import PairLists
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
    pairs = program.pair_lists.of(np.unique(table[names_multi])).values
    used = _used(len(program.submatrices), table[names_matrix], pairs)
    kept, new_submatrix = _first_of_equal(program.submatrices, used)
    table[names_matrix] = new_submatrix[table[names_matrix]]
    submatrices = program.submatrices[kept]
    matrix_used = _used(len(program.matrices), submatrices[:, MATRIX])
    submatrices[:, MATRIX] = (np.cumsum(matrix_used) - 1)[submatrices[:, MATRIX]]
    _number_memos(table, kinds == OperandKind.MEMO)
    kept_matrices = np.flatnonzero(matrix_used)
    multi = _renamed(program.pair_lists, new_submatrix)
    debug_info = program.debug_info
    return attrs.evolve(
        program,
        pair_lists=PairLists(_keep_lists(multi, table, names_multi)),
        indexes=_keep_lists(program.indexes, table, kinds == OperandKind.INDEXES),
        indexes_ranges=_keep_lists(
            program.indexes_ranges, table, kinds == OperandKind.INDEXES_RANGES
        ),
        table=table,
        layout=Layout(matrices=program.matrices[kept_matrices], submatrices=submatrices),
        debug_info=tuple(debug_info[m] for m in kept_matrices.tolist()) if debug_info else (),
    )


def _number_memos(table: Table, is_memo: Bools) -> None:
    """Numbers the memos that are used from 1 on."""
    memos = table[is_memo]
    used = _used(int(memos.max(initial=0)) + 1, memos)
    table[is_memo] = (np.cumsum(used) - 1)[memos]


def _used(count: int, *references: Table | Ids) -> Bools:
    """Returns which of `count` things are referred to; the first always is."""
    used = np.zeros(count, dtype=np.bool_)
    used[0] = True
    for numbers in references:
        used[numbers] = True
    return used


def _keep_lists(lists: Sequence[Table], table: Table, refers: Bools) -> tuple[Table, ...]:
    """Keeps each list that is used once, and changes the operands `table[refers]` accordingly."""
    numbers = table[refers]
    kept: list[Table] = []
    places: dict[tuple[int, bytes], int] = {}
    new = np.zeros(len(lists), dtype=np.int32)
    for number in np.unique(numbers).tolist():
        values = lists[number]
        place = places.setdefault((len(values), values.tobytes()), len(kept))
        if place == len(kept):
            kept.append(values)
        new[number] = place
    table[refers] = new[numbers]
    return tuple(kept)


def _renamed(lists: PairLists, new_submatrix: Ids) -> tuple[Table, ...]:
    """Returns the lists with the new numbers of submatrices."""
    if not lists.lists:
        return ()
    pairs = lists.pairs.copy()
    # The number -1, for none, finds the last.
    pairs[:, 0] = np.append(new_submatrix, -1)[pairs[:, 0]]
    pairs.flags.writeable = False
    return tuple(pairs[begin:end] for begin, end in itertools.pairwise(lists.splits.tolist()))


def _first_of_equal(submatrices: Table, used: Bools) -> tuple[Ids, Ids]:
    """Returns the used submatrices without repetition, and the new number of each old one."""
    candidates = np.flatnonzero(used)
    matrix, row, rows, col, cols = submatrices[candidates].T
    key = _ranks(_pair(matrix, _ranks(_pair(_ranks(_pair(row, rows)), _ranks(_pair(col, cols))))))
    first = np.full(len(candidates), len(submatrices), dtype=np.int64)
    # Of several assignments to one element the last one holds.
    first[key[::-1]] = candidates[::-1]
    kept = candidates[first[key] == candidates]
    new = np.full(len(submatrices), -1, dtype=np.int64)
    new[kept] = np.arange(len(kept))
    new[candidates] = new[first[key]]
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
