"""Matrices that training keeps semi-orthonormal, as the linear maps of a TDNN-F.

Source: D. Povey et al., "Semi-orthogonal low-rank matrix factorization for deep neural networks"
(2018), sections 2.2 and 2.3.
"""

from __future__ import annotations

import numpy as np
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.operations import Array, Tape

FASTEST_SPEED = 0.125
"""The speed nu at which the step converges quadratically near its goal."""

SPREADS = (1.02, 1.1)
"""The step is halved for each of these that the spread of the eigenvalues exceeds."""

SMALLEST_TRACE = 1.0e-15
"""A matrix with less belongs to an unused component, and does not change."""


def record_orthonormal_step(tape: Tape, matrix: Array, scale: float) -> None:
    """Records a step that makes the rows of a matrix more orthonormal, or its columns if fewer.

    With P = M M^T and Q = P - s^2 I, it is a step of gradient descent on tr(Q Q^T):

        M += -4 nu / s^2 Q M

    Args:
        tape: Records the arithmetic.
        matrix: (rows, cols), changed in place.
        scale: The wanted norm s of rows. If negative, s^2 = tr(P^2) / tr(P), which makes the step
            orthogonal to M. nu is smaller while the eigenvalues of P are far apart: tr(P^2) rows /
            tr(P)^2 measures that, and is 1 if they are equal.
    """
    tape.begin_command()
    m = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    rows, columns = m.shape
    p, unit = tape.scratch(rows, rows), np.eye(rows, dtype=tape.dtype)
    tape.matmul(m, m.T, p)
    square, factor = tape.scratch(1, 1), tape.scratch(1, 1)
    if scale < 0.0:
        _record_floating_scale(tape, p, unit, square, factor)
    else:
        tape.fill(scale**2, square)
        tape.fill(-4.0 * FASTEST_SPEED / scale**2, factor)
    diagonal = tape.scratch(rows, rows)
    tape.multiply(unit, square, diagonal)
    tape.subtract(p, diagonal, p)
    tape.multiply(p, factor, p)
    step = tape.scratch(rows, columns)
    tape.matmul(p, m, step)
    tape.add(m, step, m)


def _record_floating_scale(tape: Tape, p: Array, unit: Array, square: Array, factor: Array) -> None:
    """Records square = tr(P^2) / tr(P) and factor = -4 nu / square; 0 for a vanishing matrix."""
    rows = len(p)
    trace, spread, halved = (tape.scratch(1, 1) for _ in range(3))
    exceeds = tape.scratch(1, 1, dtype=np.bool_)
    _record_dot(tape, p, unit, trace)
    _record_dot(tape, p, p, square)
    tape.greater(trace, SMALLEST_TRACE, exceeds)
    tape.copy(exceeds, factor)
    tape.maximum(trace, SMALLEST_TRACE, trace)
    tape.divide(square, trace, square)
    tape.divide(square, trace, spread)
    tape.multiply(spread, float(rows), spread)
    tape.maximum(square, SMALLEST_TRACE, square)
    tape.multiply(factor, -4.0 * FASTEST_SPEED, factor)
    tape.divide(factor, square, factor)
    for bound in SPREADS:
        tape.greater(spread, bound, exceeds)
        tape.copy(exceeds, halved)
        tape.multiply(halved, -0.5, halved)
        tape.add(halved, 1.0, halved)
        tape.multiply(factor, halved, factor)


def _record_dot(tape: Tape, a: Array, b: Array, out: Array) -> None:
    """Records out = sum of a * b over all elements; out: (1, 1)."""
    sums = tape.scratch(len(a))
    tape.row_dot(a, b, sums)
    tape.row_sum(sums[None], out)


class OrthonormalConstraints:
    """The components of a network with an orthonormal constraint.

    Attributes:
        tapes: By component number, the step towards the constraint.
    """

    def __init__(self, device_nnet: DeviceNnet) -> None:
        """Records the step of each."""
        self.tapes: dict[int, Tape] = {}
        for number, component in enumerate(device_nnet.nnet.components):
            scale = getattr(component, "orthonormal_constraint", 0.0)
            if scale:
                parameters = device_nnet.kernel(number).store.parameters
                # The first parameter is the matrix: linear_params, of a LinearComponent params.
                matrix = next(iter(parameters.values()))
                self.tapes[number] = device_nnet.tape()
                record_orthonormal_step(self.tapes[number], matrix, scale)
