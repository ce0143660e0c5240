"""Pass: unused matrices and lists are removed, and equal ones become one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs
import numpy as np
from nnet3_computation import analysis, arrays
from nnet3_computation.commands import SCHEMA, TABLE_WIDTH, OperandKind, Table
from nnet3_descriptors.indexes import distinct

from nnet3_optimizer.draft import Draft


def renumber(draft: Draft) -> Draft:
    """Drops unused matrices, submatrices, lists and numbers of memos; numbers the rest anew.

    1. A submatrix is used if a command or a used list of (submatrix, row) pairs names it, a matrix
       if a used submatrix is a part of it.
    2. The first of equal submatrices, or of equal lists, is kept and stands for all.
    3. The rest keeps its order; 0 stays 0.

    Commands change only in these numbers.

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
    table = draft.table.copy()
    cells = table.reshape(-1)
    memos, indexes, multi, ranges = (_cells(draft, columns) for columns in _COLUMNS)
    parts = arrays.where(SCHEMA.is_matrix.take(draft.opcodes, axis=0).reshape(-1))
    pairs = draft.pair_lists.of(distinct(cells[multi])).values
    used = _used(len(draft.submatrices), cells[parts], pairs)
    kept, new_submatrix = _first_of_equal(draft.submatrices, used)
    cells[parts] = new_submatrix.take(cells[parts])
    submatrices = draft.submatrices.take(kept, axis=0)
    matrix_used = _used(len(draft.matrices), submatrices[:, analysis.MATRIX])
    submatrices[:, analysis.MATRIX] = (np.cumsum(matrix_used) - 1)[submatrices[:, analysis.MATRIX]]
    _number_memos(cells, memos)
    kept_matrices = arrays.where(matrix_used)
    renamed = _renamed(draft.pair_lists, new_submatrix)
    debug_info = draft.debug_info
    return attrs.evolve(
        draft,
        pair_lists=analysis.PairLists(_keep_lists(renamed, cells, multi)),
        indexes=_keep_lists(draft.indexes, cells, indexes),
        indexes_ranges=_keep_lists(draft.indexes_ranges, cells, ranges),
        table=table,
        layout=analysis.Layout(matrices=draft.matrices[kept_matrices], submatrices=submatrices),
        debug_info=tuple([debug_info[m] for m in kept_matrices.tolist()]) if debug_info else (),
    )


_COLUMNS = (
    analysis.MEMO_COLUMN,
    analysis.columns_of_kind(OperandKind.INDEXES),
    analysis.columns_of_kind(OperandKind.INDEXES_MULTI),
    analysis.columns_of_kind(OperandKind.INDEXES_RANGES),
)


def _cells(draft: Draft, columns: arrays.Ids) -> arrays.Ids:
    """Returns where the operands of a kind are in the table of commands, row by row.

    Args:
        draft: The draft.
        columns: (opcodes,) the column of the operand; 0 if there is none.
    """
    column = columns.take(draft.opcodes)
    commands = arrays.where(column > 0)
    return commands * TABLE_WIDTH + column[commands]


def _number_memos(cells: Table, places: arrays.Ids) -> None:
    """Numbers the memos that are used from 1 on."""
    memos = cells[places]
    cells[places] = np.unique(np.append(0, memos), return_inverse=True)[1][1:]


def _used(count: int, *references: Table | arrays.Ids) -> arrays.Bools:
    """Returns which of `count` things are referred to; the first always is."""
    used = np.zeros(count, dtype=np.bool_)
    used[0] = True
    for numbers in references:
        used[numbers] = True
    return used


def _keep_lists(lists: Sequence[Table], cells: Table, places: arrays.Ids) -> tuple[Table, ...]:
    """Keeps each list that is used once, and changes the operands `cells[places]` accordingly."""
    numbers = cells[places]
    kept: list[Table] = []
    alike: dict[tuple[int, bytes], list[int]] = {}
    new = np.zeros(len(lists), dtype=np.int32)
    for number in distinct(numbers).tolist():
        values = lists[number]
        # Lists are long, and few are equal: only lists that look alike are compared.
        similar = alike.setdefault((len(values), values[:: 1 + len(values) // 32].tobytes()), [])
        for place in similar:
            if np.array_equal(kept[place], values):
                break
        else:
            place = len(kept)
            similar.append(place)
            kept.append(values)
        new[number] = place
    cells[places] = new[numbers]
    return tuple(kept)


def _renamed(lists: analysis.PairLists, new_submatrix: arrays.Ids) -> tuple[Table, ...]:
    """Returns the lists with the new numbers of submatrices."""
    if not lists.lists:
        return ()
    pairs = lists.pairs.copy()
    # The number -1, for none, finds the last entry.
    pairs[:, 0] = np.append(new_submatrix, -1).take(pairs[:, 0])
    pairs.flags.writeable = False
    return tuple(pairs[begin:end] for begin, end in itertools.pairwise(lists.splits.tolist()))


def _first_of_equal(submatrices: Table, used: arrays.Bools) -> tuple[arrays.Ids, arrays.Ids]:
    """Returns the used submatrices without repetition, and the new number of each old one."""
    candidates = arrays.where(used)
    columns = np.ascontiguousarray(submatrices.take(candidates, axis=0).T, dtype=np.int64)
    order = arrays.ordering(*columns)
    ordered = columns.take(order, axis=1)
    is_first = arrays.run_starts(*ordered)
    # Equal submatrices keep their order, so the first of each group is the one to keep.
    first = order[is_first]
    is_kept = np.zeros(len(candidates), dtype=np.bool_)
    is_kept[first] = True
    number = np.cumsum(is_kept) - 1
    new = np.full(len(submatrices), -1, dtype=np.int64)
    new[candidates[order]] = number[first].take(np.cumsum(is_first) - 1)
    return candidates[is_kept], new
