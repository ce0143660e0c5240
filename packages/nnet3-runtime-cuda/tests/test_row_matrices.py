"""Tests of matrices that are not one piece of memory."""

import numpy as np
import pytest
from nnet3_runtime_cuda.cpu.natural_gradient import thin_products
from nnet3_runtime_cuda.cpu.natural_gradient.row_matrices import (
    ColumnBlocks,
    RowMatrix,
    SplicedRows,
    spread_times_rows,
)
from nnet3_runtime_cuda.operations.gradients import TimeSplice

ROWS, OFFSETS, WIDTH, HEIGHT = 20, (1, 0, 3), 5, 4


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def time_splice() -> TimeSplice:
    """Three rows of a matrix side by side."""
    return TimeSplice(random(ROWS + 3, WIDTH), OFFSETS, ROWS)


def spliced(*, thin_columns: int = 0) -> tuple[RowMatrix, np.ndarray]:
    """A time splice, and the equal plain matrix."""
    splice = time_splice()
    memory = np.full((ROWS + 3, HEIGHT * len(OFFSETS)), np.nan, np.float32)
    return SplicedRows(splice, memory, thin_columns=thin_columns), np.hstack(splice.parts)


def thin_splice() -> tuple[RowMatrix, np.ndarray]:
    """A time splice that uses small products, and the equal plain matrix."""
    return spliced(thin_columns=HEIGHT)


def thin() -> tuple[RowMatrix, np.ndarray]:
    """A matrix in one piece with a column of ones, by small products, and the equal matrix."""
    matrix, ones = random(ROWS, 11), np.ones(ROWS, np.float32)
    rows = ColumnBlocks([matrix], last=ones, thin_columns=HEIGHT)
    return rows, np.hstack([matrix, ones[:, None]])


def blocks() -> tuple[RowMatrix, np.ndarray]:
    """Blocks of columns with a column of ones, and the equal plain matrix."""
    parts = [random(ROWS, 3), random(ROWS, 2, seed=1)]
    return ColumnBlocks(parts, last=np.ones(ROWS, np.float32)), np.hstack(
        [*parts, np.ones((ROWS, 1), np.float32)]
    )


@pytest.fixture(autouse=True)
def short_rows_are_thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses small products for matrices of few columns, too."""
    monkeypatch.setattr(thin_products, "FEWEST_TERMS", 1)


@pytest.mark.parametrize("make", [spliced, thin_splice, blocks, thin])
def test_products(make) -> None:
    """Products and norms are those of the plain matrix."""
    h = random(ROWS, HEIGHT, seed=2)
    rows, matrix = make()
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


@pytest.mark.parametrize("make", [blocks, thin])
def test_rows_of_blocks(make) -> None:
    """Subtracting a product from some rows gives those rows of the plain difference."""
    h, part = random(ROWS, HEIGHT, seed=2), slice(5, 12)
    rows, matrix = make()
    w = random(HEIGHT, rows.dim, seed=4)
    columns = rows.dim - 1
    difference = ColumnBlocks([np.empty((7, columns), np.float32)], last=np.empty(7, np.float32))

    rows.rows(part).subtract(h[part], w, difference)
    actual = np.empty((HEIGHT, rows.dim), np.float32)
    difference.transposed_times(h[part], actual)

    expected = h[part].T @ (matrix - h @ w)[part]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_rows_of_a_splice() -> None:
    """Some rows of a splice are a splice."""
    whole = time_splice()
    np.testing.assert_array_equal(
        np.hstack(whole.rows(slice(5, 12)).parts), np.hstack(whole.parts)[5:12]
    )


@pytest.mark.parametrize("part", [slice(0, HEIGHT), slice(1, 3)])
def test_products_with_what_is_spread(part: slice) -> None:
    """The product with columns of a matrix that is spread over a splice's rows is right."""
    splice, h = time_splice(), random(ROWS, HEIGHT, seed=2)
    wide = np.zeros((ROWS + 3, HEIGHT * len(OFFSETS)), np.float32)
    for view in splice.products(wide):
        view[:] = h
    out = random(HEIGHT, 3 * WIDTH, seed=5)[part]
    expected = 2.0 * h[:, part].T @ np.hstack(splice.parts) + 0.5 * out

    spread_times_rows(splice, wide, part, out, alpha=2.0, beta=0.5)

    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
