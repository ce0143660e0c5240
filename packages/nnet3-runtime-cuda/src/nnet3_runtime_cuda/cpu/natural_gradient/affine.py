"""The natural gradient of affine maps, from products of low rank.

It is recorded as a few operations that threads share: projections of rows, the scale of each side,
rows of the gradient, rows of the correction that is subtracted from it, and the update of the
estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs
import numpy as np

from nnet3_runtime_cuda.cpu.natural_gradient.estimate import OnlineNaturalGradient, gram_matrix
from nnet3_runtime_cuda.cpu.natural_gradient.row_matrices import (
    ColumnBlocks,
    RowMatrix,
    SplicedRows,
    spread_times_rows,
)
from nnet3_runtime_cuda.cpu.products import gemm
from nnet3_runtime_cuda.cpu.recorder import Recorder
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import AffineGradient, TimeSplice
from nnet3_runtime_cuda.operations.panels import ROWS
from nnet3_runtime_cuda.operations.scratch import PRODUCT_WORK

PASSES = 40
"""The number of multiplications that take as long as writing a preconditioned element."""


def record_affine(
    tape: Recorder,
    input_side: OnlineNaturalGradient,
    output_side: OnlineNaturalGradient,
    gradient: AffineGradient,
) -> None:
    """Records operations that add the natural gradient to linear and bias, or replace them by it.

    T and S (see `AffinePreconditioner`) are computed in the cheaper of two ways. If X or D is
    narrow, it is cheaper still to precondition its rows: `precondition_rows_of` decides for each.
    """
    xs, dy, bias, splice = gradient.xs, gradient.dy, gradient.bias, gradient.splice
    rows, columns_in = len(dy), sum(part.shape[1] for part in xs) + (bias is not None)
    rank_in, rank_out = input_side.rank(columns_in), output_side.rank(dy.shape[1])
    writes_dy = precondition_rows_of(rows, dy.shape[1], rank_out, other=columns_in)
    writes_x = splice is None and precondition_rows_of(rows, columns_in, rank_in, other=dy.shape[1])
    # The largest array first, so that the scratch memory of all components can be the same.
    new_dy = tape.scratch(rows, dy.shape[1]) if writes_dy else None
    new_x = tape.scratch(rows, columns_in - (bias is not None)) if writes_x else None
    gains = tape.gains_by_panels(ROWS[-1])
    x = _Side.of(tape, input_side, xs, None if bias is None else tape.ones(rows)[0], is_thin=gains)
    derivative = _Side.of(tape, output_side, [dy], None, is_thin=gains)
    sides = x, derivative
    scale = np.ones(1)
    _record_factors(tape, x, derivative, splice, scale)
    if new_x is not None:
        # Preconditioned rows are no splice any more, but this costs less than it saves.
        x = x.subtracted(tape, new_x)
        gradient = attrs.evolve(gradient, xs=x.arrays, product=None)
    if new_dy is not None:
        derivative = derivative.subtracted(tape, new_dy)
        gradient = attrs.evolve(gradient, dy=new_dy)
        if splice is not None and gradient.wide is not None:
            for view in splice.products(gradient.wide):
                tape.copy(new_dy, view)
    with tape.passing():
        natural = _NaturalGradient(
            plain=gradient,
            x=x,
            derivative=derivative,
            scale=scale,
            left=tape.scratch(x.rank + derivative.rank, len(gradient.linear)),
            right=tape.scratch(x.rank + derivative.rank, columns_in),
        )
        natural.record(tape)
    _record_updates(tape, sides)


def _record_factors(
    tape: Recorder, x: _Side, derivative: _Side, splice: TimeSplice | None, scale: Array
) -> None:
    """Records H = X W^T and the scales of both sides; scale: (1,), the product of these."""
    sides = x, derivative
    for side in sides:
        begin = partial(side.natural.begin, side.matrix, side.h)
        tape.record(begin, reads=side.used, writes=(side.h, side.natural.token))
    rows = len(x.h)
    work = rows * sum(side.h.shape[1] * side.matrix.dim for side in sides) // PRODUCT_WORK
    squares = np.zeros((2, tape.threads))
    grams = [np.zeros((tape.threads, side.rank, side.rank)) for side in sides]
    for number, part in enumerate(tape.shared(rows, work)):
        for side, square, gram in zip(sides, squares, grams, strict=True):
            matrix: RowMatrix = side.matrix.rows(part)
            if side is x and splice is not None:
                own = splice.rows(part)
                memory = tape.scratch(len(own.x), side.h.shape[1] * len(own.offsets))
                matrix = SplicedRows(own, memory, thin_columns=side.thin_columns)
            results = side.h[part], square[number : number + 1], gram[number]
            tape.record(
                partial(side.project, matrix, *results),
                reads=(*side.used, side.natural.token),
                writes=results,
            )
    tape.record(
        partial(_set_scales, sides, squares, grams, scale),
        reads=[array for side in sides for array in (*side.used, side.h)] + [squares, *grams],
        writes=[array for side in sides for array in (side.natural.token, side.scale)] + [scale],
    )


def _set_scales(
    sides: Sequence[_Side], squares: Array, grams: Sequence[Array], scale: Array
) -> None:
    """Sets s and s' from partial sums of tr(X X^T) and of H^T H, and the product s s'."""
    scale[0] = 1.0
    for side, square, gram in zip(sides, squares, grams, strict=True):
        total = float(square.sum())
        side.scale[0] = side.natural.scale(side.matrix, side.h, total, gram.sum(axis=0))
        scale *= side.scale


def _record_updates(tape: Recorder, sides: Sequence[_Side]) -> None:
    """Records the updates of the estimates, when nothing needs the old ones any more.

    Threads share the large products; for each side one thread finds the new eigenvalues.
    """
    sides = [side for side in sides if side.rank]
    js = [tape.scratch(side.rank, side.matrix.dim) for side in sides]
    for side, j in zip(sides, js, strict=True):
        for part in tape.shared(side.rank, len(side.h) * j.size // PRODUCT_WORK):
            call = partial(side.natural.project_back, side.matrix, side.h, j, part)
            tape.record(call, reads=(*side.used, side.h, side.natural.token), writes=(j[part],))
    for side, j in tape.independent(list(zip(sides, js, strict=True))):
        tape.record(partial(side.natural.turn, j), reads=(j,), writes=(side.natural.token,))
    for side, j in zip(sides, js, strict=True):
        for part in tape.shared(j.shape[1], len(j) * j.size // PRODUCT_WORK):
            call = partial(side.natural.move, j, part)
            tape.record(call, writes=(j[:, part], side.natural.token))


@attrs.frozen(eq=False)
class _Side:
    """One side of a gradient: X, or the output derivative D.

    Attributes:
        natural: The online natural gradient of this side.
        matrix: X.
        used: The arrays that X is made of.
        h: (rows, rank), X W^T.
        scale: (1,), s: rows are preconditioned as s (X - H W).
        thin_columns: See `ColumnBlocks`.
        rank: The rank of W, or 0 if the rows of X are preconditioned instead of the gradient.
    """

    natural: OnlineNaturalGradient
    matrix: ColumnBlocks
    used: tuple[Array, ...]
    h: Array
    scale: Array
    thin_columns: int
    rank: int

    @classmethod
    def of(
        cls,
        tape: Recorder,
        natural: OnlineNaturalGradient,
        blocks: Sequence[Array],
        last: Array | None,
        *,
        is_thin: bool,
    ) -> _Side:
        """A side with X in blocks of columns, and perhaps a last column."""
        dim = sum(block.shape[1] for block in blocks) + (last is not None)
        rank, rows = natural.rank(dim), len(blocks[0])
        return cls(
            natural=natural,
            matrix=ColumnBlocks(blocks, last=last, thin_columns=rank if is_thin else 0),
            used=(*blocks, *(() if last is None else (last,))),
            h=tape.scratch(rows, rank),
            scale=np.ones(1),
            thin_columns=rank if is_thin else 0,
            rank=rank,
        )

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The blocks of columns that X is made of."""
        return self.used if self.matrix.last is None else self.used[:-1]

    def project(self, rows: RowMatrix, h: Array, square: Array, gram: Array) -> None:
        """Sets some rows of H, the sum of squares of these rows of X, and their part of H^T H."""
        if h.shape[1]:
            square[0] = rows.project(self.natural.transposed, h)
            gram[:] = gram_matrix(h)

    @property
    def w(self) -> Array:
        """W, (rank, columns of X), until the estimate is updated."""
        return self.natural.w

    def subtracted(self, tape: Recorder, memory: Array) -> _Side:
        """Records X - H W, and returns the side with it as X, of rank 0.

        The new X is in memory, except for a last column that is apart.
        """
        rows, before = len(self.h), self.matrix
        last = None if before.last is None else tape.scratch(rows)
        after = ColumnBlocks([memory], last=last)
        used = (memory, *(() if last is None else (last,)))
        for part in tape.shared(rows, rows * before.dim * self.h.shape[1] // PRODUCT_WORK):
            source, target = before.rows(part), after.rows(part)
            tape.record(
                partial(self._subtract, source, self.h[part], target),
                reads=(*self.used, self.h[part], self.scale, self.natural.token),
                writes=[array[part] for array in used],
            )
        return attrs.evolve(self, matrix=after, used=used, rank=0)

    def _subtract(self, source: ColumnBlocks, h: Array, target: ColumnBlocks) -> None:
        source.subtract(h, self.w, target)


@attrs.frozen(kw_only=True, eq=False)
class _NaturalGradient:
    """G = s s' D^T X, and the correction that is subtracted from it; see `AffinePreconditioner`.

    Attributes:
        plain: D^T X, with preconditioned rows of X or D where rows are preconditioned.
        x, derivative: The sides.
        scale: (1,), s s'.
        left: Rows of W', then of S^T.
        right: Rows of T - (T W^T) W, then of W.
    """

    plain: AffineGradient
    x: _Side
    derivative: _Side
    scale: Array
    left: Array
    right: Array

    def record(self, tape: Recorder) -> None:
        """Records the whole."""
        x, derivative, plain = self.x, self.derivative, self.plain
        dy, linear, bias, wide = plain.dy, plain.linear, plain.bias, plain.wide
        height = len(linear)
        used, tokens = (*x.used, dy, self.scale), (x.natural.token, derivative.natural.token)
        if plain.product is not None:
            plain.product(dy, linear, scale=self.scale, add=not plain.first)
        else:
            reads = used if wide is None else (*used, wide)
            for part in tape.shared(height, len(dy) * linear.size // PRODUCT_WORK):
                call = partial(self._multiply, part)
                tape.record(call, reads=reads, writes=(linear[part],))
        if bias is not None:
            for part in tape.shared(height, dy.size):
                tape.record(partial(self._add_bias, part), reads=used, writes=(bias[part],))
        split = derivative.rank
        t, s = self.right[:split], self.left[split:]
        if len(t):
            reads = (*used, *tokens, derivative.h, *self._results(slice(0, height)))
            for part in tape.shared(len(t), len(t) * linear.size // PRODUCT_WORK):
                tape.record(partial(self._set_t, part), reads=reads, writes=(t[part],))
        if len(s):
            for part in tape.shared(height, len(s) * linear.size // PRODUCT_WORK):
                reads = (dy, x.h, self.scale, *tokens, *self._results(part))
                tape.record(partial(self._set_s, part), reads=reads, writes=(s[:, part],))
            reads = (x.scale, x.natural.token)
            tape.record(self._copy_w, reads=reads, writes=(self.right[split:],))
        if len(self.right):
            reads = (self.right, self.left, derivative.scale, *tokens)
            for part in tape.shared(height, len(self.right) * linear.size // PRODUCT_WORK):
                writes = (*self._results(part), self.left[:split, part])
                tape.record(partial(self._subtract, part), reads=reads, writes=writes)

    def _results(self, part: slice) -> tuple[Array, ...]:
        """Some rows of linear and bias."""
        bias = () if self.plain.bias is None else (self.plain.bias[part],)
        return self.plain.linear[part], *bias

    def _multiply(self, part: slice) -> None:
        """Adds some rows of G to linear."""
        plain, scale, linear = self.plain, float(self.scale[0]), self.plain.linear[part]
        beta = 0.0 if plain.first else 1.0
        if plain.splice is not None and plain.wide is not None:
            spread_times_rows(plain.splice, plain.wide, part, linear, alpha=scale, beta=beta)
        else:
            self.x.matrix.transposed_times(plain.dy[:, part], linear, alpha=scale, beta=beta)

    def _add_bias(self, part: slice) -> None:
        """Adds a part of the column of G that belongs to the bias."""
        last = self.x.matrix.last
        assert last is not None
        assert self.plain.bias is not None
        total = float(self.scale[0]) * (last @ self.plain.dy[:, part])
        bias = self.plain.bias[part]
        bias[:] = total if self.plain.first else bias + total

    def _set_t(self, part: slice) -> None:
        """Sets some rows of T - (T W^T) W: (rank on the output side, columns of X)."""
        t, w, scale = self.right[part], self.derivative.w[part], float(self.scale[0])
        linear, bias = self.plain.linear, self.plain.bias
        if not (self.plain.first and len(linear) < len(self.plain.dy)):
            self.x.matrix.transposed_times(self.derivative.h[:, part], t, alpha=scale)
        else:
            gemm(w, linear, t[:, : linear.shape[1]])
            if bias is not None:
                t[:, -1] = w @ bias
        if self.x.rank:
            gemm(t @ self.x.w.T, self.x.w, t, alpha=-1.0, beta=1.0)

    def _set_s(self, part: slice) -> None:
        """Sets some columns of S^T: (rank on the input side, output_dim)."""
        s, w, plain = self.left[self.derivative.rank :, part], self.x.w, self.plain
        columns = plain.linear.shape[1]
        if not (plain.first and columns < len(plain.dy)):
            gemm(self.x.h.T, plain.dy[:, part], s, alpha=float(self.scale[0]))
            return
        gemm(w[:, :columns], plain.linear[part].T, s)
        if plain.bias is not None:
            s += np.outer(w[:, -1], plain.bias[part])

    def _copy_w(self) -> None:
        self.right[self.derivative.rank :] = self.x.w

    def _subtract(self, part: slice) -> None:
        """Subtracts from some rows of linear and bias."""
        linear, bias, split = self.plain.linear, self.plain.bias, self.derivative.rank
        columns, left = linear.shape[1], self.left[:, part]
        if split:
            left[:split] = self.derivative.w[:, part]
        gemm(left.T, self.right[:, :columns], linear[part], alpha=-1.0, beta=1.0)
        if bias is not None:
            bias[part] -= self.right[:, -1] @ left


def precondition_rows_of(rows: int, dim: int, rank: int, *, other: int) -> bool:
    """Whether preconditioning rows takes less work than preconditioning the gradient.

    Args:
        rows: Number of rows.
        dim: Columns of the matrix that is to be preconditioned.
        rank: The rank of the estimate of its Fisher matrix.
        other: Number of columns of the matrix on the other side; the gradient is (dim, other).
    """
    return rows * dim * (rank + PASSES) < rank * other * (min(rows, dim) + dim)
