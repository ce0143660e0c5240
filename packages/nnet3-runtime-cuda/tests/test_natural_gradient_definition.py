"""The fast natural gradient compared with a slow one by definition, and each type's settings."""

from __future__ import annotations

from random import Random

import attrs
import numpy as np
import pytest
from natural_gradient_by_definition import NaturalGradientByDefinition
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.cpu.natural_gradient import OnlineNaturalGradient
from nnet3_runtime_cuda.operations.gradients import (
    ColumnBlocks,
    FisherEstimate,
    NaturalGradientOptions,
)
from small_networks import network, stacked

MINIBATCHES = 25
TOLERANCE = {np.float64: 1e-7, np.float32: 2e-3}
"""The largest difference, relative to the largest value."""

TRUSTED_SPREAD = {np.float64: 1e8, np.float32: 1e4}
"""The spread of eigenvalues above which rounding errors of the fast form can choose directions."""

Minibatch = np.ndarray


def draw_options(rng: Random) -> NaturalGradientOptions:
    """Settings of all sizes."""
    return NaturalGradientOptions(
        rank=rng.choice([1, 2, 3, 5, 8, 40]),
        update_period=rng.choice([1, 1, 2, 5]),
        num_samples_history=rng.choice([1.0, 30.0, 2000.0, 1e5]),
        num_minibatches_history=rng.choice([0.0, 0.0, 1.5, 10.0]),
        alpha=rng.choice([0.0, 0.1, 4.0, 50.0]),
    )


def draw_case(seed: int) -> tuple[NaturalGradientByDefinition, list[Minibatch]]:
    """A slow natural gradient and minibatches for it."""
    rng = Random(seed)
    dim = rng.choice([2, 3, 6, 12, 20])
    options = draw_options(rng)
    return NaturalGradientByDefinition(options, dim), draw_minibatches(rng, dim)


