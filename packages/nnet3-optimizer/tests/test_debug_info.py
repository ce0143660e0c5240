"""Debug info of matrices that passes make from others."""

import numpy as np
import pytest
from nnet3_computation.computation import NO_DEBUG_INFO, MatrixDebugInfo
from nnet3_optimizer.debug_info import by_sequence, concatenated, rows_of


def info_of(block: int) -> MatrixDebugInfo:
    """Six frames of three sequences, in blocks of `block` frames of a sequence."""
    pattern = [[5, 0, t, 0] for t in range(6)]
    return MatrixDebugInfo(pattern=pattern, sequences=[0, 3, 4], block=block)


@pytest.mark.parametrize("block", [1, 2, 3, 6])
def test_rows_of_a_matrix(block: int) -> None:
    """Any rows keep their cindexes; complete frames or sequences are stored as a pattern."""
    info = info_of(block)
    for begin in range(18):
        for end in range(begin + 1, 19):
            part = rows_of(info, begin, end)
            assert np.array_equal(part.cindexes, info.cindexes[begin:end])

    assert len(rows_of(info, 0, 3 * block).pattern) == block


def test_sequences_of_a_matrix() -> None:
    """If each sequence is in one piece, some sequences share the pattern of all."""
    part = rows_of(info_of(6), 6, 18)

    assert len(part.pattern) == 6
    assert part.sequences.tolist() == [3, 4]


@pytest.mark.parametrize("block", [1, 2, 3, 6])
def test_rows_in_the_order_of_sequences(block: int) -> None:
    """All frames of a sequence are together, and stored as a pattern."""
    info = by_sequence(info_of(block))

    assert info.cindexes.tolist() == [[5, n, t, 0] for n in (0, 3, 4) for t in range(6)]
    assert len(info.pattern) == 6


def test_unknown_rows_between_known_ones() -> None:
    """A matrix has no debug info if a part of it has none."""
    info = info_of(1)
    begins, counts = np.array([0, 0]), np.array([18, 18])

    assert concatenated([info, NO_DEBUG_INFO], begins, counts, are_whole=True) is NO_DEBUG_INFO
