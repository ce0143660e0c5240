"""Matrix products through `cblas_sgemm`, of NumPy's own OpenBLAS or of MKL.

`numpy.matmul` replaces its output; to add a product there, it takes a temporary matrix and one more
pass over memory. BLAS itself computes out = alpha a b + beta out in one go, and NumPy's wheels
hold an OpenBLAS whose `cblas_sgemm` can be called. If there is none, `gemm` does the same with
NumPy.

MKL (the `mkl` package, an optional extra) is faster on some processors, most of all where a matrix
has few rows, and half as fast on others. If MKL is installed, the runtime times both libraries. If
MKL is clearly faster, it computes all products, not only those that add. Products with factors in
panels are timed, too. The environment can choose instead.
"""

from __future__ import annotations

import ctypes
import fnmatch
import functools
import glob
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from nnet3_runtime_cuda.errors import RunError
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.panels import ROWS, Panels, stacks


class Switch(NamedTuple):
    """An environment variable that chooses among a few values.

    Attributes:
        variable: Its name.
        values: Its possible values.
    """

    variable: str
    values: tuple[str, ...]

    def chosen(self) -> str | None:
        """The user's choice; None if the variable is not set, or empty.

        Raises:
            RunError: the variable has another value.
        """
        found = os.environ.get(self.variable, "")
        if found and found not in self.values:
            *others, last = (f"'{value}'" for value in self.values)
            expected = f"{', '.join(others)} or {last}"
            raise RunError(f"{self.variable}: expected {expected}, found '{found}'")
        return found or None


BLAS = Switch("NNET3_BLAS", ("openblas", "mkl", "numpy"))
"""The library of matrix products. "numpy" does without `cblas_sgemm`. If the chosen library is
missing, NumPy computes the products."""

PANELS = Switch("NNET3_PANELS", ("1", "0"))
"""Whether products of few rows use panels, whether or not they are faster."""

TILES = Switch("NNET3_TILES", ("1", "0"))
"""Whether convolutions use tiles, which save products; direct sums are slower and round less."""


OPENBLAS, MKL, NUMPY = BLAS.values


def check_switches() -> None:
    """Raises a RunError if a variable has an unknown value.

    Otherwise the error would come only where the variable is used, maybe in the middle of the work.
    """
    for switch in (BLAS, PANELS, TILES):
        switch.chosen()


REPEATS = 4
"""The number of repeats whose least time counts, because first calls of a library are slow."""

MOST_ROUNDS = 8
"""The most rounds of repeats before the first way is chosen: another program can slow down all
repeats of one way."""

CLEARLY = 0.85
"""Another way must take at most this share of the time of the first way."""


def fastest(
    ways: Mapping[str, Sequence[Callable[[], object]]],
    clock: Callable[[], float] = time.perf_counter,
) -> str:
    """The name of the way that takes the least time: the first, unless another is clearly faster.

    Args:
        ways: By name the calls for some tasks, the same tasks for each way; they are timed in
            turns. All tasks have the same weight, however long they take.
        clock: Returns the time in seconds.

    Returns:
        A name; always the same if the first way is within 15 % of the fastest.
    """
    first = next(iter(ways))
    times = {name: [float("inf")] * len(calls) for name, calls in ways.items()}
    for _ in range(MOST_ROUNDS):
        for _ in range(REPEATS):
            for name, calls in ways.items():
                _time(calls, times[name], clock)
        shares = {name: _share(own, times[first]) for name, own in times.items()}
        quickest = min(shares, key=lambda name: shares[name])
        if shares[quickest] < CLEARLY:
            return quickest
    return first


def _time(
    calls: Sequence[Callable[[], object]], least: list[float], clock: Callable[[], float]
) -> None:
    """Runs each task once, and updates `least`, the least time of each task."""
    for task, call in enumerate(calls):
        start = clock()
        call()
        least[task] = min(least[task], clock() - start)


def _share(own: Sequence[float], other: Sequence[float]) -> float:
    """The mean over tasks of the time of one way relative to that of another."""
    return sum(mine / theirs for mine, theirs in zip(own, other, strict=True)) / len(own)


PANEL_TRIAL_ROWS = (8, 64)
TRIAL_SHAPE = (512, 256)


@functools.cache
def panels_are_faster() -> bool:
    """Whether NumPy's matrix library gains by panels on this machine; tried once, on one thread."""
    wanted = PANELS.chosen()
    if wanted is not None:
        return wanted == "1"
    ways = {
        name: [panel_trial(rows, in_panels=name == "panels") for rows in PANEL_TRIAL_ROWS]
        for name in ("whole", "panels")
    }
    with threadpool_limits(limits=1, user_api="blas"):
        return fastest(ways) == "panels"


