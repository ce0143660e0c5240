"""The online natural gradient, on the processor and on a device, and straight from its definition.

The definition is slow, in double precision: D. Povey, X. Zhang and S. Khudanpur, "Parallel training
of DNNs with natural gradient and parameter averaging" (2015), section 4 and appendix. Nothing of
the fast form is used: no W, H, J, K or L. The Fisher matrix F is full, and is inverted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import attrs
import numpy as np
import pytest
from computations import needs_compiler
from emulated_device import DryRun, HostPlatform
from hypothesis import given
from hypothesis import strategies as st
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.cpu import natural_gradient as on_host
from nnet3_runtime_cuda.cpu.natural_gradient import OnlineNaturalGradient
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cuda.machine import DeviceMachine
from nnet3_runtime_cuda.cuda.memory import ShadowMemory
from nnet3_runtime_cuda.cuda.natural_gradient import DeviceTape
from nnet3_runtime_cuda.cuda.segments import ALWAYS, Clock, HostSteps
from nnet3_runtime_cuda.errors import DeviceError
from nnet3_runtime_cuda.operations import Tape, natural_gradient
from nnet3_runtime_cuda.operations.gradients import (
    AffineGradient,
    ColumnBlocks,
    FisherEstimate,
)
from small_networks import network, stacked

SMALLEST = 1.0e-10
"""epsilon, the least eigenvalue of F."""

SMALLEST_PART = 5.0e-4
"""delta, the least eigenvalue of F relative to the largest."""

FIRST_MINIBATCHES = 10
"""The number of minibatches after the first that all change F."""


class NaturalGradientByDefinition:
    """F = R^T diag(d) R + rho I, estimated from minibatches.

    Attributes:
        r: (rank, dim), with orthonormal rows.
        d: (rank,), positive.
        rho: Positive.
        spread: Ratio of the largest to the smallest eigenvalue of Z, the matrix that the fast form
            decomposes; its maximum in the last call. Near the precision of numbers, rounding errors
            decide about the last rows of R.
    """

    def __init__(self, estimate: FisherEstimate, dim: int) -> None:
        self.estimate, self.dim = estimate, dim
        rank = min(estimate.rank, dim - 1)
        # Row k is not 0 in columns k, k + rank, ...: these are all 1, but the first is 1.1.
        self.r = np.zeros((rank, dim))
        for k in range(rank):
            self.r[k, k::rank] = 1.0
            self.r[k, k] = 1.1
            self.r[k] /= np.sqrt(np.sum(self.r[k] ** 2))
        self.d = np.full(rank, SMALLEST)
        self.rho = SMALLEST
        self.spread = 1.0
        self._count = 0

    @property
    def fisher(self) -> np.ndarray:
        """F, (dim, dim)."""
        return self.r.T @ np.diag(self.d) @ self.r + self.rho * np.eye(self.dim)

    @property
    def smoothed(self) -> np.ndarray:
        """G = F + alpha / dim tr(F) I, (dim, dim)."""
        fisher = self.fisher
        return fisher + self.estimate.alpha / self.dim * np.trace(fisher) * np.eye(self.dim)

    def precondition(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """Multiplies rows by the inverse of G, and then updates F by them.

        Args:
            x: (rows, dim).

        Returns:
            beta x G^-1 with beta the least eigenvalue of G, and the factor that gives it the
            Frobenius norm of x.
        """
        x = np.asarray(x, dtype=np.float64)
        self.spread = 1.0
        if self._count == 0:
            for _ in range(1 if len(x) <= len(self.r) else 3):
                self._see(x)
        beta = self.rho + self.estimate.alpha / self.dim * np.trace(self.fisher)
        result = beta * x @ np.linalg.inv(self.smoothed)
        norms = np.linalg.norm(x), np.linalg.norm(result)
        since = self._count - FIRST_MINIBATCHES
        if since <= 0 or since % self.estimate.update_period == 0:
            self._see(x)
        self._count += 1
        return result, norms[0] / norms[1] if norms[1] > 0.0 else 1.0

    def _see(self, x: np.ndarray) -> None:
        """Moves F towards the scatter of the rows, by a step of the power method."""
        rank = len(self.r)
        if rank == 0 or len(x) == 0:
            return
        if self.estimate.num_minibatches_history > 0.0:
            eta = 1.0 / self.estimate.num_minibatches_history
        else:
            eta = min(0.9, 1.0 - math.exp(-len(x) / self.estimate.num_samples_history))
        scatter = x.T @ x / len(x)
        target = eta * scatter + (1.0 - eta) * self.fisher
        # With Z = Y Y^T = U C U^T, the new R = C^(-1/2) U^T Y has the right singular vectors of Y
        # as rows, and the roots of C are its singular values.
        _, root_c, self.r = np.linalg.svd(self.r @ target, full_matrices=False)
        self.spread = max(self.spread, (root_c.max() / root_c.min()) ** 2)
        rho = (np.trace(target) - root_c.sum()) / (self.dim - rank)
        smallest = max(SMALLEST, SMALLEST_PART * root_c.max())
        self.d = np.maximum(root_c - rho, smallest)
        self.rho = max(rho, smallest)


MINIBATCHES = 25
TOLERANCE = {np.float64: 1e-7, np.float32: 2e-3}
"""The largest difference, relative to the largest value."""

TRUSTED_SPREAD = {np.float64: 1e8, np.float32: 1e4}
"""The spread of eigenvalues above which rounding errors of the fast form can choose directions."""


def draw_case(seed: int) -> tuple[NaturalGradientByDefinition, list[np.ndarray]]:
    """A slow natural gradient and minibatches for it."""
    rng = Random(seed)
    dim = rng.choice([2, 3, 6, 12, 20])
    estimate = FisherEstimate(
        rank=rng.choice([1, 2, 3, 5, 8, 40]),
        update_period=rng.choice([1, 1, 2, 5]),
        num_samples_history=rng.choice([1.0, 30.0, 2000.0, 1e5]),
        num_minibatches_history=rng.choice([0.0, 0.0, 1.5, 10.0]),
        alpha=rng.choice([0.0, 0.1, 4.0, 50.0]),
    )
    return NaturalGradientByDefinition(estimate, dim), draw_minibatches(rng, dim)


def draw_minibatches(rng: Random, dim: int) -> list[np.ndarray]:
    """minibatches, (rows, dim) each: few strong directions, now and then zeros or few rows."""
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
    beta = rho + natural.estimate.alpha / w.shape[1] * (w.shape[1] * rho + d.sum())
    return w * np.sqrt(beta / d + 1.0)[:, None], d, rho


SEEDS = range(40)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("seed", SEEDS)
def test_fast_form_is_the_definition(seed: int, dtype: type[np.floating]) -> None:
    """Rows, scale and the estimate agree after each of many minibatches."""
    slow, minibatches = draw_case(seed)
    fast, tolerance = OnlineNaturalGradient(slow.estimate), TOLERANCE[dtype]
    for number, minibatch in enumerate(minibatches):
        x = minibatch.astype(dtype)
        found = x.copy()
        expected, expected_scale = slow.precondition(x)

        scale = fast.precondition(found)

        if slow.spread > TRUSTED_SPREAD[dtype]:
            return
        r, d, rho = estimated(fast, x)
        fisher = r.T @ np.diag(d) @ r + rho * np.eye(slow.dim)
        where = f"minibatch {number} of {x.shape}, {slow.estimate}, spread {slow.spread:.1e}"
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
    natural = OnlineNaturalGradient(slow.estimate)
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

    found = [attrs.astuple(estimate) for estimate in kernel.store.estimates]
    assert sorted(found) == sorted(expected)


# ---- updates ----


def rows(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Random rows with a few strong directions."""
    rng = np.random.default_rng(seed)
    scale = np.where(np.arange(dim) < 3, 10.0, 0.3)
    return (rng.standard_normal((count, dim)) * scale).astype(np.float32)


