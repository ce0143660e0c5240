"""The plain gradient of affine maps.

For y = x A^T + b the gradient is dy^T x for A, and the sum of the rows of dy for b.
"""

from __future__ import annotations

from nnet3_runtime_cuda.operations import Array, Operations
from nnet3_runtime_cuda.operations.gradients import AffineGradient


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
        gradient.product(dy, linear, scale=None, add=add)
    elif gradient.splice is not None and gradient.wide is not None:
        splice = gradient.splice
        tape.matmul(gradient.wide.T, splice.x, splice.by_row(linear), add=add)
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