def panel_trial(rows: int, *, in_panels: bool) -> Callable[[], object]:
    """A product with fixed parameters by NumPy, for timing."""
    x, parameters, out = trial_operands(rows)
    if not in_panels:
        return partial(np.matmul, x, parameters, out)
    ((_, ((_, panels),)),) = Panels.of(parameters).groups
    calls = [partial(np.matmul, *stack, order="C") for stack in stacks(x, panels, out)]

    def run() -> None:
        for call in calls:
            call()

    return run


def trial_operands(rows: int) -> tuple[Array, Array, Array]:
    """Factors and memory for the product: (rows, inner), (inner, columns), (rows, columns)."""
    inner, columns = TRIAL_SHAPE
    shapes = (rows, inner), TRIAL_SHAPE, (rows, columns)
    x, parameters, out = (np.ones(shape, np.float32) for shape in shapes)
    return x, parameters, out


Sgemm = Callable[..., None]
"""A library's cblas_sgemm, with 64-bit sizes."""

LIBRARY_TRIAL_ROWS = (8, 64, 256)
"""The numbers of rows of the products that are timed to choose a library."""

_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112
_OPENBLAS_SYMBOL = "scipy_cblas_sgemm64_"
"""The name in NumPy's wheels: 64-bit sizes, with a prefix that no other BLAS has."""

_MKL_SYMBOL = "cblas_sgemm_64"
_SIZE, _SINGLE, _POINTER = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
_GEMM_TYPES = (
    *[ctypes.c_int] * 3,
    *[_SIZE] * 3,
    *(_SINGLE, _POINTER, _SIZE, _POINTER, _SIZE, _SINGLE, _POINTER, _SIZE),
)
_BF16_SYMBOL = "cblas_gemm_bf16bf16f32_64"
_MKL_FILES = ("libmkl_rt.so*", "libmkl_rt*.dylib", "mkl_rt*.dll")


@functools.cache
def library_name() -> str:
    """The library that computes products: "openblas", "mkl" or "numpy".

    Raises:
        RunError: the environment variable NNET3_BLAS names another one.
    """
    found = _sgemms()
    wanted = BLAS.chosen()
    if wanted is not None:
        return wanted if wanted in found else NUMPY
    if len(found) < 2:
        return next(iter(found), NUMPY)
    return fastest(
        {
            OPENBLAS: [_trial_by_openblas(rows) for rows in LIBRARY_TRIAL_ROWS],
            MKL: [_trial_by_mkl(found[MKL], rows) for rows in LIBRARY_TRIAL_ROWS],
        }
    )


def _trial_by_openblas(rows: int) -> Callable[[], object]:
    return panel_trial(rows, in_panels=rows in ROWS and panels_are_faster())


def _trial_by_mkl(sgemm: Sgemm, rows: int) -> Callable[[], object]:
    call = _bound(sgemm, *trial_operands(rows), 1.0, 0.0)
    assert call is not None, "rows are contiguous"
    return call


@functools.cache
def _sgemms() -> dict[str, Sgemm]:
    """The functions of the libraries that are installed, by name of the library."""
    candidates = {
        OPENBLAS: (list(_openblas_paths()), _OPENBLAS_SYMBOL),
        MKL: (list(_mkl_paths()), _MKL_SYMBOL),
    }
    found = {}
    for name, (paths, symbol) in candidates.items():
        sgemm = _first(paths, symbol, _GEMM_TYPES)
        if sgemm is not None:
            found[name] = sgemm
    return found


def _mkl_paths() -> Iterator[str]:
    """Where the files of the installed package lie."""
    if not any(_files_in(folder, "mkl-*.dist-info") for folder in sys.path):
        return
    import importlib.metadata  # takes a quarter of NumPy's import time, and MKL is rare

    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if any(fnmatch.fnmatch(file.name, pattern) for pattern in _MKL_FILES):
            yield os.path.realpath(str(file.locate()))


def _openblas_paths() -> Iterator[str]:
    """The library that NumPy has loaded."""
    package = os.path.dirname(np.__file__)
    for folder in (os.path.join(os.path.dirname(package), "numpy.libs"), f"{package}/.dylibs"):
        yield from _files_in(folder, "*openblas*")


def _files_in(folder: str, pattern: str) -> list[str]:
    """The paths of files whose names match, sorted; none if there is no such folder."""
    return sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))


