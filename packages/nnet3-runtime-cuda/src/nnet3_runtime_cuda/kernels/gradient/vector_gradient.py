"""The gradient of parameters that are added to, or multiply, each row: a sum over the rows."""

from __future__ import annotations

from nnet3_runtime_cuda.cpu.natural_gradient.online_estimate import (
    NaturalGradientOptions,
    OnlineNaturalGradient,
)
from nnet3_runtime_cuda.cpu.tape import Array, Tape
from nnet3_runtime_cuda.kernels.gradient.affine_gradient import add_column_sum


class RowPreconditioner:
    """The natural gradient of a parameter vector: the rows of its derivative preconditioned."""

    def __init__(self, options: NaturalGradientOptions) -> None:
        self.rows = OnlineNaturalGradient(options)

    def record(self, tape: Tape, derivative: Array, direction: Array) -> None:
        """Records direction += sum of the preconditioned rows; derivative is overwritten."""
        scale = tape.precondition(self.rows, derivative)
        total = tape.scratch(1, len(direction))
        tape.column_sum(derivative, total)
        tape.multiply(total, scale, total)
        tape.add(direction, total[0], direction)


def record_vector_update(
    tape: Tape,
    derivative: Array,
    direction: Array,
    preconditioner: RowPreconditioner | None,
    *,
    is_scratch: bool = False,
) -> None:
    """Records the addition of the sum of the rows of `derivative`, preconditioned if asked for.

    Args:
        tape: Records the arithmetic.
        derivative: (rows, dim), or (rows, k, dim): the derivative at each row.
        direction: (dim,).
        preconditioner: Of the natural gradient; None for the plain one.
        is_scratch: Whether derivative may be overwritten.
    """
    if derivative.ndim == 3 or (preconditioner is not None and not is_scratch):
        copy = tape.scratch(*derivative.shape)
        tape.copy(derivative, copy)
        derivative = copy.reshape(-1, direction.size)
    if preconditioner is None:
        add_column_sum(tape, derivative, direction)
    else:
        preconditioner.record(tape, derivative, direction)
