"""Products with parameters, which are laid out as is fastest if they are fixed."""

from __future__ import annotations

import numpy as np

from nnet3_runtime_cuda.cpu.products.blas import is_mkl
from nnet3_runtime_cuda.cpu.products.panels import ROWS, Panels, are_faster
from nnet3_runtime_cuda.cpu.tape import FEW_ROWS, Array, Tape
from nnet3_runtime_cuda.kernels.base import ComponentStore

TRANSPOSED_ROWS = range(FEW_ROWS + 1, 1025)
"""Products with so many rows are up to a third faster with parameters transposed beforehand."""

TRANSPOSED_ROWS_MKL = range(4, 257)
"""The same for MKL, which gains up to three times where rows are few."""


WIDE = 4
"""A product of one row is faster with transposed parameters if it is so many times as wide."""


def gains_by_transposing(rows: int, parameters: Array) -> bool:
    """Whether products with so many rows gain by a transposed copy of (out, in) parameters."""
    if is_mkl():
        return rows in TRANSPOSED_ROWS_MKL
    output_dim, input_dim = parameters.shape
    return rows in TRANSPOSED_ROWS or (rows == 1 and output_dim >= WIDE * input_dim)


def gains_by_panels(tape: Tape, rows: int) -> bool:
    """Whether a product with so many rows is faster by small ones, with parameters as panels."""
    if is_mkl() or tape.dtype != np.float32 or not tape.takes_panels:
        return False
    return rows in ROWS and are_faster()


def record_product(
    store: ComponentStore,
    tape: Tape,
    x: Array,
    parameters: Array,
    out: Array,
    *,
    add: bool = False,
    plus: Array | None = None,
    panels: Panels | None = None,
) -> None:
    """Records out = x A^T, or out += x A^T, or out = plus + x A^T, with parameters A of the store.

    Fixed parameters are laid out as is fastest for so many rows.

    Args:
        store: Keeps the copies.
        tape: Records the arithmetic.
        x: (rows, input_dim).
        parameters: (output_dim, input_dim), A.
        out: (rows, output_dim).
        add: Add to what `out` holds.
        plus: (rows, output_dim), added.
        panels: A^T in panels, if someone keeps it.
    """
    rows = len(out)
    factor: Array | Panels
    if panels is not None:
        factor = panels
    elif store.is_fixed and gains_by_panels(tape, rows):
        factor = store.panels(parameters)
    else:
        factor = store.transposed(parameters, pays=gains_by_transposing(rows, parameters))
    record_factor_product(tape, x, factor, out, add=add, plus=plus)


def record_factor_product(
    tape: Tape,
    x: Array,
    factor: Array | Panels,
    out: Array,
    *,
    add: bool = False,
    plus: Array | None = None,
) -> None:
    """Records out = x M, or out += x M, or out = plus + x M, where M may be in panels.

    Args:
        tape: Records the arithmetic.
        x: (rows, inner).
        factor: (inner, columns), M.
        out: (rows, columns).
        add: Add to what `out` holds.
        plus: (rows, columns), or broadcast to that, added.
    """
    if isinstance(factor, Panels):
        factor.record(tape, x, out, add=add, plus=plus)
    else:
        tape.matmul(x, factor, out, add=add, plus=plus)
