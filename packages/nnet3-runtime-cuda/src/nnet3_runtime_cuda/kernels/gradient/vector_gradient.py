"""The gradient of parameters that are added to each row, or multiply it: a sum over the rows."""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.gradient.affine_gradient import add_column_sum
from nnet3_runtime_cuda.operations import Array, Operations
from nnet3_runtime_cuda.operations.natural_gradient import FisherEstimate


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
