"""Matrix products that add to their output, through the BLAS library that NumPy brings along.

`numpy.matmul` replaces its output; to add a product there, it takes a temporary matrix and one more
pass over memory. BLAS itself computes out = alpha a b + beta out in one go, and NumPy's wheels
hold an OpenBLAS whose `cblas_sgemm` can be called. Where there is none that can be found, `gemm`
does the same with NumPy.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SWITCH = "NNET3_NO_CBLAS"
"""Set this environment variable to do without the library."""

_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112
_SYMBOL = "scipy_cblas_sgemm64_"
"""The name in NumPy's wheels: 64-bit sizes, prefixed so that no other BLAS is hit."""


@functools.cache
def _sgemm() -> Callable[..., None] | None:
    """cblas_sgemm of the OpenBLAS that NumPy has loaded, or None if it is not to be found."""
    if os.environ.get(SWITCH):
        return None
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            try:
                function: Any = getattr(ctypes.CDLL(str(path)), _SYMBOL)
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
    return _sgemm() is not None


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
    sgemm = _sgemm()
    if sgemm is None or any(m.dtype != np.float32 or m.ndim != 2 for m in (a, b, out)):
        return None
    target = _layout(out)
    if target is not None and target[0] == _TRANS:
        return bound_gemm(b.T, a.T, out.T, alpha=alpha, beta=beta)
    layout_a, layout_b = _layout(a), _layout(b)
    if target is None or layout_a is None or layout_b is None:
        return None
    (transpose_a, lda), (transpose_b, ldb) = layout_a, layout_b
    (rows, columns), inner = out.shape, a.shape[1]
    sizes = (_ROW_MAJOR, transpose_a, transpose_b, rows, columns, inner)
    operands = (alpha, a.ctypes.data, lda, b.ctypes.data, ldb, beta, out.ctypes.data, target[1])
    call = functools.partial(sgemm, *sizes, *operands)
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
