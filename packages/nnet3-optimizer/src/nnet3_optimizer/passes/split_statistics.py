"""Pass: statistics over time are extracted for each window that is pooled, not for each frame."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from nnet3_computation import commands
from nnet3_computation.analysis import MATRIX, NUM_ROWS, Layout
from nnet3_computation.arrays import Bools, Ids, IntArray, where
from nnet3_computation.computation import MatrixDebugInfo
from nnet3_descriptors.values import frozen, remembered

from nnet3_optimizer.draft import Draft

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


def split_statistics(draft: Draft) -> Draft:
    """Extracts the sums of each window at once, where windows do not overlap.

    Extracted statistics have more than twice as many columns as their input, and often one row for
    each frame, but are only needed for sums over windows. With other precomputed indexes the
    extraction gives one row for each window, and the pooling takes each row as it is.

    1. A StatisticsExtraction feeds a StatisticsPooling and nothing else, directly or as a copy;
       their derivatives likewise.
    2. The rows of the extraction are sums over ranges of frames that follow one another, and the
       windows are ranges of these rows that follow one another and leave none out.

    Results are equal except for the order of sums.

    Before::

        m1 = 600 x 4
        m2 = 600 x 9
        m3 = 2 x 8
        m1 = accept input
        m2 = zeros
        m2 = extract.propagate(m1, precomputed p1)
        m3 = undefined
        m3 = pool.propagate(m2, precomputed p2)

    After::

        m1 = 600 x 4
        m2 = 2 x 9
        m3 = 2 x 8
        m1 = accept input
        m2 = zeros
        m2 = extract.propagate(m1, precomputed p1)
        m3 = undefined
        m3 = pool.propagate(m2, precomputed p2)
    """
    pools = _pools(draft)
    if not len(pools) or commands.is_in_segments(draft.table):
        return draft
    matrices, submatrices = draft.matrices.copy(), draft.submatrices.copy()
    precomputed: list[Any] = list(draft.precomputed_indexes)
    debug_info = list(draft.debug_info)
    is_changed = False
    for command in pools.tolist():
        chain = _chain(draft, command)
        if chain is None:
            continue
        extract, pool, between = chain
        changed = _by_window(precomputed[extract], precomputed[pool])
        if changed is None:
            continue
        is_changed = True
        first_rows = precomputed[pool].forward_indexes[:, 0]
        precomputed[extract], precomputed[pool] = changed
        matrices[between, 0] = len(first_rows)
        submatrices[np.isin(submatrices[:, MATRIX], between), NUM_ROWS] = len(first_rows)
        for matrix in between if debug_info else ():
            debug_info[matrix] = _of_rows(debug_info[matrix], first_rows)
    if not is_changed:
        return draft
    return attrs.evolve(
        draft,
        layout=Layout(matrices=matrices, submatrices=submatrices),
        precomputed_indexes=tuple(precomputed),
        debug_info=tuple(debug_info),
    )


def _by_window(extract: Any, pool: Any) -> tuple[Any, Any] | None:
    """The precomputed indexes of an extraction and a pooling with a row for each window.

    None if rule 2 fails, or if that is what they have already.
    """
    (first, last), (begin, end) = extract.forward_indexes.T, pool.forward_indexes.T
    follow = (first[1:] == last[:-1]).all() and (begin[1:] == end[:-1]).all()
    is_all = begin[0] == 0 and end[-1] == len(first)
    if not (follow and is_all and (begin < end).all()) or len(begin) == len(first):
        return None
    windows = np.arange(len(begin), dtype=np.int32)
    own = np.stack([windows, windows + 1], axis=1)
    return (
        attrs.evolve(
            extract,
            forward_indexes=frozen(np.stack([first[begin], last[end - 1]], axis=1)),
            backward_indexes=frozen(windows.repeat(end - begin)[extract.backward_indexes]),
        ),
        attrs.evolve(
            pool,
            forward_indexes=frozen(own),
            backward_indexes=frozen(own[: len(pool.backward_indexes)]),
        ),
    )


def _pools(draft: Draft) -> Ids:
    """Returns the commands that pool statistics."""
    does_pool = _do_pool(draft.nnet)
    if not does_pool.any():
        return where(does_pool)
    at = draft.positions(commands.Propagate.OPCODE)
    pools: Ids = at[does_pool[draft.table[at, commands.FIRST_OPERAND_COLUMN]]]
    return pools


@remembered
def _do_pool(nnet: Nnet) -> Bools:
    """Which components, (components,) bool, pool statistics."""
    return np.array([c.type == "StatisticsPoolingComponent" for c in nnet.components], np.bool_)


def _of_rows(info: MatrixDebugInfo, rows: IntArray) -> MatrixDebugInfo:
    """Returns the debug info of some rows of a matrix."""
    if info.node < 0:
        return info
    return MatrixDebugInfo(is_deriv=info.is_deriv, pattern=frozen(info.cindexes[rows]))


_INPUT = commands.FIRST_OPERAND_COLUMN + 1


_BACKPROPS = (commands.Backprop, commands.BackpropNoModelUpdate)


def _chain(draft: Draft, pool_at: int) -> tuple[int, int, list[int]] | None:
    """Finds the extraction of a pooling that satisfies rule 1 of `split_statistics`.

    Returns:
        The numbers of the precomputed indexes of both, and the matrices that only they use:
        statistics and their derivatives. None if rule 1 fails.
    """
    matrix_of = draft.analysis.uses.matrix_of
    pool = commands.operands_of(draft.row(pool_at))
    pool_back = _with(draft, pool.precomputed_indexes, *_BACKPROPS)
    forward = _between(draft, matrix_of(pool.input), [pool_at, *pool_back])
    if forward is None:
        return None
    extract_at, matrices = forward
    row = draft.row(extract_at)
    if row[commands.OPCODE_COLUMN] != commands.Propagate.OPCODE:
        return None
    extract = commands.operands_of(row)
    if draft.nnet.components[extract.component].type != "StatisticsExtractionComponent":
        return None
    extract_back = _with(draft, extract.precomputed_indexes, *_BACKPROPS)
    if len(extract_back) > 1 or len(extract_back) != len(pool_back):
        return None
    if any(
        len(_with(draft, each.precomputed_indexes, commands.Propagate)) > 1
        for each in (extract, pool)
    ):
        return None
    for at in extract_back:
        deriv = matrix_of(commands.operands_of(draft.row(at)).output_deriv)
        backward = _between(draft, deriv, extract_back)
        if backward is None or backward[0] != pool_back[0]:
            return None
        matrices += backward[1]
    return extract.precomputed_indexes, pool.precomputed_indexes, matrices


def _with(draft: Draft, precomputed: int, *types: type[commands.Command]) -> list[int]:
    """The commands of some types with these precomputed indexes."""
    at = draft.positions(*(each.OPCODE for each in types))
    numbers = commands.operand(draft.table, at, types[0], "precomputed_indexes")
    found: list[int] = at[numbers == precomputed].tolist()
    return found


def _between(draft: Draft, read: int, readers: Collection[int]) -> tuple[int, list[int]] | None:
    """The command that makes the values of a matrix, and the matrices that hold them.

    These are the matrix and perhaps one that it copies. None if others than the readers use them,
    or parts of them.
    """
    uses = draft.analysis.uses
    matrices, users = [read], uses.users_of(read, writing=False)
    made = uses.users_of(read, writing=True)
    if len(made) == 1 and draft.copies_whole(made[0], commands.MatrixCopy.OPCODE):
        source = uses.matrix_of(draft.row(made[0])[_INPUT])
        matrices.append(source)
        others = uses.users_of(source, writing=False)
        users = [*users, *(at for at in others if at != made[0])]
        made = uses.users_of(source, writing=True)
    is_whole = draft.layout.is_whole[np.isin(draft.layout.matrix_of, matrices)]
    if len(made) != 1 or not is_whole.all() or not set(users) <= set(readers):
        return None
    return made[0], matrices
