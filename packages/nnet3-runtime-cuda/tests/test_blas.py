"""Tests of matrix products through a BLAS library."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_runtime_cuda import blas
from nnet3_runtime_cuda.blas import bound_gemm, gemm
from nnet3_runtime_cuda.tape import Tape

SIZES = st.integers(1, 9)
LAYOUTS = st.sampled_from(["rows", "columns", "part of rows", "part of columns"])


def matrix(rng: np.random.Generator, rows: int, cols: int, layout: str) -> np.ndarray:
    """A random matrix, whose rows or columns are contiguous; perhaps part of a larger one."""
    if "columns" in layout:
        return matrix(rng, cols, rows, layout.replace("columns", "rows")).T
    extra = 3 if "part" in layout else 0
    whole = rng.standard_normal((2 * rows, cols + extra)).astype(np.float32)
    return whole[::2, :cols] if extra else whole[:rows]


@given(SIZES, SIZES, SIZES, LAYOUTS, LAYOUTS, LAYOUTS, st.integers(0, 99))
def test_every_layout(
    rows: int, inner: int, cols: int, layout_a: str, layout_b: str, layout_out: str, seed: int
) -> None:
    """alpha a b + beta out, whatever lies next to what in memory."""
    rng = np.random.default_rng(seed)
    a = matrix(rng, rows, inner, layout_a)
    b = matrix(rng, inner, cols, layout_b)
    out = matrix(rng, rows, cols, layout_out)
    expected = 0.5 * (a @ b) - 2.0 * out

    gemm(a, b, out, alpha=0.5, beta=-2.0)

    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-4)


def test_beta_of_zero_reads_nothing() -> None:
    """With beta 0 the output may hold anything before."""
    out = np.full((2, 2), np.nan, np.float32)

    gemm(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), out)

    np.testing.assert_array_equal(out, np.eye(2))


def test_memory_is_kept_alive() -> None:
    """A call holds on to its operands, of which the library knows only the addresses."""
    ones = np.ones((2, 2), np.float32)
    call = bound_gemm(ones, ones, ones.copy())

    assert call is None or all(isinstance(a, np.ndarray) for a in call.operands)


@pytest.mark.parametrize("operand", [np.ones((2, 2)), np.ones((2, 2, 2), np.float32)])
def test_other_operands_are_not_for_blas(operand: np.ndarray) -> None:
    """Double precision and stacks of matrices have no bound call."""
    assert bound_gemm(operand, operand, operand.copy()) is None


@pytest.fixture(params=["mkl", "openblas", "numpy"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Products are computed by this library, if it is installed."""
    if request.param == "numpy":
        monkeypatch.setenv(blas.SWITCH, "1")
    if request.param == "openblas":
        monkeypatch.setenv(blas.MKL_SWITCH, "1")
    blas.library.cache_clear()
    found = blas.library()
    names = {None: "numpy", True: "mkl", False: "openblas"}
    if names[found and found.is_mkl] != request.param:
        blas.library.cache_clear()
        pytest.skip(f"{request.param} is not installed")
    yield request.param
    blas.library.cache_clear()


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.5])
def test_libraries(library: str, beta: float) -> None:
    """All do the same, and the environment chooses among them."""
    rng = np.random.default_rng(0)
    a, b, out = (rng.standard_normal((3, 3)).astype(np.float32) for _ in range(3))
    expected = 2.0 * (a @ b) + beta * out

    gemm(a, b, out, alpha=2.0, beta=beta)

    assert blas.is_available() == (library != "numpy")
    assert blas.is_mkl() == (library == "mkl")
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 48, 49, 300])
@pytest.mark.parametrize("form", ["replace", "add", "plus"])
@pytest.mark.parametrize("layout", ["rows", "part of columns"])
def test_recorded_products(rows: int, form: str, layout: str) -> None:
    """A tape's product is right for few and for many rows, in each form, with each library."""
    rng = np.random.default_rng(0)
    a = matrix(rng, rows, 17, "part of rows")
    b = matrix(rng, 17, 12, layout)
    out, other = (matrix(rng, rows, 12, "part of rows") for _ in range(2))
    before = {"replace": 0.0, "add": out.copy(), "plus": other}[form]
    tape = Tape()

    tape.matmul(a, b, out, add=form == "add", plus=other if form == "plus" else None)
    tape.run()

    np.testing.assert_allclose(out, before + a @ b, rtol=0, atol=1e-4)
