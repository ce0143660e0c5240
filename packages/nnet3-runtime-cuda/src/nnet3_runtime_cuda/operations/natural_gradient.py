"""The natural gradient as kernels ask for it: its options, and stand-ins for its estimates.

The method is that of D. Povey, X. Zhang and S. Khudanpur, "Parallel training of DNNs with natural
gradient and parameter averaging" (2014), section 4 and appendix. The estimate of a Fisher matrix is

    F = R^T diag(d) R + rho I        R: (rank, dim) with orthonormal rows

A machine stores W = E^(1/2) R with e_i = 1 / (beta / d_i + 1) and beta = rho (1 + alpha) + alpha
sum(d) / dim. Then the product of a row x with the (smoothed, scaled) inverse of F is x - (x W^T) W.
Each machine stores and updates W in its own way.
"""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

_Doubles = npt.NDArray[np.float64]

INITIAL_UPDATES = 10
"""Number of first minibatches that each update the estimate; later, one in a period does."""

SMALLEST = 1.0e-10
"""Floor of the eigenvalues of the estimate."""


@attrs.frozen(kw_only=True)
class NaturalGradientOptions:
    """The options for estimating the Fisher matrix.

    Attributes:
        rank: Rank of the estimate beside the multiple of the unit matrix; at least 1.
        update_period: Every update_period-th minibatch updates the estimate.
        num_samples_history: Time constant of the running estimate, in rows.
        num_minibatches_history: If above 1, the time constant in minibatches, instead of
            num_samples_history; otherwise 0.
        alpha: The weight of the multiple of the unit matrix towards which the estimate is smoothed.
    """

    rank: int = attrs.field(default=40, validator=attrs.validators.ge(1))
    update_period: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    num_samples_history: float = attrs.field(default=2000.0, validator=attrs.validators.gt(0))
    num_minibatches_history: float = attrs.field(default=0.0)
    alpha: float = attrs.field(default=4.0, validator=attrs.validators.ge(0))

    @num_minibatches_history.validator
    def _check_history(self, _: object, value: float) -> None:
        if value != 0.0 and not value > 1.0:
            raise ValueError(f"'num_minibatches_history' must be 0 or > 1: {value}")


@attrs.frozen(eq=False)
class FisherEstimate:
    """Stands for the estimate of one Fisher matrix, over the minibatches of a training run.

    A machine looks up its own estimate by this object.

    Attributes:
        options: The options for estimating the matrix.
    """

    options: NaturalGradientOptions

    def rank(self, dim: int) -> int:
        """The rank of the estimate for rows of `dim` columns; 0 if such rows do not change."""
        return min(self.options.rank, dim - 1)

    def first_w(self, dim: int) -> _Doubles:
        """W of the fixed estimate that a run starts from, (rank(dim), dim); the rank is not 0."""
        rank = self.rank(dim)
        scale = 1.0 / math.sqrt(2.0 + (dim + rank) * self.options.alpha / dim)
        return scale * _spread_rows(rank, dim)

    def forgetting(self, rows: int) -> float:
        """The weight of a minibatch of `rows` rows in the running estimate (eta)."""
        if self.options.num_minibatches_history > 0.0:
            return 1.0 / self.options.num_minibatches_history
        return min(0.9, 1.0 - math.exp(-rows / self.options.num_samples_history))


@attrs.frozen(eq=False)
class AffinePreconditioner:
    """The natural gradient of an affine map; it preconditions rows of input and output derivative.

    The preconditioned inputs are s (X - H W) and the preconditioned output derivatives
    s' (D - H' W'), where H = X W^T and H' = D W'^T. The natural gradient is

        (I - W'^T W') G (I - W^T W) = G - W'^T (T - (T W^T) W) - S W
        G = s s' D^T X      T = W' G = s s' H'^T X      S = G W^T = s s' D^T H

    so only the products for G have both many rows and many columns.

    The bias counts as the weight of a constant input of one, so the input side has one column
    more than the map.

    Attributes:
        input_side: The estimate for the rows of X.
        output_side: The estimate for the rows of D.
    """

    input_side: FisherEstimate
    output_side: FisherEstimate


def options_of_sides(component: Any) -> tuple[NaturalGradientOptions, NaturalGradientOptions]:
    """The options of a component's input side and output side, from its fields."""
    given, wanted = (
        NaturalGradientOptions(
            rank=rank,
            update_period=getattr(component, "update_period", 4),
            num_samples_history=getattr(component, "num_samples_history", 2000.0),
            alpha=getattr(component, f"alpha_{side}", getattr(component, "alpha", 4.0)),
        )
        for rank, side in ((component.rank_in, "in"), (component.rank_out, "out"))
    )
    return given, wanted


def _spread_rows(rank: int, dim: int) -> _Doubles:
    """(rank, dim) with orthonormal rows and no zero column: row r uses columns r, r+rank, ...

    The first entry of a row is a tenth larger than the others, so that the all-ones vector, along
    which derivatives often vanish, is not in the span of the rows.
    """
    r = np.zeros((rank, dim))
    columns = np.arange(dim)
    r[columns % rank, columns] = 1.0
    r[np.arange(rank), np.arange(rank)] = 1.1
    normalized: _Doubles = r / np.linalg.norm(r, axis=1, keepdims=True)
    return normalized
