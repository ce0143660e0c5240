"""The online natural gradient on the processor: the estimates of Fisher matrices, and their use.

`nnet3_runtime_cuda.operations.gradients` describes the method and names its matrices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cpu.products import gemm
from nnet3_runtime_cuda.machine import Restore, keep_attributes
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import (
    INITIAL_UPDATES,
    SMALLEST,
    EstimateState,
    FisherEstimate,
    check_shape,
)

_Doubles = npt.NDArray[np.float64]

RELATIVE_FLOOR = 5.0e-4
"""Floor of the eigenvalues of the estimate, relative to the largest."""

LARGEST_CONDITION = 1.0e6
"""Above this spread of eigenvalues, R may have lost its orthogonality and is renewed."""

ORTHOGONALITY = 1.0e-3
"""The largest deviation of R R^T from the unit matrix that is accepted."""

SMALLEST_DIFFERENCE = 1.0e-2
"""A squared norm is not computed by subtraction if it shrinks below this part of itself."""


SUM_LENGTH = 1 << 16
"""The number of squares that are added up in single precision."""

EVERYTHING = slice(None)
"""All rows or columns."""


class ColumnBlocks:
    """X: (rows, dim), one row for each sample, in blocks of columns that lie apart in memory.

    Attributes:
        blocks: Each (rows, some columns), with the columns of X.
        dim: Number of columns in all.
        last: (rows,), the last column; or None, and the last block has it.
    """

    def __init__(self, blocks: Sequence[Array], *, last: Array | None = None) -> None:
        """Puts blocks of columns, and perhaps one more column, side by side."""
        starts = [0, *itertools.accumulate(block.shape[1] for block in blocks)]
        self.blocks = [
            (block, slice(start, end))
            for block, start, end in zip(blocks, starts, starts[1:], strict=False)
        ]
        self.last = last
        self.dim = starts[-1] + (last is not None)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that X is made of."""
        blocks = tuple(block for block, _ in self.blocks)
        return blocks if self.last is None else (*blocks, self.last)

    def rows(self, part: slice) -> ColumnBlocks:
        """Some of the rows."""
        last = None if self.last is None else self.last[part]
        return ColumnBlocks([block[part] for block, _ in self.blocks], last=last)

    def project(self, w: Array, out: Array) -> None:
        """Computes out = X w^T; w: (height, dim), out: (rows, height), contiguous."""
        for number, (block, columns) in enumerate(self.blocks):
            gemm(block, w[:, columns].T, out, beta=float(number > 0))
        if self.last is not None:
            out += self.last[:, None] * w[:, -1]

    def transposed_times(
        self, h: Array, out: Array, *, alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        """Computes out = alpha h^T X + beta out; out: (height, dim), or without the last column."""
        for block, columns in self.blocks:
            gemm(h.T, block, out[:, columns], alpha=alpha, beta=beta)
        if self.last is not None and out.shape[1] == self.dim:
            gemm(h.T, self.last[:, None], out[:, -1:], alpha=alpha, beta=beta)

    def sum_of_squares(self) -> float:
        """tr(X X^T)."""
        return sum(_sum_of_squares(array) for array in self.arrays)

    def subtract(self, h: Array, w: Array, out: Array) -> None:
        """Computes out = X - h w; out: (rows, dim)."""
        for block, columns in self.blocks:
            np.copyto(out[:, columns], block)
        if self.last is not None:
            np.copyto(out[:, -1], self.last)
        gemm(h, w, out, alpha=-1.0, beta=1.0)

    def sum_of_squared_differences(self, h: Array, w: Array) -> float:
        """tr(Y Y^T) of Y = X - h w."""
        difference = np.empty((len(h), self.dim), h.dtype)
        self.subtract(h, w, difference)
        return _sum_of_squares(difference)


def _sum_of_squares(array: Array) -> float:
    """The sum of the squares of the elements of an array, with small rounding errors."""
    if not array.flags.c_contiguous:
        return float(np.vecdot(array, array).sum(dtype=np.float64))
    flat = array.reshape(-1)
    parts = (flat[start : start + SUM_LENGTH] for start in range(0, flat.size, SUM_LENGTH))
    return math.fsum(float(np.dot(part, part)) for part in parts)


@attrs.frozen(kw_only=True, eq=False)
class _Minibatch:
    """The facts about a minibatch X that an update needs, beside J = H^T X.

    Attributes:
        gram: H^T H with H = X W^T.
        rows: Number of rows.
        square_sum: tr(X X^T).
    """

    gram: _Doubles
    rows: int
    square_sum: float


@attrs.frozen(kw_only=True, eq=False)
class _Turn:
    """The new W is left (J + old W), with scaled rows of the old W.

    Attributes:
        left: (rank, rank).
        old: (rank, 1), a factor for each row of the old W.
        before: The old W.
    """

    left: Array
    old: Array
    before: Array


class OnlineNaturalGradient:
    """Multiplies rows of matrices by the inverse of a Fisher matrix estimated from them.

    One object serves one side of one parameter matrix, over the minibatches of a training run.
    `precondition` makes all steps. The steps are public for code that shares them among threads, or
    that does not need the rows themselves. They are `begin`, H = X W^T and its `gram_matrix`, and
    `scale`. After the last use of `w` comes the update of the estimate:
    `project_back`, `turn`, `move`. The update does nothing if it is not due.

    Attributes:
        estimate: The value by which kernels ask for it.
        token: An array that stands for the estimate among the arrays that calls read and write.
        is_frozen: Whether the estimate stays fixed once it exists.
    """

    def __init__(self, estimate: FisherEstimate) -> None:
        self.estimate = estimate
        self.token = np.zeros(1)
        self.is_frozen = False
        self._minibatches = 0
        self._w: Array | None = None  # (rank, dim)
        self._ww: _Doubles | None = None  # W W^T, from its first use on
        self._d: _Doubles = np.zeros(0)  # (rank,)
        self._rho = 0.0
        self._minibatch: _Minibatch | None = None  # set if it will update the estimate
        self._turn: _Turn | None = None  # the change of W, once it is known
        self._renewed: _Doubles | None = None  # E^(1/2), if R may have lost its orthogonality
        self._has_begun = False  # whether a minibatch has changed the estimate, or none can

    @property
    def state(self) -> EstimateState:
        """The estimate between two minibatches; set it to continue from there."""
        none = np.zeros((0, 0))
        return EstimateState(
            minibatches=self._minibatches,
            has_begun=self._has_begun,
            w=none if self._w is None else self._w.copy(),
            ww=none if self._ww is None else self._ww.copy(),
            d=self._d.copy(),
            rho=self._rho,
            renewed=np.zeros(0) if self._renewed is None else self._renewed.copy(),
        )

    @state.setter
    def state(self, state: EstimateState) -> None:
        self._minibatches, self._has_begun = state.minibatches, state.has_begun
        self._w = state.w.copy() if state.w.shape[1] else None
        self._ww = state.ww.astype(np.float64) if len(state.ww) else None
        self._minibatch = self._turn = None
        self._d, self._rho = state.d.copy(), state.rho
        self._renewed = state.renewed.copy() if len(state.renewed) else None

    def rank(self, dim: int) -> int:
        """The rank of the estimate for rows of `dim` columns; 0 if such rows do not change."""
        rank = self.estimate.rank(dim)
        if self._w is not None:
            check_shape(self._w, rank, dim)
        return rank

    @property
    def w(self) -> Array:
        """W, (rank(dim), dim), of the present estimate; the update puts another array here."""
        assert self._w is not None
        return self._w

    @property
    def is_updating(self) -> bool:
        """Whether the next minibatch updates the estimate."""
        since = self._minibatches - INITIAL_UPDATES
        return since <= 0 or since % self.estimate.options.update_period == 0

    def precondition(self, x: Array) -> float:
        """Replaces the rows of x by preconditioned ones, and updates the estimate if one is due.

        Args:
            x: (rows, dim), one row for each sample; changed in place, but not scaled.

        Returns:
            The factor that gives the new x the Frobenius norm of the old one.
        """
        matrix = ColumnBlocks([x])
        h = np.empty((len(x), self.rank(x.shape[1])), dtype=x.dtype)
        self.begin(matrix, h)
        if h.shape[1]:
            matrix.project(self.w, h)
        scale = self.scale(matrix, h, matrix.sum_of_squares(), gram_matrix(h))
        j = np.empty_like(self.w)
        self.project_back(matrix, h, j)
        gemm(h, self.w, x, alpha=-1.0, beta=1.0)
        self.turn(j)
        self.move(j)
        return scale

    def begin(self, x: ColumnBlocks, h: Array) -> None:
        """Makes the first estimate, if no finite minibatch has made one.

        Args:
            x: (rows, dim), one row for each sample.
            h: (rows, rank(dim)), overwritten.
        """
        if not self._has_begun:
            self._initialize(x, h)
        self._renew()

    def scale(self, x: ColumnBlocks, h: Array, square_sum: float, gram: _Doubles) -> float:
        """The factor that gives scale (x - h w) the Frobenius norm of x.

        Few callers need the preconditioned rows themselves: products with them follow from products
        with x and h, which take less work where x is wide.

        Args:
            x: See `begin`.
            h: x W^T.
            square_sum: tr(x x^T).
            gram: h^T h.

        Returns:
            The factor; NaN if x is not finite. Such a minibatch does not update the estimate.
        """
        self._minibatch = self._turn = None
        w = self.w
        if not len(w):
            return 1.0
        if self._ww is None:
            self._ww = (w @ w.T).astype(np.float64)
        if not math.isfinite(square_sum):
            return math.nan
        if not self.is_frozen:
            self._look_at(len(h), square_sum, gram)
        self._minibatches += 1
        if square_sum <= 0.0:
            return 1.0
        # |x - h w|^2 = |x|^2 - 2 |h|^2 + tr(h w w^T h^T)
        after = square_sum - 2.0 * float(np.trace(gram)) + float(np.vdot(gram, self._ww))
        if after < SMALLEST_DIFFERENCE * square_sum:
            after = x.sum_of_squared_differences(h, w)
        return math.sqrt(square_sum / after) if after != 0.0 else 1.0

    def _look_at(self, rows: int, square_sum: float, gram: _Doubles) -> None:
        """Keeps the facts for an update if one is due and there are rows."""
        if self.is_updating and rows:
            self._minibatch = _Minibatch(gram=gram, rows=rows, square_sum=square_sum)

    def project_back(self, x: ColumnBlocks, h: Array, j: Array, part: slice = EVERYTHING) -> None:
        """Sets some rows of J = H^T X if this minibatch updates the estimate.

        Args:
            x: See `begin`.
            h: See `scale`.
            j: (rank(dim), dim).
            part: The rows of J.
        """
        if self._minibatch is not None:
            x.transposed_times(h[:, part], j[part])

    def turn(self, j: Array) -> None:
        """Finds the new eigenvalues and the change of W; j: J."""
        if self._minibatch is not None:
            self._turn, self._minibatch = self._turned(j, self._minibatch), None
            if self._turn is not None:
                self._has_begun = True
                # The old arrays do not change: `Estimates.keep` keeps them.
                self._w = np.empty_like(self._turn.before)

    def move(self, j: Array, part: slice = EVERYTHING) -> None:
        """Changes some columns of W, and overwrites these columns of j, J."""
        if self._turn is None:
            return
        w, columns = self.w[:, part], j[:, part]
        columns += self._turn.old * self._turn.before[:, part]
        gemm(self._turn.left, columns, w)

    def _initialize(self, x: ColumnBlocks, h: Array) -> None:
        """Starts from a fixed estimate and updates it a few times with the first minibatch."""
        dim, rank = x.dim, self.rank(x.dim)
        if not rank:
            self._w = np.zeros((0, dim), dtype=h.dtype)
            self._has_begun = True
            return
        self._w = self.estimate.first_w(dim).astype(h.dtype)
        self._ww = None
        self._d = np.full(rank, SMALLEST)
        self._rho = SMALLEST
        j = np.empty_like(self._w)
        for _ in range(1 if len(h) <= rank else 3):
            x.project(self.w, h)
            square_sum = x.sum_of_squares()
            if math.isfinite(square_sum):
                self._look_at(len(h), square_sum, gram_matrix(h))
            self.project_back(x, h, j)
            self.turn(j)
            self.move(j)
            self._renew()

    def _turned(self, j: Array, minibatch: _Minibatch) -> _Turn | None:
        """Moves D and rho by one step, and returns the change of W.

        A minibatch with products that overflow changes nothing.
        """
        w, d, rho = self.w, self._d, self._rho
        rank, dim = w.shape
        eta = self.estimate.forgetting(minibatch.rows)
        eta_rows = eta / minibatch.rows
        inverse_root_e = 1.0 / np.sqrt(self._e(d, rho, dim))
        z = _z(j, minibatch.gram, d + rho, inverse_root_e, eta, eta_rows)
        if not np.isfinite(z).all():
            return None
        eigenvalues, vectors = _sorted_eigh(z)
        floor = (rho * (1.0 - eta)) ** 2
        ill_conditioned = bool(eigenvalues[0] > LARGEST_CONDITION * eigenvalues[-1])
        floored = bool((eigenvalues < floor).any())
        root_c = np.sqrt(np.maximum(eigenvalues, floor))

        mass = eta_rows * minibatch.square_sum + (1.0 - eta) * (dim * rho + float(d.sum()))
        new_rho = (mass - float(root_c.sum())) / (dim - rank)
        smallest = max(SMALLEST, RELATIVE_FLOOR * float(root_c.max()))
        new_d = np.maximum(root_c - new_rho, smallest)
        new_rho = max(new_rho, smallest)

        # W' = (eta/rows) E'^(1/2) C^(-1/2) U^T E^(-1/2) (J + (1-eta)/(eta/rows) (D + rho I) W)
        root_e = np.sqrt(self._e(new_d, new_rho, dim))
        left = eta_rows * (root_e / root_c)[:, None] * vectors.T * inverse_root_e
        old = ((1.0 - eta) / eta_rows * (d + rho))[:, None]
        self._d, self._rho, self._ww = new_d, new_rho, None
        self._renewed = root_e if ill_conditioned or floored else None
        return _Turn(left=left.astype(w.dtype), old=old.astype(w.dtype), before=w)

    def _renew(self) -> None:
        """Makes the rows of R orthonormal again if the last update may have spoilt it."""
        if self._renewed is not None:
            self._w, self._renewed = _orthogonalized(self.w, self._renewed), None
            self._ww = None

    def _e(self, d: _Doubles, rho: float, dim: int) -> _Doubles:
        alpha = self.estimate.options.alpha
        beta = rho * (1.0 + alpha) + alpha * float(d.sum()) / dim
        return 1.0 / (beta / d + 1.0)


def gram_matrix(h: Array) -> _Doubles:
    """h^T h."""
    return (h.T @ h).astype(np.float64)


def _z(
    j: Array, gram: _Doubles, d_rho: _Doubles, inverse_root_e: _Doubles, eta: float, eta_rows: float
) -> _Doubles:
    """The (rank, rank) matrix whose eigenvalues are the squares of the new d + rho.

    Z = (eta/N)^2 E^(-1/2) K E^(-1/2) + (eta/N)(1-eta) (E^(-1/2) L E^(-1/2) (D + rho I) + transpose)
    + (1-eta)^2 (D + rho I)^2, with K = J J^T and L = H^T H.
    """
    k = (j @ j.T).astype(np.float64)
    scale = np.outer(inverse_root_e, inverse_root_e)
    cross = scale * gram * d_rho
    z = eta_rows**2 * scale * k + eta_rows * (1.0 - eta) * (cross + cross.T)
    z[np.diag_indices_from(z)] += ((1.0 - eta) * d_rho) ** 2
    return np.asarray(0.5 * (z + z.T))


def _sorted_eigh(z: _Doubles) -> tuple[_Doubles, _Doubles]:
    """Eigenvalues by falling magnitude, and the eigenvectors as columns in the same order."""
    values, vectors = np.linalg.eigh(z)
    order = np.argsort(-np.abs(values), kind="stable")
    return values[order], vectors[:, order]


def _orthogonalized(w: Array, root_e: _Doubles) -> Array:
    """w with the rows of R = E^(-1/2) w made orthonormal again."""
    r = w.astype(np.float64) / root_e[:, None]
    gram = r @ r.T
    if np.abs(gram - np.eye(len(gram))).max() <= ORTHOGONALITY:
        return w
    try:
        inverse = np.linalg.inv(np.linalg.cholesky(gram))
        usable = bool(inverse.max() < 100.0)
    except np.linalg.LinAlgError:
        usable = False
    r = inverse @ r if usable else np.linalg.qr(r.T)[0].T
    return np.asarray(root_e[:, None] * r).astype(w.dtype, order="C")


class Estimates:
    """The estimates of the natural gradient of a network, each made on first use."""

    def __init__(self) -> None:
        self._known: dict[FisherEstimate, OnlineNaturalGradient] = {}
        self._are_frozen = False

    def of(self, estimate: FisherEstimate) -> OnlineNaturalGradient:
        """The preconditioner of an estimate."""
        if estimate not in self._known:
            self._known[estimate] = OnlineNaturalGradient(estimate)
            self._known[estimate].is_frozen = self._are_frozen
        return self._known[estimate]

    def keep(self) -> Restore:
        """Keeps the estimates; the call that it returns sets them back."""
        return keep_attributes(self._known.values())

    def freeze(self, on: bool) -> None:
        """Sets whether all estimates stay fixed once they exist."""
        self._are_frozen = on
        for known in self._known.values():
            known.is_frozen = on
