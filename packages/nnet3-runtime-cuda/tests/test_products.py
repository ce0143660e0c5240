"""Tests of products through a BLAS library, of the choice of a way, and of what chooses instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_runtime_cuda.cpu import products
from nnet3_runtime_cuda.cpu.products import (
    BLAS,
    MOST_ROUNDS,
    PANELS,
    REPEATS,
    TILES,
    Switch,
    bound_gemm,
    fastest,
    gemm,
)
from nnet3_runtime_cuda.cpu.tape import NumpyTape

SWITCHES = (BLAS, PANELS, TILES)
each_switch = pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.variable)


@each_switch
def test_values(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each allowed value is chosen; without the variable, or if it is empty, none is."""
    monkeypatch.delenv(switch.variable, raising=False)
    assert switch.chosen() is None
    for value in ("", *switch.values):
        monkeypatch.setenv(switch.variable, value)
        assert switch.chosen() == (value or None)


@pytest.mark.parametrize("value", ["0", "1", ""])
def test_what_the_variables_decide(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles are used unless theirs is 0; panels are timed unless it says whether to use them."""
    for switch in (TILES, PANELS):
        monkeypatch.setenv(switch.variable, value)
    found: list[str] = []
    monkeypatch.setattr(products, "fastest", lambda ways: found.append(fastest(ways)) or found[0])
    forget_choices()

    in_panels = products.panels_are_faster()

    forget_choices()
    assert NumpyTape().uses_tiles() is (value != "0")
    assert bool(found) == (value == "")
    assert in_panels == (value == "1" or found == ["panels"])


def test_all_are_described() -> None:
    """The README names every variable, with its values."""
    readme = (Path(__file__).parents[1] / "README.md").read_text()

    assert {each for each in vars(products).values() if isinstance(each, Switch)} == set(SWITCHES)
    for switch in SWITCHES:
        values = ", ".join(f"`{value}`" for value in switch.values)
        assert f"| `{switch.variable}` | {values} |" in readme


class Clock:
    """A clock that only tasks move on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def task(self, *seconds: float) -> Callable[[], None]:
        """A task that takes these times in turn; the last time is repeated."""
        left = list(seconds)

        def run() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([[1.0], [1.0]], [[0.5], [0.5]], "second"),
        ([[1.0], [1.0]], [[0.95], [0.9]], "first"),
        ([[1.0], [1.0]], [[2.0], [0.9]], "first"),
        ([[1e-6], [1.0]], [[0.5e-6], [1.1]], "second"),
        ([[1.0]], [[9.0, 0.5]], "second"),  # the first call does not count
        ([[1.0]], [[*[3.0] * (3 * REPEATS), 0.5]], "second"),  # nor do disturbed rounds
    ],
)
def test_the_clearly_faster_way(
    first: list[list[float]], second: list[list[float]], expected: str
) -> None:
    """If times are about equal the first method stays; short tasks count as much as long ones."""
    clock = Clock()
    ways = {
        name: [clock.task(*seconds) for seconds in tasks]
        for name, tasks in (("first", first), ("second", second))
    }

    assert fastest(ways, clock) == expected


def test_what_is_faster_is_not_tried_for_long() -> None:
    """Many repeats are made only if no method is clearly faster."""
    clock = Clock()

    assert fastest({"first": [clock.task(1.0)], "second": [clock.task(0.5)]}, clock) == "second"
    assert clock.now == REPEATS * 1.5

    start = clock.now
    assert fastest({"first": [clock.task(1.0)], "second": [clock.task(1.0)]}, clock) == "first"
    assert clock.now - start == MOST_ROUNDS * REPEATS * 2.0


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
    for choice in (products.library_name, products._bf16, products.panels_are_faster):
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
    assert list(products._mkl_paths()) == [str((lib / "libmkl_rt.so.2").resolve())]


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.5])
def test_libraries(library: str, beta: float) -> None:
    """All libraries give the same results, and read an output only if beta is not 0."""
    rng = np.random.default_rng(0)
    a, b, out = (rng.standard_normal((3, 3)).astype(np.float32) for _ in range(3))
    expected = 2.0 * (a @ b) + beta * out
    if beta == 0.0:
        out.fill(np.nan)

    gemm(a, b, out, alpha=2.0, beta=beta)

    assert products.library_name() == library
    assert products.is_mkl() == (library == "mkl")
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("quicker", [products.OPENBLAS, products.MKL])
def test_the_faster_library_is_chosen(quicker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are two libraries, both are timed, and the faster one computes all products."""
    found = {name: name for name in (products.OPENBLAS, products.MKL)}
    monkeypatch.delenv(BLAS.variable, raising=False)
    monkeypatch.setattr(products, "_sgemms", lambda: found)
    monkeypatch.setattr(products, "_trial_by_openblas", lambda rows: (products.OPENBLAS, rows))
    monkeypatch.setattr(products, "_trial_by_mkl", lambda mkl, rows: (mkl, rows))
    asked = []
    monkeypatch.setattr(products, "fastest", lambda ways: asked.append(ways) or quicker)
    forget_choices()

    chosen = products.library_name()

    forget_choices()
    assert chosen == quicker
    assert asked == [
        {name: [(name, rows) for rows in products.LIBRARY_TRIAL_ROWS] for name in found}
    ]


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
