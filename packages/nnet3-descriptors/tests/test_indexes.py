"""Arrays of indexes: making, checking and sorting them."""

import numpy as np
import pytest
from nnet3_descriptors.indexes import as_indexes, index_order, make_indexes


@pytest.mark.parametrize("values", [[], (), np.empty((0, 3)), np.empty(0, dtype=np.float64)])
def test_nothing(values: object) -> None:
    """Empty input gives an array of shape (0, 3)."""
    assert as_indexes(values).shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.int64, np.int16, np.uint8, np.int32])
def test_converts_integers(dtype: type) -> None:
    """All kinds of integers become int32."""
    indexes = as_indexes(np.array([[0, 1, 2]], dtype=dtype))

    assert indexes.dtype == np.int32
    assert indexes.tolist() == [[0, 1, 2]]


def test_make_indexes_broadcasts() -> None:
    """A scalar gives a column of equal values."""
    assert make_indexes(n=1, t=[3, 4]).tolist() == [[1, 3, 0], [1, 4, 0]]
    assert make_indexes(n=[0, 1], t=[3, 4], x=5).tolist() == [[0, 3, 5], [1, 4, 5]]
    assert make_indexes(0, 0, 0).tolist() == [[0, 0, 0]]


def test_order() -> None:
    """Indexes are ordered by t, then x, then n."""
    indexes = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [2, -1, 5]], dtype=np.int32)

    assert index_order(indexes).tolist() == [4, 3, 0, 2, 1]
