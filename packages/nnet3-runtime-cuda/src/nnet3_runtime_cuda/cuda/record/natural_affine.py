"""The natural gradient of affine maps on a device."""

from __future__ import annotations

from nnet3_runtime_cuda.cuda.record.preconditioning import (
    DeviceColumnBlocks,
    Side,
    record_factor,
    record_update,
    side_of,
)
from nnet3_runtime_cuda.cuda.record.recording_tape import RecordingTape
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import AffineGradient, AffinePreconditioner


def record_affine(
    tape: RecordingTape, sides: AffinePreconditioner, gradient: AffineGradient
) -> None:
    """Records the natural gradient of an affine map; see `AffinePreconditioner`.

    It uses the blocks of columns; the methods that save work on a processor are not used.
    """
    dy, linear = gradient.dy, gradient.linear
    given = side_of(
        tape, sides.input_side, DeviceColumnBlocks(gradient.xs, ones=gradient.bias is not None)
    )
    wanted = side_of(tape, sides.output_side, DeviceColumnBlocks([dy], ones=False))
    factor = record_factor(tape, [given, wanted])
    for side in (given, wanted):
        record_update(tape, side)
    rows, (height, width) = len(dy), (len(linear), given.x.dim)
    rank_in, rank_out = given.estimate.rank, wanted.estimate.rank
    of_gradient = (rank_in + rank_out) * height * width
    is_cheaper = of_gradient <= rows * (rank_in * height + rank_out * width)
    record = _precondition_gradient if is_cheaper else _precondition_products
    record(tape, given, wanted, factor, gradient)


def _precondition_gradient(
    tape: RecordingTape, given: Side, wanted: Side, factor: Array, total: AffineGradient
) -> None:
    """Records linear and bias (+)= (I - W'^T W') G (I - W^T W), from G: for many rows."""
    x, dy = given.x, wanted.x.blocks[0][0]
    w_in, w_out = given.estimate.w, wanted.estimate.w
    linear, bias = total.linear, total.bias
    gradient = linear if bias is None and total.first else _aligned(tape, len(linear), x.dim)
    x.transposed_times(tape, dy, gradient, alpha_at=factor)
    if given.estimate.rank:
        s = _aligned(tape, len(linear), given.estimate.rank)
        tape.product(gradient, w_in.T, s)
        tape.product(s, w_in, gradient, addend=gradient, alpha=-1.0)
    if wanted.estimate.rank:
        t = _aligned(tape, wanted.estimate.rank, x.dim)
        tape.product(w_out, gradient, t)
        tape.product(w_out.T, t, gradient, addend=gradient, alpha=-1.0)
    if gradient is linear:
        return
    record = tape.copy if total.first else lambda part, out: tape.add(out, part, out)
    record(gradient[:, : x.columns], linear)
    if bias is not None:
        record(gradient[:, x.columns], bias)


def _aligned(tape: RecordingTape, rows: int, columns: int) -> Array:
    """Working memory for a matrix whose rows begin at multiples of 16 bytes."""
    return tape.scratch(rows, -(-columns // 4) * 4)[:, :columns]


def _precondition_products(
    tape: RecordingTape, given: Side, wanted: Side, factor: Array, total: AffineGradient
) -> None:
    """Records linear and bias (+)= G - W'^T (T - (T W^T) W) - S W, T = H'^T X, S = D^T H."""
    x, dy = given.x, wanted.x.blocks[0][0]
    w_in, w_out = given.estimate.w, wanted.estimate.w
    rank_in, rank_out = given.estimate.rank, wanted.estimate.rank
    linear, bias = total.linear, total.bias
    t, s = tape.scratch(rank_out, x.dim), tape.scratch(len(linear), rank_in)
    if rank_out:
        x.transposed_times(tape, wanted.h, t, alpha_at=factor)
    if rank_in:
        tape.product(dy.T, given.h, s, alpha_at=factor)
    for block, columns in x.blocks:
        target = linear[:, columns]
        tape.product(dy.T, block, target, addend=None if total.first else target, alpha_at=factor)
    if bias is not None:
        sums = tape.scratch(1, len(bias))
        tape.column_sum(dy, sums)
        tape.multiply(sums[0], factor[0], bias if total.first else sums[0])
        if not total.first:
            tape.add(bias, sums[0], bias)
    if rank_out and rank_in:
        tw = tape.scratch(rank_out, rank_in)
        tape.product(t, w_in.T, tw)
        tape.product(tw, w_in, t, addend=t, alpha=-1.0)
    for rank, left, right in ((rank_out, w_out.T, t), (rank_in, s, w_in)):
        if not rank:
            continue
        tape.product(left, right[:, : x.columns], linear, addend=linear, alpha=-1.0)
        if bias is not None:
            column = bias[:, None]
            tape.product(left, right[:, x.columns :], column, addend=column, alpha=-1.0)
