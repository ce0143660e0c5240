"""Values that are compressed between the passes are restored within half a unit."""

import numpy as np
import pytest
from computations import passes, request
from nnet3 import CachingCompiler
from nnet3_computation import commands
from nnet3_optimizer import OptimizeOptions
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from small_networks import computation, identity, network, stacked

INT8, UINT8, INT16, UINT16, ONE_BIT = 1, 2, 3, 4, 5


def round_trip(array: np.ndarray, kind: int, limit: float, *, truncate: bool) -> np.ndarray:
    """An array after compression and decompression."""
    program = [
        commands.AcceptInput(matrix=1, node=0),
        commands.CompressMatrix(
            matrix=1, compression_type=kind, truncate=int(truncate), alpha=limit
        ),
        commands.DecompressMatrix(matrix=1),
        commands.ProvideOutput(matrix=1, node=1),
        commands.NoOperationMarker(),
    ]
    computer = NnetComputer(identity(array.shape[1]), computation([array.shape], program))
    return computer.forward({"input": array})["output"]


@pytest.mark.parametrize(
    ("kind", "low", "steps"),
    [(INT8, -1.0, 127), (UINT8, 0.0, 255), (INT16, -1.0, 32767), (UINT16, 0.0, 65535)],
)
def test_values_within_the_limit(kind: int, low: float, steps: int) -> None:
    """Errors are at most half of the limit over the largest integer."""
    limit = 5.0
    array = np.random.default_rng(0).uniform(low * limit, limit, (20, 8)).astype(np.float32)

    np.testing.assert_allclose(
        round_trip(array, kind, limit, truncate=False), array, rtol=1e-6, atol=0.5 * limit / steps
    )


def test_values_beyond_the_limit() -> None:
    """With truncate, values beyond the limit become the limit."""
    array = np.array([[-1e6, -3.0, -0.0, 0.0, 1.0, 2.5, 10.0, 1e6]], dtype=np.float32)

    actual = round_trip(array, UINT8, 2.0, truncate=True)

    np.testing.assert_allclose(actual, [[0, 0, 0, 0, 1, 2, 2, 2]], atol=1.0 / 255)


def test_signs_only() -> None:
    """With limit 0, positive values become 1 and all others 0."""
    array = np.array([[-1e6, -3.0, -0.0, 0.0, 1e-30, 2.5, 10.0, 1e6]], dtype=np.float32)

    for kind in (UINT8, ONE_BIT):
        actual = round_trip(array, kind, 0.0, truncate=False)

        np.testing.assert_array_equal(actual, [[0, 0, 0, 0, 1, 1, 1, 1]])


def test_bits_at_the_end_of_the_matrix() -> None:
    """The planner may lay them over any rows of their matrix; the other rows still count."""
    matrix = np.random.default_rng(0).standard_normal((2500, 64)).astype(np.float32)
    expected = np.packbits(matrix > 0, axis=1, bitorder="little")
    packed = matrix.reshape(-1).view(np.uint8)[-expected.size :].reshape(expected.shape)
    tape = NumpyTape(dtype=np.float32)

    tape.pack_signs(matrix, packed)
    tape.run()

    np.testing.assert_array_equal(packed, expected)


RECTIFIER = stacked(
    12,
    "a1 Affine input-dim=12 output-dim=70",
    "r RectifiedLinear dim=70",
    "b BatchNorm dim=70",
    "a2 Affine input-dim=70 output-dim=3",
)


def test_rectifier_is_run_backward_with_its_signs() -> None:
    """Derivatives do not depend on whether a rectifier's output is kept as signs."""
    nnet = network(RECTIFIER)
    found = []
    for level in (0, 1):
        options = OptimizeOptions(memory_compression_level=level)
        compiler = CachingCompiler(nnet, optimize_options=options)
        compiled = compiler.compile(request(range(1000), range(1000)))
        found.append(passes(NnetComputer(DeviceNnet(nnet, trainable=True), compiled)))
        packs = any(isinstance(x, commands.CompressMatrix) for x in compiled.commands)
        assert packs == bool(level)

    for without, with_signs in zip(*found, strict=True):
        np.testing.assert_allclose(with_signs, without, rtol=1e-4, atol=1e-4)
