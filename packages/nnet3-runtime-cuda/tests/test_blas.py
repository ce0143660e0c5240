"""Tests of matrix products through a BLAS library."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.cpu import products
from nnet3_runtime_cuda.cpu.products import BLAS, Library, bound_gemm, gemm
from nnet3_runtime_cuda.cpu.tape import NumpyTape

SIZES = st.integers(1, 9)
LAYOUTS = st.sampled_from(["rows", "columns", "part of rows", "part of columns"])


def matrix(rng: np.random.Generator, rows: int, cols: int, layout: str) -> np.ndarray:
    """A random matrix with contiguous rows or columns; it can be part of a larger one."""
    if "columns" in layout:
        return matrix(rng, cols, rows, layout.replace("columns", "rows")).T
    extra = 3 if "part" in layout else 0
    whole = rng.standard_normal((2 * rows, cols + extra)).astype(np.float32)
    return whole[::2, :cols] if extra else whole[:rows]


@given(SIZES, SIZES, SIZES, LAYOUTS, LAYOUTS, LAYOUTS, st.integers(0, 99))
def test_every_layout(
    rows: int, inner: int, cols: int, layout_a: str, layout_b: str, layout_out: str, seed: int
) -> None:
    """The result is alpha a b + beta out, for any layout in memory."""
    rng = np.random.default_rng(seed)
    a = matrix(rng, rows, inner, layout_a)
    b = matrix(rng, inner, cols, layout_b)
    out = matrix(rng, rows, cols, layout_out)
    expected = 0.5 * (a @ b) - 2.0 * out

    gemm(a, b, out, alpha=0.5, beta=-2.0)

    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("layout", ["rows", "columns", "part of rows"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaled_sum(layout: str, dtype: type[np.floating]) -> None:
    """The result is out + factor a, with or without such a function in the library."""
    rng, tape = np.random.default_rng(0), NumpyTape(dtype=dtype)
    a, out = (matrix(rng, 70, 3000, layout).astype(dtype, order="K") for _ in range(2))
    expected = out - 0.5 * a

    tape.add_scaled(a, -0.5, out)
    tape.run()

    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-6)


def test_beta_of_zero_reads_nothing() -> None:
    """With beta 0, earlier contents of the output do not matter."""
    out = np.full((2, 2), np.nan, np.float32)

    gemm(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), out)

    np.testing.assert_array_equal(out, np.eye(2))


def test_memory_is_kept_alive() -> None:
    """A call keeps its operands alive, because the library knows only their addresses."""
    ones = np.ones((2, 2), np.float32)
    call = bound_gemm(ones, ones, ones.copy())

    assert call is None or all(isinstance(a, np.ndarray) for a in call.operands)


@pytest.mark.parametrize("operand", [np.ones((2, 2)), np.ones((2, 2, 2), np.float32)])
def test_other_operands_are_not_for_blas(operand: np.ndarray) -> None:
    """Double precision and stacks of matrices have no bound call."""
    assert bound_gemm(operand, operand, operand.copy()) is None


def forget_choices() -> None:
    """Makes the next product choose its library anew."""
    for choice in (products.library, products._bf16, products.panels_are_faster):
        choice.cache_clear()


@pytest.fixture(params=["mkl", "openblas", "numpy"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The library that computes products, if it is installed."""
    monkeypatch.setenv(BLAS.variable, request.param)
    forget_choices()
    if products.library_name() != request.param:
        forget_choices()
        pytest.skip(f"{request.param} is not installed")
    yield request.param
    forget_choices()


def test_installed_libraries_of_mkl_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed MKL is found by its metadata; files that are not libraries are ignored."""
    lib = tmp_path / "lib"
    (lib / "mkl-2025.0.dist-info").mkdir(parents=True)
    (lib / "mkl-2025.0.dist-info/METADATA").write_text("Name: mkl\nVersion: 2025.0\n")
    (lib / "mkl-2025.0.dist-info/RECORD").write_text("libmkl_rt.so.2,,\nmkl/notes.txt,,\n")

    (lib / "libmkl_rt.so.2").touch()  # from Python 3.12 on, missing files are not listed

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert list(products._mkl_paths()) == []
    monkeypatch.setattr(sys, "path", [str(lib)])
    assert list(products._mkl_paths()) == [(lib / "libmkl_rt.so.2").resolve()]


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.5])
def test_libraries(library: str, beta: float) -> None:
    """All libraries give the same results; the environment chooses among them."""
    rng = np.random.default_rng(0)
    a, b, out = (rng.standard_normal((3, 3)).astype(np.float32) for _ in range(3))
    expected = 2.0 * (a @ b) + beta * out

    gemm(a, b, out, alpha=2.0, beta=beta)

    assert products.library_name() == library
    assert products.is_mkl() == (library == "mkl")
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("quicker", [products.OPENBLAS, products.MKL])
def test_the_faster_library_is_chosen(quicker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are two libraries, both are timed, and the faster one computes all products."""
    found = {name: Library(name, print, print) for name in (products.OPENBLAS, products.MKL)}
    monkeypatch.delenv(BLAS.variable, raising=False)
    monkeypatch.setattr(products, "_found", lambda: found)
    monkeypatch.setattr(products, "_trial_by_openblas", lambda rows: (products.OPENBLAS, rows))
    monkeypatch.setattr(products, "_trial_by_mkl", lambda mkl, rows: (mkl.name, rows))
    asked = []
    monkeypatch.setattr(products, "fastest", lambda ways: asked.append(ways) or quicker)
    forget_choices()

    chosen = products.library_name()

    forget_choices()
    assert chosen == quicker
    assert asked == [
        {name: [(name, rows) for rows in products.LIBRARY_TRIAL_ROWS] for name in found}
    ]


def test_another_library_cannot_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable, its allowed values, and its value."""
    monkeypatch.setenv(BLAS.variable, "atlas")
    forget_choices()

    message = "NNET3_BLAS: expected 'openblas', 'mkl' or 'numpy', found 'atlas'"
    with pytest.raises(RunError, match=message):
        products.library_name()
    forget_choices()


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
    tape = NumpyTape()

    tape.matmul(a, b, out, add=form == "add", plus=other if form == "plus" else None)
    tape.run()

    np.testing.assert_allclose(out, before + a @ b, rtol=0, atol=1e-4)
