"""Matrix products through `cblas_sgemm`: of MKL if it is installed, else of NumPy's own OpenBLAS.

`numpy.matmul` replaces its output; to add a product there, it takes a temporary matrix and one more
pass over memory. BLAS itself computes out = alpha a b + beta out in one go, and NumPy's wheels
hold an OpenBLAS whose `cblas_sgemm` can be called. Where there is none that can be found, `gemm`
does the same with NumPy.

MKL (the `mkl` package, an optional extra) is faster, most of all where a matrix has few rows; if it
is there, all products are its own, not only those that add.
"""

from __future__ import annotations

import ctypes
import fnmatch
import functools
import importlib.metadata
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SWITCH = "NNET3_NO_CBLAS"
"""Set this environment variable to do without any library."""

MKL_SWITCH = "NNET3_NO_MKL"
"""Set this environment variable to do without MKL."""

_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112
_OPENBLAS_SYMBOL = "scipy_cblas_sgemm64_"
"""The name in NumPy's wheels: 64-bit sizes, prefixed so that no other BLAS is hit."""

_MKL_SYMBOL = "cblas_sgemm_64"
_BF16_SYMBOL = "cblas_gemm_bf16bf16f32_64"
_MKL_FILES = ("libmkl_rt.so*", "libmkl_rt*.dylib", "mkl_rt*.dll")


class Library(NamedTuple):
    """A BLAS library.

    Attributes:
        is_mkl: Whether it is MKL.
        sgemm: Its cblas_sgemm, with 64-bit sizes.
        bf16: The same for factors in bfloat16, if there is one.
    """

    is_mkl: bool
    sgemm: Callable[..., None]
    bf16: Callable[..., None] | None = None


@functools.cache
def library() -> Library | None:
    """The library that products are computed by, or None if none is to be found."""
    if os.environ.get(SWITCH):
        return None
    if not os.environ.get(MKL_SWITCH):
        sgemm = _first(_mkl_paths(), _MKL_SYMBOL)
        if sgemm is not None:
            return Library(True, sgemm, _first(_mkl_paths(), _BF16_SYMBOL))
    sgemm = _first(_openblas_paths(), _OPENBLAS_SYMBOL)
    return None if sgemm is None else Library(False, sgemm)


def _mkl_paths() -> Iterator[Path]:
    """Where the files of the installed package lie."""
    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if any(fnmatch.fnmatch(file.name, pattern) for pattern in _MKL_FILES):
            yield Path(str(file.locate())).resolve()


def _openblas_paths() -> Iterator[Path]:
    """The library that NumPy has loaded."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        yield from sorted(folder.glob("*openblas*"))


def _first(paths: Iterable[Path], symbol: str) -> Callable[..., None] | None:
    """The function of the first of the libraries that has it."""
    for path in paths:
        try:
            function: Any = getattr(ctypes.CDLL(str(path)), symbol)
        except (OSError, AttributeError):
            continue
        size, single, pointer = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
        function.argtypes = [
            *[ctypes.c_int] * 3,
            *[size] * 3,
            *(single, pointer, size, pointer, size, single, pointer, size),
        ]
        function.restype = None
        return function  # type: ignore[no-any-return]
    return None


def is_available() -> bool:
    """Whether products can add to their output without a temporary matrix."""
    return library() is not None


def is_mkl() -> bool:
    """Whether products are computed by MKL."""
    found = library()
    return found is not None and found.is_mkl


def _layout(matrix: Array) -> tuple[int, int] | None:
    """How BLAS is to read a matrix: as it is or transposed, and the distance of its rows.

    None if elements of neither rows nor columns are next to one another.
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
        b: (inner, cols), likewise.
        out: (rows, cols), likewise; overlaps neither.
        alpha: Factor of the product.
        beta: Factor of what is in `out`; if 0, that is not read.

    Returns:
        The call, or None if these operands cannot be given to BLAS.
    """
    found = library()
    if found is None or a.dtype != np.float32 or b.dtype != np.float32:
        return None
    return _bound(found.sgemm, a, b, out, alpha, beta)


def has_bf16() -> bool:
    """Whether the library has products of bfloat16 matrices."""
    found = library()
    return found is not None and found.bf16 is not None


def bound_bf16_gemm(
    a: Array, b: Array, out: Array, *, beta: float = 0.0
) -> Callable[[], None] | None:
    """A call that computes out = a b + beta out with factors in bfloat16.

    Args:
        a: (rows, inner), the bits as uint16; see `bound_gemm`.
        b: (inner, cols), likewise.
        out: (rows, cols), float32.
        beta: See `bound_gemm`.

    Returns:
        The call, or None if these operands cannot be given to BLAS.
    """
    found = library()
    if found is None or found.bf16 is None:
        return None
    return _bound(found.bf16, a, b, out, 1.0, beta)


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
    call = functools.partial(function, *sizes, *operands)
    # The addresses are good only as long as the arrays are.
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
