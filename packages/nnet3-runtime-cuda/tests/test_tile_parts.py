"""Tests of tiles: their filters, parts and factors."""

from __future__ import annotations

import numpy as np
import pytest
from computations import single
from hypothesis import given
from hypothesis import strategies as st
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.kernels.tile_parts import PART_COLUMNS, Part, TileBlocking, TileFactors
from nnet3_runtime_cuda.kernels.time_tiles import POINTS, TimeTiles, minimal_filtering
from nnet3_runtime_cuda.operations.panels import MOST_INNER, WIDTH, Panels

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


@pytest.mark.parametrize("rows", [300, 552, 1200, 2000])
def test_changing_factors_take_no_more_memory_than_a_splice(rows: int) -> None:
    """With few rows, parameters that can change are transformed for few columns at a time."""
    input_dim, output_dim, num_taps = 1024, 1536, 3
    tiles = TimeTiles.at((0, 8, 16), rows, np.dtype(np.float32))
    assert tiles is not None

    blocking = TileBlocking.of(
        tiles, input_dim, output_dim, itemsize=4, is_fixed=False, in_panels=False, threads=1
    )

    factors = [tiles.num_products * part.shape[0] * part.shape[1] for part in blocking.parts]
    assert max(factors) <= rows * num_taps * input_dim
    assert sum(part.shape[0] for part in blocking.parts) == output_dim
    assert blocking.part_columns > 0.75 * min(rows * num_taps / tiles.num_products, PART_COLUMNS)


TAPS = np.array([[1, 0], [1, 1], [1, -1], [0, 1]], np.float32)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("outputs", [5, 3 * WIDTH, 5 * WIDTH + 3, MOST_INNER + 1])
@pytest.mark.parametrize("inputs", [7, 2 * WIDTH + 32, 2 * MOST_INNER + 1])
def test_sums_of_panels(inputs: int, outputs: int, threads: int) -> None:
    """Panels of changing parameters are right, for any number of threads."""
    nnet = single("type=TdnnComponent input-dim=2 output-dim=2 time-offsets=0", dim=2)
    store = DeviceNnet(nnet, trainable=True).kernel(0).store
    rng = np.random.default_rng(inputs)
    linear = rng.integers(-99, 99, (outputs, 2 * inputs)).astype(np.float32)
    part = Part(0, slice(0, inputs), slice(0, outputs), *[True] * 4)
    tape = NumpyTape(workers=Workers(threads) if threads > 1 else None)
    factors = TileFactors(store, linear, TAPS, [part], in_panels=True)

    forward, backward = factors.forward(tape, part), factors.backward(tape, part)
    tape.run()

    for k, sums in enumerate(np.tensordot(TAPS, linear.reshape(outputs, 2, inputs), (1, 1))):
        for made, matrix in ((forward[k], sums.T), (backward[k], sums)):
            assert isinstance(made, Panels)
            for (_, ours), (_, expected) in zip(made.groups, Panels.of(matrix).groups, strict=True):
                for (_, stack), (_, values) in zip(ours, expected, strict=True):
                    np.testing.assert_array_equal(stack, values)