def online(**options: Any) -> OnlineNaturalGradient:
    """A natural gradient that has seen nothing."""
    return OnlineNaturalGradient(FisherEstimate(**options))


def test_empty_estimate_is_made_once() -> None:
    """Rows of one column stay as they are; their estimate of rank 0 is made once."""
    natural, made = online(), []
    for seed in range(2):
        x = rows(5, 1, seed)
        assert natural.precondition(x) == 1.0
        np.testing.assert_array_equal(x, rows(5, 1, seed))
        made.append(natural.w)

    assert made[0] is made[1]
    assert made[0].shape == (0, 1)


@pytest.mark.parametrize("first", [True, False])
def test_no_rows_change_nothing(first: bool) -> None:
    """A minibatch without rows changes nothing, whether it is the first or a later one."""
    one, other = (online(rank=4) for _ in range(2))
    if not first:
        assert one.precondition(rows(9, 12)) == other.precondition(rows(9, 12))

    assert one.precondition(rows(0, 12)) == 1.0

    x, expected = rows(50, 12, 1), rows(50, 12, 1)
    assert one.precondition(x) == other.precondition(expected)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("spoilt", [0, 3, 13])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_rows_that_are_not_finite_are_forgotten(spoilt: int, value: float) -> None:
    """If squares of rows overflow, the estimate does not change."""
    one, other = (online(update_period=4) for _ in range(2))
    for number in range(16):
        if number == spoilt:
            bad = rows(50, 12)
            bad[7, 3] = value
            with np.errstate(all="ignore"):
                assert np.isnan(one.precondition(bad))
        found, expected = (rows(50, 12, number) for _ in range(2))
        assert one.precondition(found) == other.precondition(expected)
        np.testing.assert_array_equal(found, expected)


