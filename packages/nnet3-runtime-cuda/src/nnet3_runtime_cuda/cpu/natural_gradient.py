"""The natural gradient of affine maps, from products of low rank.

It is recorded as a few operations that threads share: projections of rows, the scale, rows of the
gradient, rows of the correction that is subtracted from it, and the update of the estimates.
`AffinePreconditioner` has the formula and names its matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import attrs
import numpy as np

from nnet3_runtime_cuda.cpu.estimate import ColumnBlocks, OnlineNaturalGradient, gram_matrix
from nnet3_runtime_cuda.cpu.products import gemm
from nnet3_runtime_cuda.cpu.recorder import Recorder
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import AffineGradient
from nnet3_runtime_cuda.operations.scratch import PRODUCT_WORK

PASSES = 40
"""The number of multiplications that take as long as writing a preconditioned element."""


class _Side(NamedTuple):
    """One side of a gradient: X, or the output derivative D.

    Attributes:
        natural: The online natural gradient of this side.
        x: X.
        h: (rows, rank), X W^T.
    """

    natural: OnlineNaturalGradient
    x: ColumnBlocks
    h: Array

    @classmethod
    def of(cls, tape: Recorder, natural: OnlineNaturalGradient, x: ColumnBlocks) -> _Side:
        """A side with memory for H."""
        return cls(natural, x, tape.scratch(len(x.blocks[0][0]), natural.rank(x.dim)))

    @property
    def rank(self) -> int:
        """The rank of W."""
        return int(self.h.shape[1])


def record_affine(
    tape: Recorder,
    input_side: OnlineNaturalGradient,
    output_side: OnlineNaturalGradient,
    gradient: AffineGradient,
) -> None:
    """Records operations that add the natural gradient to linear and bias, or replace them by it.

    It is G - W'^T (T - (T W^T) W) - S W. If X or D is narrow, its rows are preconditioned instead.
    """
    rows, bias = len(gradient.dy), gradient.bias
    ones = None if bias is None else tape.ones(rows)[0]
    x = _Side.of(tape, input_side, ColumnBlocks(gradient.xs, last=ones))
    derivative = _Side.of(tape, output_side, ColumnBlocks([gradient.dy]))
    sides, scale = [side for side in (x, derivative) if side.rank], np.ones(1)
    _record_factors(tape, (x, derivative), scale)
    with tape.passing():
        width, height = x.x.dim, derivative.x.dim
        if precondition_rows_of(rows, height, derivative.rank, other=width):
            derivative = _preconditioned(tape, derivative)
            gradient = attrs.evolve(gradient, dy=derivative.x.blocks[0][0])
        if precondition_rows_of(rows, width, x.rank, other=height):
            # Preconditioned rows are no splice any more, but this costs less than it saves.
            x = _preconditioned(tape, x)
            gradient = attrs.evolve(gradient, product=None)
        _record_product(tape, x, gradient, scale)
        _record_correction(tape, x, derivative, gradient, scale)
    _record_updates(tape, sides)


def precondition_rows_of(rows: int, dim: int, rank: int, *, other: int) -> bool:
    """Whether preconditioning rows takes less work than preconditioning the gradient.

    Args:
        rows: Number of rows.
        dim: Columns of the matrix that is to be preconditioned.
        rank: The rank of the estimate of its Fisher matrix.
        other: Number of columns of the matrix on the other side; the gradient is (dim, other).
    """
    return rows * dim * (rank + PASSES) < rank * other * (min(rows, dim) + dim)


def _preconditioned(tape: Recorder, side: _Side) -> _Side:
    """Records X - H W, and returns a side that has it as X, and nothing else to correct."""
    memory = tape.scratch(len(side.h), side.x.dim)
    for part in tape.shared(len(memory), memory.size * side.rank // PRODUCT_WORK):
        call = partial(_subtract_rows, side.natural, side.x.rows(part), side.h[part], memory[part])
        reads = (*side.x.arrays, side.h[part], side.natural.token)
        tape.record(call, reads=reads, writes=(memory[part],))
    has_last = side.x.last is not None
    blocks = [memory[:, : side.x.dim - has_last]]
    last = memory[:, -1] if has_last else None
    return _Side(side.natural, ColumnBlocks(blocks, last=last), side.h[:, :0])


def _subtract_rows(natural: OnlineNaturalGradient, x: ColumnBlocks, h: Array, out: Array) -> None:
    x.subtract(h, natural.w, out)


def _record_factors(tape: Recorder, sides: Sequence[_Side], scale: Array) -> None:
    """Records H = X W^T of both sides, and the product of their scales; scale: (1,)."""
    for natural, x, h in sides:
        begin = partial(natural.begin, x, h)
        tape.record(begin, reads=x.arrays, writes=(h, natural.token))
    rows = len(sides[0].h)
    work = rows * sum(side.rank * side.x.dim for side in sides) // PRODUCT_WORK
    squares = np.zeros((2, tape.threads))
    grams = [np.zeros((tape.threads, side.rank, side.rank)) for side in sides]
    for number, part in enumerate(tape.shared(rows, work)):
        for (natural, x, h), square, gram in zip(sides, squares, grams, strict=True):
            results = h[part], square[number : number + 1], gram[number]
            call = partial(_project, natural, x.rows(part), *results)
            tape.record(call, reads=(*x.arrays, natural.token), writes=results)
    tape.record(
        partial(_set_scale, sides, squares, grams, scale),
        reads=[array for side in sides for array in (*side.x.arrays, side.h)] + [squares, *grams],
        writes=[*(side.natural.token for side in sides), scale],
    )


def _project(
    natural: OnlineNaturalGradient, x: ColumnBlocks, h: Array, square: Array, gram: Array
) -> None:
    """Sets some rows of H, the sum of squares of these rows of X, and their part of H^T H."""
    if h.shape[1]:
        x.project(natural.w, h)
        square[0] = x.sum_of_squares()
        gram[:] = gram_matrix(h)


def _set_scale(
    sides: Sequence[_Side], squares: Array, grams: Sequence[Array], scale: Array
) -> None:
    """Sets s s' from partial sums of tr(X X^T) and of H^T H."""
    scale[0] = 1.0
    for (natural, x, h), square, gram in zip(sides, squares, grams, strict=True):
        scale[0] *= natural.scale(x, h, float(square.sum()), gram.sum(axis=0))


