"""Tests of the factors of tiled products in panels."""

import numpy as np
import pytest
from computations import single
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.kernels.tile_parts import Part, TileFactors
from nnet3_runtime_cuda.operations.panels import MOST_INNER, WIDTH, Panels

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
