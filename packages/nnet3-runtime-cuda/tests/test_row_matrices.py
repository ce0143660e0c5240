"""Tests of matrices that do not lie in memory as one piece."""

import numpy as np
import pytest
from nnet3_runtime_cuda import thin_products
from nnet3_runtime_cuda.row_matrices import ColumnBlocks, RowMatrix, SplicedRows, TimeSplice

ROWS, OFFSETS, WIDTH, HEIGHT = 20, (1, 0, 3), 5, 4


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def spliced(h: np.ndarray, *, thin_columns: int = 0) -> tuple[RowMatrix, np.ndarray]:
    """A time splice, prepared for products with h, and the same as one matrix."""
    splice = TimeSplice(random(ROWS + 3, WIDTH), OFFSETS, ROWS)
    wide = np.zeros((ROWS + 3, HEIGHT, len(OFFSETS)), np.float32)
    for k, first in enumerate(OFFSETS):
        wide[first : first + ROWS, :, k] = h
    memory = np.full((ROWS + 3, HEIGHT * len(OFFSETS)), np.nan, np.float32)
    known = h, wide.reshape(ROWS + 3, -1)
    rows = SplicedRows(splice, memory, spread=known, thin_columns=thin_columns)
    return rows, np.hstack(splice.parts)


def thin_splice(h: np.ndarray) -> tuple[RowMatrix, np.ndarray]:
    """The same, with small products."""
    return spliced(h, thin_columns=HEIGHT)


def thin(h: np.ndarray) -> tuple[RowMatrix, np.ndarray]:
    """A matrix in one piece and a column of ones, with small products."""
    matrix, ones = random(ROWS, 11), np.ones(ROWS, np.float32)
    rows = ColumnBlocks([matrix], last=ones, thin_columns=HEIGHT)
    return rows, np.hstack([matrix, ones[:, None]])


def blocks(h: np.ndarray) -> tuple[RowMatrix, np.ndarray]:
    """Blocks of columns and a column of ones, and the same as one matrix."""
    parts = [random(ROWS, 3), random(ROWS, 2, seed=1)]
    return ColumnBlocks(parts, last=np.ones(ROWS, np.float32)), np.hstack(
        [*parts, np.ones((ROWS, 1), np.float32)]
    )


@pytest.fixture(autouse=True)
def short_rows_are_thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are taken for matrices of few columns, too."""
    monkeypatch.setattr(thin_products, "FEWEST_TERMS", 1)


@pytest.mark.parametrize("make", [spliced, thin_splice, blocks, thin])
@pytest.mark.parametrize("is_known", [False, True])
def test_products(make, is_known: bool) -> None:
    """Products and norms are those of the matrix in one piece."""
    h = random(ROWS, HEIGHT, seed=2)
    rows, matrix = make(h if is_known else random(ROWS, HEIGHT, seed=3))
    w, out = random(HEIGHT, rows.dim, seed=4), random(HEIGHT, rows.dim, seed=5)
    expected = 2.0 * h.T @ matrix + 0.5 * out
    projected = np.empty((ROWS, HEIGHT), np.float32)

    square_sum = rows.project(np.ascontiguousarray(w.T), projected)
    rows.transposed_times(h, out, alpha=2.0, beta=0.5)

    assert rows.dim == matrix.shape[1]
    np.testing.assert_allclose(projected, matrix @ w.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    assert square_sum == pytest.approx(float((matrix**2).sum()), rel=1e-5)
    difference = rows.sum_of_squared_differences(h, w)
    assert difference == pytest.approx(float(((matrix - h @ w) ** 2).sum()), rel=1e-4)
