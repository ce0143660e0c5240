"""Products of matrices rounded to bfloat16, on processors that have them."""

from __future__ import annotations

import numpy as np
import pytest
from computations import bound, single
from nnet3_runtime_cuda.cpu import bf16
from nnet3_runtime_cuda.cpu.bf16 import Bf16Machine

has_bf16 = pytest.mark.skipif(bool(bf16.missing()), reason=f"no {bf16.missing()} here")


def rounded(values: np.ndarray) -> np.ndarray:
    """Values with 8 bits of precision, ties away from zero."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    whole = np.trunc(mantissa * 256 + np.copysign(0.5, mantissa))
    return np.ldexp(whole / 256, exponent)


@has_bf16
@pytest.mark.parametrize("rows", [16, 100, 3000])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("form", ["replace", "add", "plus"])
def test_products_of_rounded_factors(rows: int, is_transposed: bool, form: str) -> None:
    """The result is the product of both rounded factors, as in exact arithmetic."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((rows, 70)).astype(np.float32)[:, 3:67]
    b = rng.standard_normal((24, 64)).astype(np.float32)
    b = b.T if is_transposed else np.ascontiguousarray(b.T)
    b.flags.writeable = False
    out, other = (rng.standard_normal((rows, 24)).astype(np.float32) for _ in range(2))
    before = {"replace": 0.0, "add": out.copy(), "plus": other}[form]
    tape = Bf16Machine().tape()

    tape.matmul(a, b, out, add=form == "add", plus=other if form == "plus" else None)
    tape.run()

    np.testing.assert_allclose(out, before + rounded(a) @ rounded(b), rtol=0, atol=2e-5)
    assert np.abs(out - (before + a @ b)).max() > 1e-3


@has_bf16
def test_only_fixed_parameters_are_rounded() -> None:
    """Products with factors that can change are float32 products."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((32, 32)).astype(np.float32) for _ in range(2))
    out = np.empty((32, 32), np.float32)
    tape = Bf16Machine().tape()

    tape.matmul(a, b, out)
    tape.run()

    np.testing.assert_allclose(out, a @ b, rtol=0, atol=1e-5)


@has_bf16
def test_network() -> None:
    """An affine map's output is off by the rounding error, on the first run and later."""
    nnet = single("type=AffineComponent input-dim=32 output-dim=32", dim=32)
    computer = bound(nnet, range(40), sequences=1, training=False, precision="bf16")
    c = nnet.component("c")
    for seed in range(2):
        x = np.random.default_rng(seed).standard_normal((40, 32)).astype(np.float32)
        expected = rounded(x) @ rounded(c.linear_params).T + c.bias_params

        actual = computer.forward({"input": x})["output"]

        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