def _first(
    paths: Iterable[str], symbol: str, types: Sequence[type[object]]
) -> Callable[..., None] | None:
    """The function `symbol`, with arguments of these types, of the first library that has it."""
    for path in paths:
        try:
            function: Any = getattr(ctypes.CDLL(path), symbol)
        except (OSError, AttributeError):
            continue
        function.argtypes = types
        function.restype = None
        return function  # type: ignore[no-any-return]
    return None


def is_mkl() -> bool:
    """Whether products are computed by MKL."""
    return library_name() == MKL


def _layout(matrix: Array) -> tuple[int, int] | None:
    """Arguments for BLAS to read a matrix: whether it is transposed, and the distance of its rows.

    None if neither rows nor columns are contiguous.
    """
    rows, columns = matrix.shape
    item = matrix.itemsize
    first, second = matrix.strides
    if (second == item or columns == 1) and first % item == 0 and first // item >= columns:
        return _NO_TRANS, max(first // item, 1)
    if (first == item or rows == 1) and second % item == 0 and second // item >= rows:
        return _TRANS, max(second // item, 1)
    return None


def bound_gemm(
    a: Array, b: Array, out: Array, *, alpha: float = 1.0, beta: float = 0.0
) -> Callable[[], None] | None:
    """A call that computes out = alpha a b + beta out.

    Args:
        a: (rows, inner), float32, rows or columns contiguous.
        b: (inner, cols), as a.
        out: (rows, cols), as a; overlaps neither.
        alpha: Factor of the product.
        beta: Factor of the old content of `out`; if 0, it is not read.

    Returns:
        The call, or None if these operands cannot be given to BLAS.
    """
    sgemm = _sgemms().get(library_name())
    if sgemm is None or a.dtype != np.float32 or b.dtype != np.float32:
        return None
    return _bound(sgemm, a, b, out, alpha, beta)


def has_bf16() -> bool:
    """Whether bfloat16 products are available: MKL is installed, and NNET3_BLAS allows it."""
    return _bf16() is not None


@functools.cache
def _bf16() -> Callable[..., None] | None:
    """MKL's product of bfloat16 matrices, whichever library computes the other products."""
    if (BLAS.chosen() or MKL) != MKL:
        return None
    return _first(_mkl_paths(), _BF16_SYMBOL, _GEMM_TYPES)


def bound_bf16_gemm(
    a: Array, b: Array, out: Array, *, beta: float = 0.0
) -> Callable[[], None] | None:
    """A call that computes out = a b + beta out with factors in bfloat16.

    Args:
        a: (rows, inner), the bits as uint16; see `bound_gemm`.
        b: (inner, cols), as a.
        out: (rows, cols), float32.
        beta: See `bound_gemm`.

    Returns:
        The call, or None if these operands cannot be given to BLAS.
    """
    function = _bf16()
    return None if function is None else _bound(function, a, b, out, 1.0, beta)


def _bound(
    function: Callable[..., None], a: Array, b: Array, out: Array, alpha: float, beta: float
) -> Callable[[], None] | None:
    """The call of a cblas function, if the operands can be given to it."""
    if out.dtype != np.float32 or any(m.ndim != 2 for m in (a, b, out)):
        return None
    target = _layout(out)
    if target is not None and target[0] == _TRANS:
        return _bound(function, b.T, a.T, out.T, alpha, beta)
    layout_a, layout_b = _layout(a), _layout(b)
    if target is None or layout_a is None or layout_b is None:
        return None
    (transpose_a, lda), (transpose_b, ldb) = layout_a, layout_b
    (rows, columns), inner = out.shape, a.shape[1]
    sizes = (_ROW_MAJOR, transpose_a, transpose_b, rows, columns, inner)
    operands = (alpha, a.ctypes.data, lda, b.ctypes.data, ldb, beta, out.ctypes.data, target[1])
    call = partial(function, *sizes, *operands)
    # The addresses are valid only while the arrays live.
    call.operands = (a, b, out)  # type: ignore[attr-defined]
    return call


def gemm(a: Array, b: Array, out: Array, *, alpha: float = 1.0, beta: float = 0.0) -> None:
    """Computes out = alpha a b + beta out; see `bound_gemm`."""
    call = bound_gemm(a, b, out, alpha=alpha, beta=beta)
    if call is not None:
        call()
        return
    product = a @ b
    if alpha != 1.0:
        product *= alpha
    if beta == 0.0:
        out[...] = product
    elif beta == 1.0:
        out += product
    else:
        out *= beta
        out += product


def choices() -> dict[str, str]:
    """The environment variables under which another process computes products in the same way.

    Raises:
        RunError: one of them has an unknown value here.
    """
    panels = "1" if panels_are_faster() else "0"
    return {BLAS.variable: library_name(), PANELS.variable: panels}