def _record_product(tape: Recorder, x: _Side, gradient: AffineGradient, scale: Array) -> None:
    """Records that G = s s' D^T X is added to linear and bias, or replaces them."""
    dy, linear, bias, first = gradient.dy, gradient.linear, gradient.bias, gradient.first
    reads = (*x.x.arrays, dy, scale)
    if gradient.product is not None:
        gradient.product(dy, linear, scale, not first)
    else:
        for part in tape.shared(len(linear), len(dy) * linear.size // PRODUCT_WORK):
            call = partial(_add_product, x.x, dy[:, part], linear[part], scale, first=first)
            tape.record(call, reads=reads, writes=(linear[part],))
    if bias is not None:
        for part in tape.shared(len(bias), dy.size):
            call = partial(_add_bias, x.x.last, dy[:, part], bias[part], scale, first=first)
            tape.record(call, reads=reads, writes=(bias[part],))


def _add_product(x: ColumnBlocks, dy: Array, linear: Array, scale: Array, *, first: bool) -> None:
    x.transposed_times(dy, linear, alpha=float(scale[0]), beta=0.0 if first else 1.0)


def _add_bias(ones: Array | None, dy: Array, bias: Array, scale: Array, *, first: bool) -> None:
    assert ones is not None
    total = float(scale[0]) * (ones @ dy)
    bias[:] = total if first else bias + total


def _record_correction(
    tape: Recorder, x: _Side, derivative: _Side, gradient: AffineGradient, scale: Array
) -> None:
    """Records that W'^T (T - (T W^T) W) and S W are subtracted from linear and bias.

    T = s s' H'^T X: (rank on the output side, columns of X), and S^T = s s' H^T D. If G is alone in
    linear and bias, and has fewer rows or columns than there are samples, they are W' G and W G^T.
    """
    dy, linear, bias = gradient.dy, gradient.linear, gradient.bias
    height, columns = linear.shape
    t, s = tape.scratch(derivative.rank, x.x.dim), tape.scratch(x.rank, height)
    tokens = x.natural.token, derivative.natural.token
    whole = linear, *(() if bias is None else (bias,))
    has_few_rows, has_few_columns = (gradient.first and n < len(dy) for n in (height, columns))
    for part in tape.shared(len(t), len(t) * linear.size // PRODUCT_WORK) if len(t) else ():
        if has_few_rows:
            set_t = partial(_project_columns, derivative.natural, part, t[part], *whole)
        else:
            set_t = partial(_scaled_product, x.x, derivative.h[:, part], t[part], scale)
        reads = (*x.x.arrays, scale, derivative.h, *tokens, *whole)
        tape.record(partial(_set_t, set_t, x, t[part]), reads=reads, writes=(t[part],))
    for part in tape.shared(height, len(s) * linear.size // PRODUCT_WORK) if len(s) else ():
        rows = [array[part] for array in whole]
        if has_few_columns:
            set_s = partial(_project_rows, x.natural, s[:, part], *rows)
        else:
            set_s = partial(_scaled_product, ColumnBlocks([dy[:, part]]), x.h, s[:, part], scale)
        tape.record(set_s, reads=(dy, x.h, scale, *tokens, *rows), writes=(s[:, part],))
    for part in tape.shared(height, (len(t) + len(s)) * linear.size // PRODUCT_WORK):
        rows = [array[part] for array in whole]
        call = partial(_subtract, x.natural, derivative.natural, part, t, s, *rows)
        tape.record(call, reads=(t, s, *tokens), writes=rows)


def _scaled_product(x: ColumnBlocks, h: Array, out: Array, scale: Array) -> None:
    """Computes out = scale h^T X."""
    x.transposed_times(h, out, alpha=float(scale[0]))


def _project_columns(
    wanted: OnlineNaturalGradient, part: slice, t: Array, linear: Array, bias: Array | None = None
) -> None:
    """Sets some rows of T = W' G."""
    gemm(wanted.w[part], linear, t[:, : linear.shape[1]])
    if bias is not None:
        t[:, -1] = wanted.w[part] @ bias


def _project_rows(
    given: OnlineNaturalGradient, s: Array, linear: Array, bias: Array | None = None
) -> None:
    """Sets some columns of S^T = W G^T."""
    gemm(given.w[:, : linear.shape[1]], linear.T, s)
    if bias is not None:
        s += np.outer(given.w[:, -1], bias)


def _set_t(set_t: Callable[[], object], x: _Side, t: Array) -> None:
    """Sets some rows of T - (T W^T) W."""
    set_t()
    if x.rank:
        gemm(t @ x.natural.w.T, x.natural.w, t, alpha=-1.0, beta=1.0)


def _subtract(
    given: OnlineNaturalGradient,
    wanted: OnlineNaturalGradient,
    part: slice,
    t: Array,
    s: Array,
    linear: Array,
    bias: Array | None = None,
) -> None:
    """Subtracts from some rows of linear and bias."""
    columns = linear.shape[1]
    for left, right in ((wanted.w[:, part], t), (s[:, part], given.w)):
        if len(left) and len(right):
            gemm(left.T, right[:, :columns], linear, alpha=-1.0, beta=1.0)
            if bias is not None:
                bias -= right[:, -1] @ left


def _record_updates(tape: Recorder, sides: Sequence[_Side]) -> None:
    """Records the updates of the estimates, when nothing needs the old ones any more.

    Threads share the large products; for each side one thread finds the new eigenvalues.
    """
    js = [tape.scratch(side.rank, side.x.dim) for side in sides]
    for (natural, x, h), j in zip(sides, js, strict=True):
        for part in tape.shared(len(j), len(h) * j.size // PRODUCT_WORK):
            call = partial(natural.project_back, x, h, j, part)
            tape.record(call, reads=(*x.arrays, h, natural.token), writes=(j[part],))
    for side, j in tape.independent(list(zip(sides, js, strict=True))):
        tape.record(partial(side.natural.turn, j), reads=(j,), writes=(side.natural.token,))
    for side, j in zip(sides, js, strict=True):
        for part in tape.shared(j.shape[1], len(j) * j.size // PRODUCT_WORK):
            call = partial(side.natural.move, j, part)
            tape.record(call, writes=(j[:, part], side.natural.token))
