"""Which legal merges are made at once."""

from __future__ import annotations

import numpy as np
from nnet3_computation.arrays import Bools, Csr, Ids, ordering, where

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.matrices.merge_variables.candidates import Candidates
from nnet3_optimizer.passes.matrices.merge_variables.placement import (
    Placement,
    first_of_each_matrix,
    placement,
)


def select(
    draft: Draft, c: Candidates, is_last: Bools, contiguous: Bools
) -> tuple[Bools, Placement]:
    """Chooses legal candidates that stay legal when all of them are merged.

    If C is the last access to s1, the life of s1 ends where the life of s2 begins. Such merges do
    not affect each other, so whole chains are merged at once. A copy whose source is used later
    lets two lives overlap. It may end such a chain; but among candidates that read the source or
    the target of the copy, the earliest wins. No matrix moves to two places. A chain whose merged
    matrix would break rules 1 to 3 or 5 is merged in pieces.

    Args:
        draft: The draft.
        c: Legal candidates.
        is_last: (candidates,) bool, whether C is the last access to s1.
        contiguous: (M,) bool, matrices with rows that have to follow each other without a gap.

    Returns:
        Which candidates are chosen, (candidates,) bool, and the places of all matrices after them.
    """
    chosen = np.arange(len(c.command))
    if not is_last.all():
        chosen = _without_conflicts(draft, c, ~is_last)
    chosen = chosen[first_of_each_matrix(draft, c.where(chosen))]
    placed = placement(draft, c.where(chosen))
    broken = _broken(draft, c.where(chosen), placed.root, contiguous)
    if broken.any():
        pieces = chosen[broken]
        everything = np.ones(len(pieces), dtype=np.bool_)
        pieces = pieces[_without_conflicts(draft, c.where(pieces), everything)]
        chosen = np.sort(np.concatenate([chosen[~broken], pieces]))
        placed = placement(draft, c.where(chosen))
    is_chosen = np.zeros(len(c.command), dtype=np.bool_)
    is_chosen[chosen] = True
    return is_chosen, placed


def _broken(draft: Draft, c: Candidates, root: Ids, contiguous: Bools) -> Bools:
    """Returns which candidates, (candidates,) bool, belong to a chain that breaks a rule."""
    lifetimes = draft.analysis.lifetimes
    m1 = draft.layout.matrix_of[c.s1]
    group = root[m1]

    def count(of: Ids) -> Ids:
        return np.bincount(of, minlength=len(root))

    is_whole = draft.layout.is_whole
    inputs, outputs = count(root[lifetimes.is_input]), count(root[lifetimes.is_output])
    in_part = count(group[~(is_whole[c.s1] & is_whole[c.s2])])
    from_output = count(group[lifetimes.is_output[m1]])
    breaks = (inputs > 1) | (outputs > 1) | ((inputs + outputs > 0) & (in_part + from_output > 0))
    if contiguous.any():
        kept = np.where(c.left, c.s1, c.s2)
        narrow = count(group[~draft.layout.is_full_width[kept]])
        breaks |= (count(root[contiguous]) > 0) & (narrow > 0)
    breaks &= count(group) > 1
    is_broken: Bools = breaks[group]
    return is_broken


def _without_conflicts(draft: Draft, c: Candidates, alone: Bools) -> Ids:
    """Chooses candidates, earlier ones first, such that lives overlap in one of them at most.

    A candidate takes the variables of s1; if it is to be alone, it takes the variables of s2, too.
    No variable is taken twice.

    Args:
        draft: The draft.
        c: The candidates.
        alone: (candidates,) bool.

    Returns:
        The positions of the chosen candidates, ascending.
    """
    variables = draft.analysis.variables
    count = len(c.command)
    at = where(alone)
    lists = variables.of_submatrices(c.s1), variables.of_submatrices(c.s2[at])
    candidate = np.concatenate([_owners(lists[0]), at[_owners(lists[1])]])
    variable = np.concatenate([lists[0].values, lists[1].values])
    order = ordering(candidate)
    candidate, variable = candidate[order], variable[order]
    is_open = np.ones(count, dtype=np.bool_)
    is_chosen = np.zeros(count, dtype=np.bool_)
    taken = np.zeros(len(variables), dtype=np.bool_)
    while is_open.any():
        # Each variable goes to the first candidate that still wants it (NumPy keeps the last of
        # several assignments to one element). A candidate that gets all of its variables is chosen.
        first = np.full(len(variables), count, dtype=np.int64)
        first[variable[::-1]] = candidate[::-1]
        loses = np.zeros(count, dtype=np.bool_)
        loses[candidate[first[variable] != candidate]] = True
        chosen = is_open & ~loses
        is_chosen |= chosen
        taken[variable[chosen[candidate]]] = True
        is_open &= loses
        is_open[candidate[taken[variable]]] = False
        wanted = is_open[candidate]
        candidate, variable = candidate[wanted], variable[wanted]
    return where(is_chosen)


def _owners(lists: Csr) -> Ids:
    """The list that each value is in."""
    return np.arange(len(lists.splits) - 1).repeat(lists.splits[1:] - lists.splits[:-1])
