"""The natural gradient of affine maps, from products of low rank.

It preconditions the rows of the input X and of the output derivative D. The preconditioned inputs
are s (X - H W) and the preconditioned output derivatives s' (D - H' W'), where H = X W^T and
H' = D W'^T. The natural gradient is

    (I - W'^T W') G (I - W^T W) = G - W'^T (T - (T W^T) W) - S W
    G = s s' D^T X      T = W' G = s s' H'^T X      S = G W^T = s s' D^T H

so only the products for G have both many rows and many columns. A machine has the estimates of
Fisher matrices: it projects rows on W, finds their scale, and updates W (`Tape.side`,
`project` and `update_estimates`). Everything else is products.
"""

from __future__ import annotations

from nnet3_runtime_cuda.operations.gradients import AffineGradient, ColumnBlocks, Side, Sides
from nnet3_runtime_cuda.operations.protocol import Array, Tape

PASSES = 40
"""The number of multiplications that take as long as writing a preconditioned element."""


def record_natural_gradient(tape: Tape, sides: Sides, gradient: AffineGradient) -> None:
    """Records that the natural gradient is added to linear and bias, or replaces them.

    It is G - W'^T (T - (T W^T) W) - S W. If X or D is narrow, a processor preconditions its rows
    instead; a device preconditions G where that is less work.
    """
    has_bias, rows = gradient.bias is not None, len(gradient.dy)
    ones = tape.ones(rows)[0] if has_bias else None
    of_input, of_output = sides
    x = tape.side(of_input, ColumnBlocks(gradient.xs, last=ones, has_ones=has_bias))
    d = tape.side(of_output, ColumnBlocks([gradient.dy]))
    used = [side for side in (x, d) if len(side.w)]
    scale = tape.project(used)
    if not tape.preconditions_rows:
        # The device makes updates at the end of a pass: what they need comes first.
        tape.update_estimates(used)
    with tape.passing():
        width, height = x.x.dim, d.x.dim
        if not tape.preconditions_rows:
            ranks, gradient_work = (len(x.w), len(d.w)), (len(x.w) + len(d.w)) * height * width
            if gradient_work <= rows * (ranks[0] * height + ranks[1] * width):
                _record_from_gradient(tape, x, d, gradient, scale)
                return
        elif precondition_rows_of(rows, height, len(d.w), other=width):
            d = _preconditioned(tape, d)
            gradient = gradient._replace(dy=d.x.blocks[0][0])
        if tape.preconditions_rows and precondition_rows_of(rows, width, len(x.w), other=height):
            # Preconditioned rows are no splice any more, but this costs less than it saves.
            x = _preconditioned(tape, x)
            gradient = gradient._replace(product=None)
        _record_products(tape, x, d, gradient, scale)
    if tape.preconditions_rows:
        tape.update_estimates(used)


def precondition_rows_of(rows: int, dim: int, rank: int, *, other: int) -> bool:
    """Whether preconditioning rows takes less work than preconditioning the gradient.

    Args:
        rows: Number of rows.
        dim: Columns of the matrix that is to be preconditioned.
        rank: The rank of the estimate of its Fisher matrix.
        other: Number of columns of the matrix on the other side; the gradient is (dim, other).
    """
    return rows * dim * (rank + PASSES) < rank * other * (min(rows, dim) + dim)


def _preconditioned(tape: Tape, side: Side) -> Side:
    """Records X - H W, and returns a side that has it as X, and nothing else to correct."""
    memory, last = tape.scratch(len(side.h), side.x.dim), side.x.last
    for block, columns in side.x.blocks:
        tape.copy(block, memory[:, columns])
    if last is not None:
        tape.copy(last, memory[:, -1])
    tape.scaled_product(side.h, side.w, memory, add=True, alpha=-1.0)
    blocks = [memory] if last is None else [memory[:, :-1]]
    x = ColumnBlocks(blocks, last=None if last is None else memory[:, -1])
    return Side(x, side.w[:0], side.h[:, :0], side.estimate)


def record_transposed_product(
    tape: Tape, h: Array, x: ColumnBlocks, out: Array, scale: Array | None = None
) -> None:
    """Records out = scale h^T X; out: (columns of h, dim)."""
    for block, columns in x.blocks:
        tape.scaled_product(h.T, block, out[:, columns], scale=scale)
    if x.last is not None:
        _record_last(tape, h, x, out[:, -1], scale, add=False)


