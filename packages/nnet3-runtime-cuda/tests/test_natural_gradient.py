"""Tests of the online natural gradient."""

from typing import Any

import numpy as np
import pytest
from natural_gradient_by_definition import record_affine
from nnet3_runtime_cuda.cpu import natural_gradient as estimates
from nnet3_runtime_cuda.cpu.natural_gradient import OnlineNaturalGradient
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.operations import natural_gradient
from nnet3_runtime_cuda.operations.gradients import (
    ColumnBlocks,
    FisherEstimate,
    NaturalGradientOptions,
)


def rows(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Random rows with a few strong directions."""
    rng = np.random.default_rng(seed)
    scale = np.where(np.arange(dim) < 3, 10.0, 0.3)
    return (rng.standard_normal((count, dim)) * scale).astype(np.float32)


def online(**options: Any) -> OnlineNaturalGradient:
    """A natural gradient that has seen nothing."""
    return OnlineNaturalGradient(FisherEstimate(NaturalGradientOptions(**options)))


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
    x, dy, tape = rows(count, 12), rows(count, 7, 1), NumpyTape()
    blocks = [x[:, :5], x[:, 5:]]
    _, compare = record_affine(tape, blocks, dy, has_bias=has_bias, first=first)

    tape.run()

    compare()


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
    estimates.project(x, w, projected)
    estimates.transposed_times(x, h, out)

    assert x.dim == 6
    np.testing.assert_allclose(projected, matrix @ w.T, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(out, h.T @ matrix, rtol=1e-4, atol=1e-2)
    assert estimates.sum_of_squares(x) == pytest.approx(float((matrix**2).sum()), rel=1e-5)
    difference = estimates.sum_of_squared_differences(x, h, w)
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
