"""Products with parameters, and the gradients of parameters.

For y = x A^T + b the plain gradient is dy^T x for A, and the sum of the rows of dy for b.
"""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.base import ComponentStore
from nnet3_runtime_cuda.operations import Array, Operations
from nnet3_runtime_cuda.operations.gradients import AffineGradient, FisherEstimate
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


def add_column_sum(tape: Operations, a: Array, out: Array) -> None:
    """Records out[c] += sum over r of a[r, c]."""
    total = tape.scratch(1, a.shape[1])
    tape.column_sum(a, total)
    tape.add(out, total[0], out)


def add_affine_gradient(tape: Operations, x: Array, dy: Array, linear: Array) -> None:
    """Records linear += dy^T x.

    x: (rows, input_dim); dy: (rows, output_dim); linear: (output_dim, input_dim).
    """
    tape.matmul(dy.T, x, linear, add=True)


def record_affine_gradient(tape: Operations, gradient: AffineGradient) -> None:
    """Records the plain gradient: added to linear and bias, or in place of their contents."""
    dy, linear, bias = gradient.dy, gradient.linear, gradient.bias
    add = not gradient.first
    if gradient.product is not None:
        gradient.product(dy, linear, None, add)
    else:
        start = 0
        for x in gradient.xs:
            columns = linear[:, start : start + x.shape[1]]
            tape.matmul(dy.T, x, columns, add=add)
            start += x.shape[1]
    if bias is None:
        return
    if gradient.first:
        tape.column_sum(dy, bias[None])
    else:
        add_column_sum(tape, dy, bias)


def record_vector_update(
    tape: Operations,
    derivative: Array,
    direction: Array,
    estimate: FisherEstimate | None,
    *,
    is_scratch: bool = False,
) -> None:
    """Records the addition of the sum of the rows of `derivative`, which can be preconditioned.

    Args:
        tape: Records the arithmetic.
        derivative: (rows, dim), or (rows, k, dim): the derivative at each row.
        direction: The gradient that the sum is added to, (dim,).
        estimate: The estimate that preconditions the rows; None for the plain gradient.
        is_scratch: Whether derivative may be overwritten.
    """
    if derivative.ndim == 3 or (estimate is not None and not is_scratch):
        copy = tape.scratch(*derivative.shape)
        tape.copy(derivative, copy)
        derivative = copy.reshape(-1, direction.size)
    if estimate is None:
        add_column_sum(tape, derivative, direction)
        return
    scale = tape.precondition(estimate, derivative)
    total = tape.scratch(1, len(direction))
    tape.column_sum(derivative, total)
    tape.multiply(total, scale, total)
    tape.add(direction, total[0], direction)
