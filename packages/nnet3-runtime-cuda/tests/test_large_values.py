"""Values whose exponentials or squares overflow or underflow, compared with double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from computations import bound, needs_compiler, single
from emulated_device import HostPlatform

TIMES = range(8)
DIM = 20

COMPONENTS = {
    "softmax": "type=SoftmaxComponent dim=20",
    "log-softmax": "type=LogSoftmaxComponent dim=20",
    "sigmoid": "type=SigmoidComponent dim=20",
    "tanh": "type=TanhComponent dim=20",
    "lstm": "type=LstmNonlinearityComponent cell-dim=4",
    "output gru": "type=OutputGruNonlinearityComponent cell-dim=4 param-mean=1",
    "attention": (
        "type=RestrictedAttentionComponent key-dim=5 value-dim=7 num-left-inputs=1 "
        "num-right-inputs=1 num-left-inputs-required=0 num-right-inputs-required=0"
    ),
    "normalize": "type=NormalizeComponent dim=20",
    "batch-norm": "type=BatchNormComponent dim=20",
}

PNORM = "type=PnormComponent input-dim=20 output-dim=5"


def passes(
    component: str, x: np.ndarray, dtype: type = np.float32, size: float = 1.0, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Output and input derivative, without self-repair, for output derivatives of a given size."""
    computer = bound(single(component, dim=x.shape[1]), TIMES, dtype=dtype, **options)
    outputs = computer.forward({"input": x})["output"]
    derivative = size * np.random.default_rng(1).standard_normal(outputs.shape)
    return outputs, computer.backward({"output": derivative.astype(np.float32)})["input"]


def assert_near(found: np.ndarray, exact: np.ndarray, least: float) -> None:
    """Compares values; differences are relative to the largest one, or to the least."""
    scale = max(float(np.abs(exact).max(initial=0.0)), least)
    np.testing.assert_allclose(found / scale, exact / scale, rtol=0, atol=1e-4)


@pytest.mark.parametrize("mean", [0.0, 100.0, -1e4])
def test_batch_norm_of_small_variances(mean: float) -> None:
    """The variance stays exact beside a mean that is thousands of times larger."""
    deviations = np.random.default_rng(0).standard_normal((2 * len(TIMES), DIM))
    x = (mean + deviations).astype(np.float32)
    outputs, _ = passes(COMPONENTS["batch-norm"], x)

    exact = x.astype(np.float64)
    variance = exact.var(axis=0) + 1e-3
    np.testing.assert_allclose(
        outputs, (exact - exact.mean(axis=0)) / np.sqrt(variance), rtol=1e-4, atol=2e-3
    )


SIZES = 0.0, 1e-40, 1e-20, 1e-5, 10.0, 100.0, 1e4, 1e12
CASES = [(name, size) for name in COMPONENTS for size in SIZES]
LARGEST = [(name, 8e37) for name in ("softmax", "sigmoid", "tanh")]
"""Differences of these inputs overflow."""


@pytest.mark.parametrize(("name", "size"), CASES + LARGEST)
def test_outputs_and_derivatives(name: str, size: float) -> None:
    """Results are finite, and equal those of double precision up to rounding."""
    dim = {"output gru": 12}.get(name, DIM)
    x = np.random.default_rng(0).standard_normal((2 * len(TIMES), dim)) * size
    x = x.astype(np.float32)

    both = (passes(COMPONENTS[name], x, dtype) for dtype in (np.float32, np.float64))
    for found, exact in zip(*both, strict=True):
        assert_near(found, exact, 1e-30)


SQUARING = {
    name: COMPONENTS.get(name, PNORM) for name in ("normalize", "batch-norm", "attention", "p-norm")
} | {
    "normalize with log": "type=NormalizeComponent dim=20 add-log-stddev=true target-rms=0.5",
    "normalize blocks": "type=NormalizeComponent dim=20 block-dim=5",
}
"""Components that compute squares, or products of two inputs."""


@pytest.mark.parametrize("size", [1e15, 1e19, 1e20, 1e25, 1e30, 1e37])
@pytest.mark.parametrize("name", SQUARING)
@pytest.mark.parametrize("device", ["cpu", pytest.param("host", marks=needs_compiler)])
def test_squares_beyond_single_precision(device: str, name: str, size: float) -> None:
    """Where squares of inputs overflow, outputs and derivatives still are those of the formula."""
    x = np.random.default_rng(0).standard_normal((2 * len(TIMES), DIM)) * size
    x[3] = np.random.default_rng(1).standard_normal(DIM)  # a row, and columns, of usual size
    if name != "attention":
        x[:, 10:] /= size
    x = x.astype(np.float32)
    platform = "cpu" if device == "cpu" else HostPlatform()

    both = passes(SQUARING[name], x, device=platform), passes(SQUARING[name], x, np.float64)

    for found, exact in zip(*both, strict=True):
        for rows in (slice(3, 4), slice(4, None)):
            for columns in (slice(0, 10), slice(10, None)):
                assert_near(
                    found[rows, columns], exact[rows, columns], float(np.finfo(np.float32).tiny)
                )


@pytest.mark.parametrize(
    ("component", "size"),
    [(COMPONENTS["normalize"], 1e-11), (COMPONENTS["normalize"], 0.0), (PNORM, 0.0)],
)
def test_large_derivatives(component: str, size: float) -> None:
    """If the norm of the input is 0, large derivatives give no NaN."""
    x = np.full((2 * len(TIMES), DIM), size, np.float32)

    (_, derivative), (_, double) = (
        passes(component, x, dtype, 1e25) for dtype in (np.float32, np.float64)
    )

    assert np.isfinite(double).all()
    np.testing.assert_allclose(derivative, double, rtol=1e-5)
