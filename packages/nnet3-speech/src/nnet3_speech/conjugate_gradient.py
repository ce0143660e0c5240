"""Systems of linear equations, solved step by step from the last solution."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_SMALLEST_SQUARE = float(np.finfo(np.float64).tiny)
_RESIDUAL_CHANGE = 1e-4
"""The square of the factor by which a residual changes before it is computed anew."""


def conjugate_gradient(matrix: Array, target: Array, start: Array, rounds: int = 15) -> Array:
    """Solves matrix x = target by some steps of the method of conjugate gradients.

    (J. Nocedal and S. Wright, "Numerical Optimization", 2006, algorithm 5.2; a step is
    -p'r / p'Ap, and the residual is computed anew when it has changed by a factor of 100. So the
    estimates, which have not converged, are those of Kaldi.)

    Args:
        matrix: (n, n) float64, positive definite.
        target: (n,) float64.
        start: (n,) float64, where it begins.
        rounds: The most steps.

    Returns:
        (n,) float64; the exact solution where the steps made the residual worse.
    """
    estimate = start.copy()
    direction = target - matrix @ estimate
    residual = -direction
    square = first = computed = float(residual @ residual)
    for _ in range(min(rounds, len(target) + 5)):
        product = matrix @ direction
        curvature = float(direction @ product)
        if not curvature:
            break
        step = -float(direction @ residual) / curvature
        estimate += step * direction
        residual += step * product
        next_square = float(residual @ residual)
        if not _RESIDUAL_CHANGE * computed <= next_square <= computed / _RESIDUAL_CHANGE:
            residual = matrix @ estimate - target
            next_square = computed = float(residual @ residual)
        if next_square <= _SMALLEST_SQUARE:
            square = next_square
            break
        direction *= next_square / square
        direction -= residual
        square = next_square
    if square > first + 1e-10 * float(target @ target):
        estimate[:] = np.linalg.solve(matrix, target)
    return estimate
