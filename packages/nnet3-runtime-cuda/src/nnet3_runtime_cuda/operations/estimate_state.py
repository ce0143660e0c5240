"""The state of an estimate of a Fisher matrix, as a value that can be stored."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import SerializationError

Array = npt.NDArray[Any]


@attrs.frozen(kw_only=True, eq=False)
class EstimateState:
    """An estimate of a Fisher matrix; see `FisherEstimate`.

    Attributes:
        minibatches: Number of minibatches seen so far.
        has_begun: Whether a minibatch has changed the estimate, or no minibatch can change it.
        w: W, (rank, dim); (0, 0) before the estimate begins.
        ww: W W^T, (rank, rank); (0, 0) if not computed since W changed.
        d: (rank,).
        rho: The multiple of the unit matrix.
        renewed: (rank,), if R must be made orthonormal before the next use; else (0,).
    """

    minibatches: int
    has_begun: bool
    w: Array
    ww: Array
    d: npt.NDArray[np.float64]
    rho: float
    renewed: npt.NDArray[np.float64]

    @classmethod
    def unused(cls) -> EstimateState:
        """An estimate before its first minibatch."""
        none = np.zeros((0, 0))
        return cls(
            minibatches=0,
            has_begun=False,
            w=none,
            ww=none,
            d=np.zeros(0),
            rho=0.0,
            renewed=np.zeros(0),
        )

    def __attrs_post_init__(self) -> None:
        rank = len(self.d)
        if self.w.ndim != 2 or len(self.w) != rank or self.w.dtype.kind != "f":
            raise SerializationError(f"w has the shape {self.w.shape}, but d {self.d.shape}")
        if self.ww.shape not in ((rank, rank), (0, 0)) or self.ww.dtype.kind != "f":
            raise SerializationError(f"ww has the shape {self.ww.shape}, but d {self.d.shape}")
        if self.renewed.shape not in ((rank,), (0,)):
            raise SerializationError(
                f"renewed has the shape {self.renewed.shape}, but d {self.d.shape}"
            )
        if self.minibatches < 0:
            raise SerializationError(f"minibatches must not be negative (got {self.minibatches})")


def check_shape(w: Array, rank: int, dim: int) -> None:
    """Raises SerializationError unless W is that of an estimate of this rank and dimension."""
    if w.shape != (rank, dim):
        raise SerializationError(
            f"an estimate of a Fisher matrix has the shape {w.shape}, expected {(rank, dim)}"
        )
