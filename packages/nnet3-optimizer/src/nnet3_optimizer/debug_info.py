"""Debug info of matrices that passes make from others."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from nnet3_computation.arrays import Ids, IntArray
from nnet3_computation.computation import NO_DEBUG_INFO, NODE, MatrixDebugInfo, T
from nnet3_descriptors.indexes import NO_TIME
from nnet3_descriptors.values import frozen


def concatenated(
    infos: Sequence[MatrixDebugInfo], begins: Ids, counts: Ids, *, are_whole: bool
) -> MatrixDebugInfo:
    """Returns the debug info of rows of matrices, one below the other.

    Args:
        infos: For each part the debug info of its matrix.
        begins: (parts,) the first row of each part.
        counts: (parts,) its number of rows.
        are_whole: Whether each part is all rows of its matrix.
    """
    first = infos[0]
    sequences = {id(info.sequences): info.sequences for info in infos}  # few, for many matrices
    share_a_pattern = (
        are_whole
        and len({info.block for info in infos}) == 1
        and all(np.array_equal(each, first.sequences) for each in [*sequences.values()][1:])
    )
    if share_a_pattern:
        pattern = np.concatenate([info.pattern for info in infos])
        is_known = len(pattern) * max(1, len(first.sequences)) == int(counts.sum())
        if not is_known or (pattern[:, NODE] != pattern[0, NODE]).any():
            return NO_DEBUG_INFO
        return attrs.evolve(first, pattern=frozen(pattern))
    if len({info.node for info in infos}) != 1:
        return NO_DEBUG_INFO
    cindexes = [
        info.cindexes_of(begin, begin + count)
        for info, begin, count in zip(infos, begins.tolist(), counts.tolist(), strict=True)
    ]
    return MatrixDebugInfo(is_deriv=first.is_deriv, pattern=frozen(np.concatenate(cindexes)))


def by_sequence(info: MatrixDebugInfo) -> MatrixDebugInfo:
    """Returns the debug info of the same rows, with the rows of each sequence together."""
    return attrs.evolve(info, block=len(info.pattern))


def rows_of(info: MatrixDebugInfo, begin: int, end: int) -> MatrixDebugInfo:
    """Returns the debug info of the rows begin <= r < end of a matrix."""
    if info.node < 0:
        return info
    block, size = info.block, len(info.sequences)
    if size and begin % (block * size) == end % (block * size) == 0:  # some frames of all sequences
        return attrs.evolve(info, pattern=info.pattern[begin // size : end // size])
    if size and len(info.pattern) == block and begin % block == end % block == 0:
        return attrs.evolve(info, sequences=info.sequences[begin // block : end // block])
    return MatrixDebugInfo(is_deriv=info.is_deriv, pattern=info.cindexes_of(begin, end))


def extended(info: MatrixDebugInfo, rows: int) -> MatrixDebugInfo:
    """Returns the debug info of a matrix with `rows` more rows, which stand for no cindex."""
    if info.node < 0:
        return info
    size = len(info.sequences)
    if size and rows % (info.block * size) == 0:  # the same for all sequences
        return attrs.evolve(info, pattern=_padded(info.pattern, rows // size))
    return MatrixDebugInfo(is_deriv=info.is_deriv, pattern=_padded(info.cindexes, rows))


def _padded(cindexes: IntArray, rows: int) -> IntArray:
    """Returns cindexes with `rows` further rows, which stand for no cindex."""
    padding = np.repeat(cindexes[-1:], rows, axis=0)
    padding[:, T] = NO_TIME
    return frozen(np.concatenate([cindexes, padding]))
