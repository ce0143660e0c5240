"""Features of noise, and how outputs are compared, in the tests of models."""

from __future__ import annotations

import numpy as np


def frames(count: int, *, dim: int = 4, seed: int = 0) -> np.ndarray:
    """Features of random numbers."""
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def assert_same(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    """Asserts that outputs are the same up to rounding."""
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=0.1 * tolerance)