def draw_minibatches(rng: Random, dim: int) -> list[Minibatch]:
    """Minibatches, (rows, dim) each: few strong directions, now and then zeros or few rows."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    strong = numbers.standard_normal(dim) * rng.choice([0.0, 1.0, 20.0])
    usual, size = rng.randint(2, 40), rng.choice([1e-5, 1e-4, 1.0, 1e4])
    minibatches = []
    for number in range(MINIBATCHES):
        rows = rng.choice([usual] * 4 + [1, 2, rng.randint(1, 40)])
        if number == 0 and size > 0.01:  # otherwise rounding errors choose the first directions
            rows = 2 * dim
        x = numbers.standard_normal((rows, dim)) + numbers.standard_normal((rows, 1)) * strong
        kind = rng.choice(["all"] * 8 + ["none", "one column", "some rows"] * (number > 0))
        if kind == "none":
            x[:] = 0.0
        elif kind == "one column":
            x[:, rng.randrange(1, dim + 1) :] = 0.0
        elif kind == "some rows":
            x[numbers.random(rows) < 0.5] = 0.0
        minibatches.append(size * x)
    return minibatches


def estimated(
    natural: OnlineNaturalGradient, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """R, d and rho of the fast form before the next minibatch, given its W = E^(1/2) R."""
    natural.begin(ColumnBlocks([x]), np.empty((len(x), len(natural.w)), x.dtype))
    w, d, rho = natural.w.astype(np.float64), natural._d, natural._rho
    beta = rho + natural.estimate.options.alpha / w.shape[1] * (w.shape[1] * rho + d.sum())
    return w * np.sqrt(beta / d + 1.0)[:, None], d, rho


SEEDS = range(40)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("seed", SEEDS)
def test_fast_form_is_the_definition(seed: int, dtype: type[np.floating]) -> None:
    """Rows, scale and the estimate agree after each of many minibatches."""
    slow, minibatches = draw_case(seed)
    fast, tolerance = OnlineNaturalGradient(FisherEstimate(slow.options)), TOLERANCE[dtype]
    for number, minibatch in enumerate(minibatches):
        x = minibatch.astype(dtype)
        found = x.copy()
        expected, expected_scale = slow.precondition(x)

        scale = fast.precondition(found)

        if slow.spread > TRUSTED_SPREAD[dtype]:
            return
        r, d, rho = estimated(fast, x)
        fisher = r.T @ np.diag(d) @ r + rho * np.eye(slow.dim)
        where = f"minibatch {number} of {x.shape}, {slow.options}, spread {slow.spread:.1e}"
        for what, one, other, size in (
            ("rows", found, expected, np.abs(x).max()),
            # |x| / |x - h w|, where the difference is as exact as x
            ("scale", scale, expected_scale, expected_scale**2),
            ("F", fisher, slow.fisher, np.abs(slow.fisher).max()),
        ):
            error = np.abs(one - other).max()
            assert error <= tolerance * size, f"{where}: {what} by {error:.1e} of {size:.1e}"


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_most_minibatches_are_compared(dtype: type[np.floating]) -> None:
    """In nearly all cases, the spread of eigenvalues is small enough for the precision."""
    compared = 0
    for seed in SEEDS:
        slow, minibatches = draw_case(seed)
        for x in minibatches:
            slow.precondition(x)
            if slow.spread > TRUSTED_SPREAD[dtype]:
                break
            compared += 1

    assert compared >= 0.8 * len(SEEDS) * MINIBATCHES


@pytest.mark.parametrize("seed", range(20))
def test_what_must_hold_of_any_estimate(seed: int) -> None:
    """R R^T = I, W W^T = E; the total norm stays; no row turns by more than 90 degrees."""
    slow, minibatches = draw_case(seed)
    natural = OnlineNaturalGradient(FisherEstimate(slow.options))
    for x in minibatches:
        rows = x.astype(np.float32)
        scale = natural.precondition(rows)

        products = np.einsum("nd,nd->n", rows.astype(np.float64), x)
        squares = np.einsum("nd,nd->n", rows.astype(np.float64), rows)
        r, d, rho = estimated(natural, rows)
        assert (products >= 0.0).all()
        np.testing.assert_allclose(scale**2 * squares.sum(), np.sum(x**2), rtol=1e-3)
        np.testing.assert_allclose(r @ r.T, np.eye(len(r)), atol=2e-3)
        assert (d > 0.0).all()
        assert rho > 0.0


Settings = tuple[int, int, float, float, float]
"""Rank, update period, history in samples, history in minibatches (0 for none), alpha."""

ALL = "rank-in=7 rank-out=9 update-period=3 num-samples-history=500 alpha=2"
CASES: dict[str, tuple[str, list[Settings]]] = {
    "NaturalGradientAffine": (
        f"input-dim=30 output-dim=50 {ALL}",
        [(7, 3, 500.0, 0.0, 2.0), (9, 3, 500.0, 0.0, 2.0)],
    ),
    "NaturalGradientAffine by default": (
        "input-dim=300 output-dim=500",
        [(20, 4, 2000.0, 0.0, 4.0), (80, 4, 2000.0, 0.0, 4.0)],
    ),
    "Linear": (
        f"input-dim=30 output-dim=50 {ALL}",
        [(7, 3, 500.0, 0.0, 2.0), (9, 3, 500.0, 0.0, 2.0)],
    ),
    "Tdnn": (
        "input-dim=30 output-dim=50 time-offsets=0 rank-in=7 rank-out=9 num-samples-history=500 "
        "alpha-in=2 alpha-out=3",
        [(7, 4, 500.0, 0.0, 2.0), (9, 4, 500.0, 0.0, 3.0)],
    ),
    "TimeHeightConvolution": (
        "num-filters-in=30 num-filters-out=50 height-in=1 height-out=1 height-offsets=0 "
        "time-offsets=0 rank-in=7 rank-out=9 num-minibatches-history=5 alpha-in=2 alpha-out=3",
        [(7, 1, 2000.0, 5.0, 2.0), (9, 1, 2000.0, 5.0, 3.0)],
    ),
    "GruNonlinearity": (
        "cell-dim=30 rank-in=7 rank-out=9 update-period=3 alpha=2",
        [(7, 3, 2000.0, 0.0, 2.0), (9, 3, 2000.0, 0.0, 2.0)],
    ),
    "OutputGruNonlinearity": (
        "cell-dim=30 rank=7 update-period=3 alpha=2",
        [(7, 3, 2000.0, 0.0, 2.0)],
    ),
    "LstmNonlinearity": ("cell-dim=30", [(20, 2, 1000.0, 0.0, 4.0)]),
    "NaturalGradientPerElementScale": (
        "dim=30 rank=7 update-period=3 num-samples-history=500 alpha=2",
        [(7, 3, 500.0, 0.0, 2.0)],
    ),
    "PerElementOffset": ("dim=30", [(20, 4, 2000.0, 0.0, 4.0)]),
    "ScaleAndOffset": ("dim=30 rank=7", [(7, 4, 2000.0, 0.0, 4.0)] * 2),
    "NaturalGradientRepeatedAffine": (
        "input-dim=60 output-dim=50 num-repeats=2",
        [(15, 4, 2000.0, 0.0, 4.0)],
    ),
    "ConstantFunction": ("input-dim=3 output-dim=50", [(40, 1, 2000.0, 0.0, 4.0)]),
    "Constant": ("output-dim=50", [(40, 1, 2000.0, 0.0, 4.0)]),
}


@pytest.mark.parametrize("name", CASES)
def test_settings(name: str) -> None:
    """Rank, period, history and alpha are those of the config line, or Kaldi's defaults."""
    options, expected = CASES[name]
    component = f"component name=c type={name.split()[0]}Component {options}\n"
    nnet = network(stacked(1, "unread NoOp dim=1") + component)

    kernel = DeviceNnet(nnet, natural_gradient=True).kernel(1)

    found = [attrs.astuple(estimate.options) for estimate in kernel.store.estimates]
    assert sorted(found) == sorted(expected)
