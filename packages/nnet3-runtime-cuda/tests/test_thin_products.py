"""Tests of products with few columns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_runtime_cuda.cpu.natural_gradient.thin_products import (
    FEWEST_TERMS,
    MOST_COLUMNS,
    ThinProduct,
)
from nnet3_runtime_cuda.operations.panels import MOST_WORK


@given(
    rows=st.integers(1, 300),
    dim=st.sampled_from([1, 7, 389, 1536]),
    columns=st.sampled_from([1, 20, MOST_COLUMNS]),
)
@settings(max_examples=3 * settings.default.max_examples // 10)
def test_values(rows: int, dim: int, columns: int) -> None:
    """Product and sum of squares are those of the matrix, for any number of rows and terms."""
    rng = np.random.default_rng(rows)
    x, factor = rng.standard_normal((rows, dim)), rng.standard_normal((dim, columns))
    out = np.full((rows, columns), np.nan, np.float32)

    square_sum = ThinProduct(x32 := x.astype(np.float32), columns)(factor.astype(np.float32), out)

    np.testing.assert_allclose(out, x @ factor, rtol=0, atol=1e-3)
    assert square_sum == pytest.approx(float(np.square(x32, dtype=float).sum()), rel=1e-5)


@pytest.mark.parametrize("columns", [1, 20, 40, MOST_COLUMNS])
@pytest.mark.parametrize("dim", [160, 1536, 6016])
def test_products_are_small(dim: int, columns: int) -> None:
    """Products are within the limit of the library's functions for small products."""
    product = ThinProduct(np.zeros((1700, dim), np.float32), columns)

    sizes = [stack.shape[1] * stack.shape[2] * columns for _, stack, _ in product._blocks]

    assert max(sizes) <= MOST_WORK


def test_which_pay() -> None:
    """The BLAS library computes products of scattered rows, short rows, and many columns."""
    x = np.zeros((8, 2 * FEWEST_TERMS), np.float32)

    assert ThinProduct.of(x, 2) is not None
    assert ThinProduct.of(x, 0) is None
    assert ThinProduct.of(x, MOST_COLUMNS + 1) is None
    assert ThinProduct.of(x[:, :FEWEST_TERMS], 2) is None
    assert ThinProduct.of(x.reshape(-1, FEWEST_TERMS // 2), 2) is None