def _record_last(
    tape: Tape, h: Array, x: ColumnBlocks, out: Array, scale: Array | None, *, add: bool
) -> None:
    """Records out (+)= scale h^T times the last column of X; out: (columns of h,)."""
    if not x.has_ones:
        assert x.last is not None
        tape.scaled_product(h.T, x.last[:, None], out[:, None], add=add, scale=scale)
        return
    sums = tape.scratch(1, len(out))
    tape.column_sum(h, sums)
    factor: Array | float = 1.0 if scale is None else scale.reshape(1)
    tape.multiply(sums[0], factor, sums[0] if add else out)
    if add:
        tape.add(out, sums[0], out)


def _record_products(tape: Tape, x: Side, d: Side, gradient: AffineGradient, scale: Array) -> None:
    """Records linear and bias (+)= G - W'^T (T - (T W^T) W) - S W.

    T = scale H'^T X, (rank on the output side, columns of X), and S = scale D^T H. If G is alone in
    linear and bias, and has fewer rows or columns than there are samples, a processor computes W' G
    and G W^T instead.
    """
    dy, linear, bias, add = gradient.dy, gradient.linear, gradient.bias, not gradient.first
    height, columns = linear.shape
    t, s = tape.scratch(len(d.w), x.x.dim), tape.scratch(height, len(x.w))
    is_small = gradient.first and tape.preconditions_rows
    has_few_rows, has_few_columns = (is_small and n < len(dy) for n in (height, columns))
    if len(t) and not has_few_rows:
        record_transposed_product(tape, d.h, x.x, t, scale)
    if s.size and not has_few_columns:
        tape.scaled_product(dy.T, x.h, s, scale=scale)
    if gradient.product is not None:
        gradient.product(dy, linear, scale, add)
    else:
        for block, part in x.x.blocks:
            tape.scaled_product(dy.T, block, linear[:, part], add=add, scale=scale)
    if bias is not None:
        _record_last(tape, dy, x.x, bias, scale, add=add)
    if len(t) and has_few_rows:
        tape.scaled_product(d.w, linear, t[:, :columns])
        if bias is not None:
            tape.scaled_product(d.w, bias[:, None], t[:, columns:])
    if s.size and has_few_columns:
        tape.scaled_product(linear, x.w[:, :columns].T, s)
        if bias is not None:
            tape.scaled_product(bias[:, None], x.w[:, columns:].T, s, add=True)
    if len(t) and len(x.w):
        tw = tape.scratch(len(t), len(x.w))
        tape.scaled_product(t, x.w.T, tw)
        tape.scaled_product(tw, x.w, t, add=True, alpha=-1.0)
    for left, right in ((d.w.T, t), (s, x.w)):
        if not len(right):
            continue
        tape.scaled_product(left, right[:, :columns], linear, add=True, alpha=-1.0)
        if bias is not None:
            column = bias[:, None]
            tape.scaled_product(left, right[:, columns:], column, add=True, alpha=-1.0)


def _record_from_gradient(
    tape: Tape, x: Side, d: Side, gradient: AffineGradient, scale: Array
) -> None:
    """Records linear and bias (+)= (I - W'^T W') G (I - W^T W), from G: for many rows."""
    linear, bias = gradient.linear, gradient.bias
    width, columns = x.x.dim, linear.shape[1]
    is_alone = bias is None and gradient.first
    total = linear if is_alone else _aligned(tape, len(linear), width)
    record_transposed_product(tape, gradient.dy, x.x, total, scale)
    if len(x.w):
        s = _aligned(tape, len(linear), len(x.w))
        tape.scaled_product(total, x.w.T, s)
        tape.scaled_product(s, x.w, total, add=True, alpha=-1.0)
    if len(d.w):
        t = _aligned(tape, len(d.w), width)
        tape.scaled_product(d.w, total, t)
        tape.scaled_product(d.w.T, t, total, add=True, alpha=-1.0)
    targets = [] if is_alone else [(total[:, :columns], linear)]
    if bias is not None:
        targets.append((total[:, columns], bias))
    for part, out in targets:
        if gradient.first:
            tape.copy(part, out)
        else:
            tape.add(out, part, out)


def _aligned(tape: Tape, rows: int, columns: int) -> Array:
    """Working memory for a matrix whose rows begin at multiples of 16 bytes."""
    return tape.scratch(rows, -(-columns // 4) * 4)[:, :columns]
