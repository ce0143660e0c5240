"""The online natural gradient on the processor: estimates of Fisher matrices, and their recording.

`nnet3_runtime_cuda.operations.gradients` describes the method and names its matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cpu.products import gemm
from nnet3_runtime_cuda.cpu.recorder import Recorder
from nnet3_runtime_cuda.machine import Restore
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import (
    INITIAL_UPDATES,
    SMALLEST,
    ColumnBlocks,
    EstimateState,
    FisherEstimate,
    Side,
    check_shape,
)
from nnet3_runtime_cuda.operations.scratch import PRODUCT_WORK

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


def project(x: ColumnBlocks, w: Array, out: Array) -> None:
    """Computes out = X w^T; w: (height, dim), out: (rows, height), contiguous."""
    for number, (block, columns) in enumerate(x.blocks):
        gemm(block, w[:, columns].T, out, beta=float(number > 0))
    if x.last is not None:
        out += x.last[:, None] * w[:, -1]


def transposed_times(x: ColumnBlocks, h: Array, out: Array) -> None:
    """Computes out = h^T X; out: (columns of h, dim)."""
    for block, columns in x.blocks:
        gemm(h.T, block, out[:, columns])
    if x.last is not None:
        gemm(h.T, x.last[:, None], out[:, -1:])


def sum_of_squares(x: ColumnBlocks) -> float:
    """tr(X X^T)."""
    return sum(_sum_of_squares(array) for array in x.arrays)


def sum_of_squared_differences(x: ColumnBlocks, h: Array, w: Array) -> float:
    """tr(Y Y^T) of Y = X - h w."""
    difference = np.empty((len(h), x.dim), h.dtype)
    for block, columns in x.blocks:
        difference[:, columns] = block
    if x.last is not None:
        difference[:, -1] = x.last
    gemm(h, w, difference, alpha=-1.0, beta=1.0)
    return _sum_of_squares(difference)


def _sum_of_squares(array: Array) -> float:
    """The sum of the squares of the elements of an array, with small rounding errors."""
    if not array.flags.c_contiguous:
        return float(np.vecdot(array, array).sum(dtype=np.float64))
    flat = array.reshape(-1)
    parts = (flat[start : start + SUM_LENGTH] for start in range(0, flat.size, SUM_LENGTH))
    return math.fsum(float(np.dot(part, part)) for part in parts)


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
        self._w: Array | None = None  # (rank, dim), set once; its contents count once it has begun
        self._kept: list[Array] | None = None  # W as it was when it was kept, if it has changed
        self._ww: _Doubles | None = None  # W W^T, from its first use on
        self._d: _Doubles = np.zeros(0)  # (rank,)
        self._rho = 0.0
        # If the minibatch X will update the estimate: H^T H, its number of rows, tr(X X^T).
        self._minibatch: tuple[_Doubles, int, float] | None = None
        # Once it is known: the new W is left (J + old W), left (rank, rank), old (rank, 1).
        self._turn: tuple[Array, Array] | None = None
        self._renewed: _Doubles | None = None  # E^(1/2), if R may have lost its orthogonality
        self._has_begun = False  # whether a minibatch has changed the estimate, or none can

    @property
    def state(self) -> EstimateState:
        """The estimate between two minibatches; set it to continue from there."""
        if not self._has_begun:
            return attrs.evolve(EstimateState.unused(), minibatches=self._minibatches)
        return EstimateState(
            minibatches=self._minibatches,
            has_begun=True,
            w=self.w.copy(),
            ww=np.zeros((0, 0)) if self._ww is None else self._ww.copy(),
            d=self._d.copy(),
            rho=self._rho,
            renewed=np.zeros(0) if self._renewed is None else self._renewed.copy(),
        )

    @state.setter
    def state(self, state: EstimateState) -> None:
        self._minibatches, self._has_begun = state.minibatches, state.has_begun
        self._w = state.w.copy() if state.has_begun else None
        self._ww = state.ww.astype(np.float64) if len(state.ww) else None
        self._minibatch = self._turn = None
        self._d, self._rho = state.d.copy(), state.rho
        self._renewed = state.renewed.copy() if len(state.renewed) else None

    def w_for(self, dim: int, dtype: npt.DTypeLike) -> Array:
        """W, (rank, dim), for rows of `dim` columns; the rank is 0 if such rows do not change."""
        rank = self.estimate.rank_for(dim)
        if self._w is None:
            self._w = np.zeros((rank, dim), dtype)
        check_shape(self._w, rank, dim)
        return self._w

    @property
    def w(self) -> Array:
        """W, (rank, dim), of the present estimate: always the same array."""
        assert self._w is not None
        return self._w

    def keep(self) -> Restore:
        """Keeps the estimate; the call that it returns sets it back."""
        kept = self._kept = []
        fixed = "_w", "_kept"
        before = {name: value for name, value in vars(self).items() if name not in fixed}

        def restore() -> None:
            vars(self).update(before)
            for w in kept:
                self.w[...] = w

        return restore

    def _begin_change(self) -> None:
        """Notes that W is about to change: a copy is kept if it may have to be set back."""
        if self._kept is not None and not self._kept:
            self._kept.append(self.w.copy())

    @property
    def is_updating(self) -> bool:
        """Whether the next minibatch updates the estimate."""
        since = self._minibatches - INITIAL_UPDATES
        return since <= 0 or since % self.estimate.update_period == 0

    def precondition(self, x: Array) -> float:
        """Replaces the rows of x by preconditioned ones, and updates the estimate if one is due.

        Args:
            x: (rows, dim), one row for each sample; changed in place, but not scaled.

        Returns:
            The factor that gives the new x the Frobenius norm of the old one.
        """
        matrix = ColumnBlocks([x])
        h = np.empty((len(x), len(self.w_for(x.shape[1], x.dtype))), dtype=x.dtype)
        self.begin(matrix, h)
        if h.shape[1]:
            project(matrix, self.w, h)
        scale = self.scale(matrix, h, sum_of_squares(matrix), gram_matrix(h))
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
            h: (rows, rank), overwritten.
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
            after = sum_of_squared_differences(x, h, w)
        return math.sqrt(square_sum / after) if after != 0.0 else 1.0

    def _look_at(self, rows: int, square_sum: float, gram: _Doubles) -> None:
        """Keeps the facts for an update if one is due and there are rows."""
        if self.is_updating and rows:
            self._minibatch = gram, rows, square_sum

    def project_back(self, x: ColumnBlocks, h: Array, j: Array, part: slice = EVERYTHING) -> None:
        """Sets some rows of J = H^T X if this minibatch updates the estimate.

        Args:
            x: See `begin`.
            h: See `scale`.
            j: (rank, dim).
            part: The rows of J.
        """
        if self._minibatch is not None:
            transposed_times(x, h[:, part], j[part])

    def turn(self, j: Array) -> None:
        """Finds the new eigenvalues and the change of W; j: J."""
        if self._minibatch is not None:
            self._turn, self._minibatch = self._turned(j, *self._minibatch), None
            if self._turn is not None:
                self._begin_change()
                self._has_begun = True

    def move(self, j: Array, part: slice = EVERYTHING) -> None:
        """Changes some columns of W, and overwrites these columns of j, J."""
        if self._turn is None:
            return
        (left, old), w, columns = self._turn, self.w[:, part], j[:, part]
        columns += old * w
        gemm(left, columns, w)

    def _initialize(self, x: ColumnBlocks, h: Array) -> None:
        """Starts from a fixed estimate and updates it a few times with the first minibatch."""
        rank, dim = self.w.shape
        if not rank:
            self._has_begun = True
            return
        self._begin_change()
        self.w[...] = self.estimate.first_w(dim)
        self._ww = None
        self._d = np.full(rank, SMALLEST)
        self._rho = SMALLEST
        j = np.empty_like(self.w)
        for _ in range(1 if len(h) <= rank else 3):
            project(x, self.w, h)
            square_sum = sum_of_squares(x)
            if math.isfinite(square_sum):
                self._look_at(len(h), square_sum, gram_matrix(h))
            self.project_back(x, h, j)
            self.turn(j)
            self.move(j)
            self._renew()

    def _turned(
        self, j: Array, gram: _Doubles, rows: int, square_sum: float
    ) -> tuple[Array, Array] | None:
        """Moves D and rho by one step, and returns the change of W.

        A minibatch with products that overflow changes nothing.
        """
        w, d, rho = self.w, self._d, self._rho
        rank, dim = w.shape
        eta = self.estimate.forgetting(rows)
        eta_rows = eta / rows
        inverse_root_e = 1.0 / np.sqrt(self._e(d, rho, dim))
        z = _z(j, gram, d + rho, inverse_root_e, eta, eta_rows)
        if not np.isfinite(z).all():
            return None
        eigenvalues, vectors = _sorted_eigh(z)
        floor = (rho * (1.0 - eta)) ** 2
        ill_conditioned = bool(eigenvalues[0] > LARGEST_CONDITION * eigenvalues[-1])
        floored = bool((eigenvalues < floor).any())
        root_c = np.sqrt(np.maximum(eigenvalues, floor))

        mass = eta_rows * square_sum + (1.0 - eta) * (dim * rho + float(d.sum()))
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
        return left.astype(w.dtype), old.astype(w.dtype)

    def _renew(self) -> None:
        """Makes the rows of R orthonormal again if the last update may have spoilt it."""
        if self._renewed is not None:
            self._begin_change()
            self.w[...] = _orthogonalized(self.w, self._renewed)
            self._renewed = self._ww = None

    def _e(self, d: _Doubles, rho: float, dim: int) -> _Doubles:
        alpha = self.estimate.alpha
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


# ---- recording ----


def record_projection(tape: Recorder, sides: Sequence[Side]) -> Array:
    """Records H = X W^T of sides, which threads share; returns the product of the scales, (1,)."""
    scale = np.ones(1)
    if not sides:
        return scale
    for x, w, h, natural in sides:
        begin = partial(natural.begin, x, h)
        tape.record(begin, reads=x.arrays, writes=(h, w, natural.token))
    rows = len(sides[0].h)
    work = sum(side.h.size * side.x.dim for side in sides) // PRODUCT_WORK
    squares = np.zeros((len(sides), tape.threads))
    grams = [np.zeros((tape.threads, len(side.w), len(side.w))) for side in sides]
    for number, part in enumerate(tape.shared(rows, work)):
        for (x, w, h, _), square, gram in zip(sides, squares, grams, strict=True):
            results = h[part], square[number : number + 1], gram[number]
            call = partial(_project, x.rows(part), w, *results)
            tape.record(call, reads=(*x.arrays, w), writes=results)
    tape.record(
        partial(_set_scale, sides, squares, grams, scale),
        reads=[array for side in sides for array in (*side.x.arrays, side.w, side.h)]
        + [squares, *grams],
        writes=[*(side.estimate.token for side in sides), scale],
    )
    return scale


def _project(x: ColumnBlocks, w: Array, h: Array, square: Array, gram: Array) -> None:
    """Sets some rows of H, the sum of squares of these rows of X, and their part of H^T H."""
    project(x, w, h)
    square[0] = sum_of_squares(x)
    gram[:] = gram_matrix(h)


def _set_scale(sides: Sequence[Side], squares: Array, grams: Sequence[Array], scale: Array) -> None:
    """Sets s s' from partial sums of tr(X X^T) and of H^T H."""
    scale[0] = 1.0
    for (x, _, h, natural), square, gram in zip(sides, squares, grams, strict=True):
        scale[0] *= natural.scale(x, h, float(square.sum()), gram.sum(axis=0))


def record_updates(tape: Recorder, sides: Sequence[Side]) -> None:
    """Records the updates of the estimates, when nothing needs the old ones any more.

    Threads share the large products; for each side one thread finds the new eigenvalues.
    """
    js = [tape.scratch(*side.w.shape) for side in sides]
    for (x, _, h, natural), j in zip(sides, js, strict=True):
        for part in tape.shared(len(j), len(h) * j.size // PRODUCT_WORK):
            call = partial(natural.project_back, x, h, j, part)
            tape.record(call, reads=(*x.arrays, h, natural.token), writes=(j[part],))
    for side, j in tape.independent(list(zip(sides, js, strict=True))):
        turn, token = side.estimate.turn, side.estimate.token
        tape.record(partial(turn, j), reads=(j, side.w), writes=(token,))
    for side, j in zip(sides, js, strict=True):
        for part in tape.shared(j.shape[1], len(j) * j.size // PRODUCT_WORK):
            call, token = partial(side.estimate.move, j, part), side.estimate.token
            tape.record(call, reads=(token,), writes=(j[:, part], side.w[:, part]))
