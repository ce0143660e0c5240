"""Products with parameters; fixed parameters get the fastest layout."""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.base import ComponentStore
from nnet3_runtime_cuda.operations import Array, Operations
from nnet3_runtime_cuda.operations.panels import Panels


def record_product(
    store: ComponentStore,
    tape: Operations,
    x: Array,
    parameters: Array,
    out: Array,
    *,
    add: bool = False,
    plus: Array | None = None,
    panels: Panels | None = None,
) -> None:
    """Records out = x A^T, or out += x A^T, or out = plus + x A^T, with parameters A of the store.

    Fixed parameters get the fastest layout for the number of rows.

    Args:
        store: Keeps the copies.
        tape: Records the arithmetic.
        x: (rows, input_dim).
        parameters: (output_dim, input_dim), A.
        out: (rows, output_dim).
        add: Add to what `out` holds.
        plus: (rows, output_dim), added.
        panels: A^T in panels, if the caller has it.
    """
    rows = len(out)
    factor: Array | Panels
    if panels is not None:
        factor = panels
    elif store.is_fixed and tape.gains_by_panels(rows):
        factor = store.panels(parameters)
    else:
        factor = store.transposed(parameters, pays=tape.gains_by_transposing(rows, parameters))
    record_factor_product(tape, x, factor, out, add=add, plus=plus)


def record_factor_product(
    tape: Operations,
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
