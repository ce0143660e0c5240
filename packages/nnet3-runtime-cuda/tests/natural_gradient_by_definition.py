"""The online natural gradient straight from its definition: slow, in double precision.

D. Povey, X. Zhang and S. Khudanpur, "Parallel training of DNNs with natural gradient and parameter
averaging" (2015), section 4 and appendix. Nothing of the fast form is used: no W, H, J, K or L. The
Fisher matrix F is a full matrix, which is inverted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from nnet3_runtime_cuda.cpu.natural_gradient import OnlineNaturalGradient
from nnet3_runtime_cuda.operations import Operations, natural_gradient
from nnet3_runtime_cuda.operations.gradients import (
    AffineGradient,
    AffinePreconditioner,
    FisherEstimate,
    NaturalGradientOptions,
)

SMALLEST = 1.0e-10
"""epsilon, the least eigenvalue of F."""

SMALLEST_PART = 5.0e-4
"""delta, the least eigenvalue of F relative to the largest."""

FIRST_MINIBATCHES = 10
"""The number of minibatches after the first that all change F."""


RANKS = 4, 3
"""Of the estimates for the input and for the output derivative of an affine map."""


def record_affine(
    tape: Operations, xs: list[np.ndarray], dy: np.ndarray, *, has_bias: bool, first: bool
) -> tuple[list[np.ndarray], Callable[[], None]]:
    """Records the update of parameters of 1 by blocks of input columns.

    Returns:
        The parameters, and what compares them with the product of the preconditioned rows.
    """
    x, scale = np.hstack(xs), 1.0
    linear = np.ones((dy.shape[1], x.shape[1]), np.float32)
    bias = np.ones(dy.shape[1], np.float32)
    sides = [np.hstack([x, np.ones((len(x), int(has_bias)), x.dtype)]), dy.copy()]
    for rank, side in zip(RANKS, sides, strict=True):
        estimate = FisherEstimate(NaturalGradientOptions(rank=rank))
        scale *= OnlineNaturalGradient(estimate).precondition(side)
    expected = (0.0 if first else 1.0) + scale * sides[1].T @ sides[0]
    gradient = AffineGradient(
        xs=xs, dy=dy, linear=linear, bias=bias if has_bias else None, first=first
    )
    estimates = (FisherEstimate(NaturalGradientOptions(rank=rank)) for rank in RANKS)
    natural_gradient.record_natural_gradient(tape, AffinePreconditioner(*estimates), gradient)

    def compare() -> None:
        found = np.hstack([linear, bias[:, None]]) if has_bias else linear
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())

    return [linear, bias], compare


class NaturalGradientByDefinition:
    """F = R^T diag(d) R + rho I, estimated from minibatches.

    Attributes:
        r: (rank, dim), with orthonormal rows.
        d: (rank,), positive.
        rho: Positive.
        spread: Ratio of the largest to the smallest eigenvalue of Z, the matrix that the fast form
            decomposes; its maximum in the last call. Near the precision of numbers, rounding errors
            decide about the last rows of R.
    """

    def __init__(self, options: NaturalGradientOptions, dim: int) -> None:
        self.options, self.dim = options, dim
        rank = min(options.rank, dim - 1)
        # Row k is not 0 in columns k, k + rank, ...: these are all 1, but the first is 1.1.
        self.r = np.zeros((rank, dim))
        for k in range(rank):
            self.r[k, k::rank] = 1.0
            self.r[k, k] = 1.1
            self.r[k] /= np.sqrt(np.sum(self.r[k] ** 2))
        self.d = np.full(rank, SMALLEST)
        self.rho = SMALLEST
        self.spread = 1.0
        self._count = 0

    @property
    def fisher(self) -> np.ndarray:
        """F, (dim, dim)."""
        return self.r.T @ np.diag(self.d) @ self.r + self.rho * np.eye(self.dim)

    @property
    def smoothed(self) -> np.ndarray:
        """G = F + alpha / dim tr(F) I, (dim, dim)."""
        fisher = self.fisher
        return fisher + self.options.alpha / self.dim * np.trace(fisher) * np.eye(self.dim)

    def precondition(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """Multiplies rows by the inverse of G, and then updates F by them.

        Args:
            x: (rows, dim).

        Returns:
            beta x G^-1 with beta the least eigenvalue of G, and the factor that gives it the
            Frobenius norm of x.
        """
        x = np.asarray(x, dtype=np.float64)
        self.spread = 1.0
        if self._count == 0:
            for _ in range(1 if len(x) <= len(self.r) else 3):
                self._see(x)
        beta = self.rho + self.options.alpha / self.dim * np.trace(self.fisher)
        result = beta * x @ np.linalg.inv(self.smoothed)
        norms = np.linalg.norm(x), np.linalg.norm(result)
        since = self._count - FIRST_MINIBATCHES
        if since <= 0 or since % self.options.update_period == 0:
            self._see(x)
        self._count += 1
        return result, norms[0] / norms[1] if norms[1] > 0.0 else 1.0

    def _see(self, x: np.ndarray) -> None:
        """Moves F towards the scatter of the rows, by a step of the power method."""
        rank = len(self.r)
        if rank == 0 or len(x) == 0:
            return
        if self.options.num_minibatches_history > 0.0:
            eta = 1.0 / self.options.num_minibatches_history
        else:
            eta = min(0.9, 1.0 - math.exp(-len(x) / self.options.num_samples_history))
        scatter = x.T @ x / len(x)
        target = eta * scatter + (1.0 - eta) * self.fisher
        # With Z = Y Y^T = U C U^T, the new R = C^(-1/2) U^T Y has the right singular vectors of Y
        # as rows, and the roots of C are its singular values.
        _, root_c, self.r = np.linalg.svd(self.r @ target, full_matrices=False)
        self.spread = max(self.spread, (root_c.max() / root_c.min()) ** 2)
        rho = (np.trace(target) - root_c.sum()) / (self.dim - rank)
        smallest = max(SMALLEST, SMALLEST_PART * root_c.max())
        self.d = np.maximum(root_c - rho, smallest)
        self.rho = max(rho, smallest)
