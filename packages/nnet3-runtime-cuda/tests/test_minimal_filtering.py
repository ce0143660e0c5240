"""Minimal filtering gives the outputs of direct filters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_runtime_cuda.kernels.time_tiles import POINTS, minimal_filtering

DOUBLE = np.dtype(np.float64)


@given(st.integers(1, len(POINTS) + 1), st.integers(0, 1000))
def test_outputs_are_those_of_the_filter(num_taps: int, seed: int) -> None:
    """A^T ((G w) * (B^T x)) is the sum of taps times inputs, for any number of taps."""
    filtering = minimal_filtering(num_taps, DOUBLE)
    rng = np.random.default_rng(seed)
    x, taps = rng.standard_normal(filtering.num_products), rng.standard_normal(num_taps)

    y = filtering.outputs @ ((filtering.taps @ taps) * (filtering.inputs @ x))

    np.testing.assert_allclose(y, np.correlate(x, taps, mode="valid"), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("num_taps", "num_outputs"), [(2, 5), (3, 4), (5, 2)])
def test_number_of_outputs(num_taps: int, num_outputs: int) -> None:
    """F(m, r) has m + r - 1 products: one for each point, and one for infinity."""
    filtering = minimal_filtering(num_taps, DOUBLE)

    assert filtering.num_outputs == num_outputs
    assert filtering.num_products == num_outputs + num_taps - 1 == len(POINTS) + 1
