"""The operands of gradients of parameters: plain, and with the natural gradient.

The natural gradient's method is that of D. Povey, X. Zhang and S. Khudanpur, "Parallel training of
DNNs with natural gradient and parameter averaging" (2014), section 4 and appendix. The estimate of
a Fisher matrix is

    F = R^T diag(d) R + rho I        R: (rank, dim) with orthonormal rows

A machine stores W = E^(1/2) R with e_i = 1 / (beta / d_i + 1) and beta = rho (1 + alpha) + alpha
sum(d) / dim. Then the product of a row x with the (smoothed, scaled) inverse of F is x - (x W^T) W.
Each machine stores and updates W in its own way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import SerializationError

_Doubles = npt.NDArray[np.float64]

INITIAL_UPDATES = 10
"""Number of first minibatches that each update the estimate; later, one in a period does."""

SMALLEST = 1.0e-10
"""Floor of the eigenvalues of the estimate."""


@attrs.frozen(kw_only=True, eq=False)
class FisherEstimate:
    """Stands for the estimate of one Fisher matrix, over the minibatches of a training run.

    A machine looks up its own estimate by this object; the attributes say how it is made.

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

    def rank_for(self, dim: int) -> int:
        """The rank of the estimate for rows of `dim` columns; 0 if such rows do not change."""
        return min(self.rank, dim - 1)

    def first_w(self, dim: int) -> _Doubles:
        """W of the fixed estimate that a run starts from, (rank_for(dim), dim)."""
        rank = self.rank_for(dim)
        if not rank:
            return np.zeros((0, dim))
        scale = 1.0 / math.sqrt(2.0 + (dim + rank) * self.alpha / dim)
        return scale * _spread_rows(rank, dim)

    def forgetting(self, rows: int) -> float:
        """The weight of a minibatch of `rows` rows in the running estimate (eta)."""
        if self.num_minibatches_history > 0.0:
            return 1.0 / self.num_minibatches_history
        return min(0.9, 1.0 - math.exp(-rows / self.num_samples_history))


Sides = tuple[FisherEstimate, FisherEstimate]
"""The estimates for the natural gradient of an affine map: for the rows of its input X, and for
those of its output derivative D. The bias counts as the weight of a constant input of one, so rows
of the input have one column more than the map."""


def sides_of(component: Any) -> Sides:
    """The estimates for a component, as its fields say."""
    given, wanted = (
        FisherEstimate(
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


class TimeSplice(NamedTuple):
    """A splice at constant distances: each row holds several rows of a matrix side by side.

    Row i is [x[i + offsets[0]], x[i + offsets[1]], ...]. Of a parameter matrix A with as many
    columns, A[i, k d : (k + 1) d] belongs to offset k. A, (height, K d), has the same elements in
    the same order as A', (height K, d). So products with A become products with x, in which each
    row of x takes part once instead of K times:

        X A^T    = sum over k of (x A'^T)[i + offsets[k], :, k]     A': (height K, d)
        (h^T X)' = S^T x     S[i + offsets[k], :, k] = h[i], else 0

    Attributes:
        x: (rows in, d); every row belongs to some row of the splice.
        offsets: For each k, the row of x that belongs to row 0.
        num_rows: Number of rows of the splice.
    """

    x: Array
    offsets: tuple[int, ...]
    num_rows: int

    @property
    def parts(self) -> list[Array]:
        """The K blocks of columns, each (num_rows, d): views of x."""
        return [self.x[first : first + self.num_rows] for first in self.offsets]

    def by_row(self, matrix: Array) -> Array:
        """(height, K d) as (height K, d): a view."""
        return matrix.reshape(-1, self.x.shape[1])

    def products(self, wide: Array) -> list[Array]:
        """The terms of X A^T in x A'^T, (rows in, height K): K views, each (rows, height)."""
        split = wide.reshape(len(wide), -1, len(self.offsets))
        return [split[first : first + self.num_rows, :, k] for k, first in enumerate(self.offsets)]

    def gaps(self, wide: Array) -> list[Array]:
        """The zeros of S, (rows in, height K): views."""
        split = wide.reshape(len(wide), -1, len(self.offsets))
        gaps = []
        for k, first in enumerate(self.offsets):
            gaps += [split[:first, :, k], split[first + self.num_rows :, :, k]]
        return [gap for gap in gaps if gap.size]


GradientProduct = Callable[[Array, Array, Array | None, bool], None]
"""Records out = scale dy^T X, or out += that, with less work than the product itself. It takes dy,
(rows, output_dim); out, (output_dim, input_dim); scale, (1,) or None for 1; and whether to add."""


class AffineGradient(NamedTuple):
    """The gradient of an affine map: its operands, and the arrays to add it to.

    Attributes:
        xs: The input X, as blocks of columns: each (rows, some of the columns).
        dy: The output derivative D, (rows, output_dim).
        linear: (output_dim, input_dim), for D^T X.
        bias: (output_dim,), for the sum of the rows of D; or None.
        first: Whether the gradient replaces the contents of linear and bias.
        product: Records D^T X in a way that takes less work.
    """

    xs: Sequence[Array]
    dy: Array
    linear: Array
    bias: Array | None = None
    first: bool = False
    product: GradientProduct | None = None


class ColumnBlocks:
    """X: (rows, dim), one row for each sample, in blocks of columns that lie apart in memory.

    Attributes:
        blocks: Each (rows, some columns), with the columns of X.
        dim: Number of columns in all.
        last: (rows,), the last column; or None, and the last block has it.
        has_ones: Whether the last column is ones, as the input of a bias.
    """

    def __init__(
        self, blocks: Sequence[Array], *, last: Array | None = None, has_ones: bool = False
    ) -> None:
        """Puts blocks of columns, and perhaps one more column, side by side."""
        starts = [0, *itertools.accumulate(block.shape[1] for block in blocks)]
        self.blocks = [
            (block, slice(start, end))
            for block, start, end in zip(blocks, starts, starts[1:], strict=False)
        ]
        self.last, self.has_ones = last, has_ones
        self.dim = starts[-1] + (last is not None)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.blocks[0][0])

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that X is made of."""
        blocks = tuple(block for block, _ in self.blocks)
        return blocks if self.last is None else (*blocks, self.last)

    def rows(self, part: slice) -> ColumnBlocks:
        """Some of the rows."""
        last = None if self.last is None else self.last[part]
        return ColumnBlocks([block[part] for block, _ in self.blocks], last=last)


class Side(NamedTuple):
    """One side of a gradient: the input X or the output derivative D, and the estimate for it.

    Attributes:
        x: X.
        w: W, (rank, dim), of the present estimate.
        h: (rows, rank), X W^T once `Tape.project` is recorded.
        estimate: The machine's own.
    """

    x: ColumnBlocks
    w: Array
    h: Array
    estimate: Any
