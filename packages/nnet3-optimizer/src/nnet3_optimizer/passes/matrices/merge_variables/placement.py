"""The place of each matrix after several merges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from nnet3_computation.analysis import COL_OFFSET, MATRIX, ROW_OFFSET
from nnet3_computation.arrays import Bools, Ids
from nnet3_computation.commands import Table

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.matrices.merge_variables.candidates import Candidates


class Placement(NamedTuple):
    """The place of each matrix, (M,) each.

    Attributes:
        root: The matrix that it becomes a part of; itself, if it is not merged into another.
        row, col: Where it begins in that.
    """

    root: Ids
    row: Ids
    col: Ids

    def of_submatrices(self, submatrices: Table) -> Table:
        """Returns the submatrices, (S, 5), where they are now."""
        matrix = submatrices[:, MATRIX].astype(np.int64)
        moved = submatrices.copy()
        moved[:, MATRIX] = self.root.take(matrix)
        moved[:, ROW_OFFSET] += self.row.astype(np.int32).take(matrix)
        moved[:, COL_OFFSET] += self.col.astype(np.int32).take(matrix)
        return moved


def equal_matrices(draft: Draft, c: Candidates) -> Ids:
    """Returns for each matrix, (M,), the first of the whole matrices that it is merged with.

    If either matrix of a merge could be kept, they are merged as a whole, and it does not matter
    which one is kept: both lie at the same place.
    """
    either = c.left & c.right
    equal = np.arange(len(draft.matrices))
    # At most one candidate writes each matrix, so the merges form chains.
    matrix_of = draft.layout.matrix_of
    equal[matrix_of[c.s2[either]]] = matrix_of[c.s1[either]]
    while True:
        further = equal[equal]
        if np.array_equal(further, equal):
            return equal
        equal = further


def first_of_each_matrix(draft: Draft, c: Candidates) -> Bools:
    """Returns which candidates, (candidates,) bool, move a matrix that no earlier one moves."""
    equal = equal_matrices(draft, c)
    one_way = (c.left != c.right).nonzero()[0]
    gone = equal[_gone(draft, c)[one_way]]
    earliest = np.empty(len(equal), dtype=np.int64)
    # Of several assignments to one element the last one holds.
    earliest[gone[::-1]] = one_way[::-1]
    is_first = np.ones(len(c.command), dtype=np.bool_)
    is_first[one_way] = earliest[gone] == one_way
    return is_first


def placement(draft: Draft, c: Candidates) -> Placement:
    """Returns where all matrices lie after these merges, each of which moves another matrix."""
    equal = equal_matrices(draft, c)
    one_way = c.where(c.left != c.right)
    place = draft.submatrices.take(np.where(one_way.left, one_way.s1, one_way.s2), axis=0)
    gone = equal[_gone(draft, one_way)]
    root = np.arange(len(equal))
    row, col = np.zeros((2, len(equal)), dtype=np.int64)
    root[gone] = equal[place[:, MATRIX]]
    row[gone], col[gone] = place[:, ROW_OFFSET], place[:, COL_OFFSET]
    while True:
        further = root[root]
        if np.array_equal(further, root):
            return Placement(root[equal], row[equal], col[equal])
        row, col, root = row + row[root], col + col[root], further


def _gone(draft: Draft, c: Candidates) -> Ids:
    """The matrix that moves, of each candidate that can be merged in one way only."""
    return draft.layout.matrix_of[np.where(c.left, c.s2, c.s1)]