def test_rows_whose_squares_vanish() -> None:
    """For rows so small that nearly all squares underflow, the scale is finite."""
    for size in (1e-21, 1e-22, 3e-23, 1e-23, 1e-30):
        natural = online(rank=4)
        assert np.isfinite(natural.precondition(rows(1, 6) * np.float32(size)))


RANKS = 4, 3
"""Of the estimates for the input and for the output derivative of an affine map."""


def check_affine(
    tape: Tape,
    count: int,
    *,
    has_bias: bool,
    first: bool,
    pull: Callable[[list[np.ndarray]], object] = lambda arrays: None,
) -> None:
    """Compares the update of parameters of 1 with the product of the preconditioned rows.

    The input is in two blocks of columns.
    """
    x, dy, scale = rows(count, 12), rows(count, 7, 1), 1.0
    xs = [np.ascontiguousarray(part) for part in np.split(x, [5], axis=1)]
    linear, bias = np.ones((7, 12), np.float32), np.ones(7, np.float32)
    sides = [np.hstack([x, np.ones((count, int(has_bias)), x.dtype)]), dy.copy()]
    for rank, side in zip(RANKS, sides, strict=True):
        scale *= online(rank=rank).precondition(side)
    expected = (0.0 if first else 1.0) + scale * sides[1].T @ sides[0]
    gradient = AffineGradient(
        xs=xs, dy=dy, linear=linear, bias=bias if has_bias else None, first=first
    )
    of_input, of_output = (FisherEstimate(rank=rank) for rank in RANKS)
    natural_gradient.record_natural_gradient(tape, (of_input, of_output), gradient)

    tape.run()

    pull([linear, bias])
    found = np.hstack([linear, bias[:, None]]) if has_bias else linear
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("count", [50, 10, 5])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("by_rows", [(), (7,), (12, 13), (7, 12, 13)])
def test_affine_equals_explicit_product(
    by_rows: tuple[int, ...],
    has_bias: bool,
    count: int,
    first: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parameters change by the product of the preconditioned rows.

    The first gradient replaces the contents.
    """
    # Rows of matrices with these numbers of columns are preconditioned, else the gradient is.
    monkeypatch.setattr(
        natural_gradient, "precondition_rows_of", lambda _, dim, *__, **___: dim in by_rows
    )
    check_affine(NumpyTape(), count, has_bias=has_bias, first=first)


def test_narrow_sides_are_preconditioned_by_rows() -> None:
    """Rows are preconditioned if they are few or narrow; otherwise the gradient is."""
    precondition_rows_of = natural_gradient.precondition_rows_of
    assert precondition_rows_of(400, 160, 80, other=3072)
    assert not precondition_rows_of(400, 3072, 20, other=160)
    assert precondition_rows_of(8, 3000, 20, other=512)


@pytest.mark.parametrize("part", [slice(0, 20), slice(5, 12)])
def test_products_of_column_blocks(part: slice) -> None:
    """Products and norms, also of some rows, are those of the plain matrix."""
    parts, ones = [rows(20, 3), rows(20, 2, 1)], np.ones(20, np.float32)
    matrix, blocks = np.hstack([*parts, ones[:, None]])[part], ColumnBlocks(parts, last=ones)
    h, w, out = rows(20, 4, 2)[part], rows(4, 6, 4), np.empty((4, 6), np.float32)
    projected = np.empty((len(matrix), 4), np.float32)

    x = blocks.rows(part)
    on_host.project(x, w, projected)
    on_host.transposed_times(x, h, out)

    assert x.dim == 6
    np.testing.assert_allclose(projected, matrix @ w.T, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(out, h.T @ matrix, rtol=1e-4, atol=1e-2)
    assert on_host.sum_of_squares(x) == pytest.approx(float((matrix**2).sum()), rel=1e-5)
    difference = on_host.sum_of_squared_differences(x, h, w)
    assert difference == pytest.approx(float(((matrix - h @ w) ** 2).sum()), rel=1e-4)


def test_norm_of_rows_in_few_directions() -> None:
    """If preconditioning removes nearly everything, the scale is still exact."""
    x = np.outer(np.arange(1.0, 51.0), np.ones(2000)).astype(np.float32)
    natural = online(rank=1, alpha=0.01)
    for _ in range(20):
        natural.precondition(x.copy())
    preconditioned = x.copy()

    scale = natural.precondition(preconditioned)

    np.testing.assert_allclose(
        scale * np.linalg.norm(preconditioned.astype(float)), np.linalg.norm(x.astype(float)), 1e-4
    )


def test_estimates_go_on_from_their_state() -> None:
    """A run continued from the state after any minibatch gives the same bits.

    With rows of one direction and very different sizes, the estimate must sometimes be made
    orthonormal again, at its next use.
    """
    natural = online(rank=4)
    renewals = 0
    for seed in range(14):
        other = online(rank=4)
        other.state = natural.state
        factors = np.random.default_rng(seed).standard_normal(50)
        direction = np.random.default_rng(seed // 4).standard_normal(12)
        x = (10.0 ** (2 * (seed % 5) - 4) * np.outer(factors, direction)).astype(np.float32)
        y = x.copy()

        assert natural.precondition(x) == other.precondition(y)
        np.testing.assert_array_equal(x, y)
        renewals += len(natural.state.renewed) > 0
    assert renewals > 1


# ---- devices ----


@needs_compiler
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("count", [50, 20, 5])
@pytest.mark.parametrize("has_bias", [True, False])
def test_affine_on_a_device(has_bias: bool, count: int, first: bool) -> None:
    """The parameters change by the product of the preconditioned rows.

    With many rows, the gradient is preconditioned; with few, the rows are.
    """
    machine = DeviceMachine(HostPlatform(strict=True))
    check_affine(machine.tape(), count, has_bias=has_bias, first=first, pull=machine.pull)


@needs_compiler
def test_reads_of_new_memory_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate that begins must fill its matrices with zeros, for a kernel reads them."""
    fill = DeviceTape.fill
    monkeypatch.setattr(DeviceTape, "fill", lambda *args: args[1] and fill(*args))
    tape = DeviceMachine(HostPlatform(strict=True)).tape()
    with pytest.raises(DeviceError, match=r"nothing has written.*element \d+ of argument .*float"):
        check_affine(tape, 50, has_bias=False, first=True)


def test_sides_share_launches() -> None:
    """Equal operations for the blocks of input and output derivative share a kernel."""
    platform = DryRun()
    machine = DeviceMachine(platform)
    with pytest.raises(AssertionError):  # for nothing is computed
        check_affine(machine.tape(), 50, has_bias=True, first=True, pull=machine.pull)

    (source,) = platform.sources
    # Three kernels sum the squares of blocks; four test whether exact norms are needed.
    assert source.count("square += value * value;") == 3
    assert source.count("if (is_small[0] == 0) return;") == 4
    squares, differences = (
        [kernel for kernel in source.split('extern "C"') if text in kernel]
        for text in ("square += value * value;", "if (is_small[0] == 0) return;")
    )
    assert (len(squares), len(differences)) == (1, 1)


PERIODS = (1, 4, 3)


@given(
    segments=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=3),
    runs=st.lists(st.integers(0, 2), min_size=1, max_size=40),
)
def test_decisions_are_those_of_the_processor(segments: list[list[int]], runs: list[int]) -> None:
    """Segments that use estimates in any order decide as if at each use."""
    clock = Clock()
    assert [clock.add() for _ in PERIODS] == [0, 1, 2]
    bound = []
    for estimates in segments:
        steps = HostSteps(ShadowMemory(DryRun()), clock)
        uses = [steps.use(estimate, PERIODS[estimate]) for estimate in estimates]
        union = steps.any_of([moves for _, moves in uses])
        bound.append((steps, estimates, uses, union))
    slow = [OnlineNaturalGradient(FisherEstimate(update_period=n)) for n in PERIODS]
    for run in runs:
        steps, estimates, uses, union = bound[run % len(bound)]
        flags = steps.decide()
        moved = []
        for estimate, (begins, moves) in zip(estimates, uses, strict=True):
            natural = slow[estimate]
            assert flags[begins] == (natural._minibatches == 0)
            assert flags[moves] == natural.is_updating
            moved.append(natural.is_updating)
            natural._minibatches += 1
        assert flags[union] == any(moved)
        assert steps.starts == {begins for begins, _ in uses}


def test_what_depends_on_nothing_always_runs() -> None:
    """Without decisions there is nothing to decide, and the union of one set is that set."""
    steps = HostSteps(ShadowMemory(DryRun()), Clock())
    assert steps.any_of([]) == ALWAYS
    assert steps.any_of([7]) == 7
    assert steps.decide().tolist() == []
    assert steps.decide().dtype == np.bool_
