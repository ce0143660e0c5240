"""The online natural gradient as operations of a device, without steps on the host.

The host knows only when an estimate begins and on which minibatches it is updated
(`estimate_schedule`). The estimates of a backward pass are updated together at its end, because the
eigenvalue problem of a single one uses only a small part of a device.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from nnet3_runtime_cuda.cuda.record.estimate_schedule import ALWAYS, Use
from nnet3_runtime_cuda.cuda.record.estimates import Estimate
from nnet3_runtime_cuda.cuda.record.recording_tape import RecordingTape
from nnet3_runtime_cuda.cuda.source import fisher
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import SMALLEST, FisherEstimate


class DeviceColumnBlocks:
    """A matrix in blocks of columns; it can have a last column of ones."""

    def __init__(self, blocks: Sequence[Array], *, ones: bool) -> None:
        """Puts blocks, each (rows, some columns), side by side."""
        self.blocks: list[tuple[Array, slice]] = []
        start = 0
        for block in blocks:
            self.blocks.append((block, slice(start, start + block.shape[1])))
            start += block.shape[1]
        self.columns, self.ones = start, ones
        self.dim = start + ones
        self.count = len(blocks[0])

    def times_transposed(self, tape: RecordingTape, w: Array, out: Array) -> None:
        """Records out = X w^T."""
        for number, (block, columns) in enumerate(self.blocks):
            tape.matmul(block, w[:, columns].T, out, add=number > 0)
        if self.ones:
            tape.add(out, w[:, self.columns], out)

    def transposed_times(
        self, tape: RecordingTape, h: Array, out: Array, *, alpha_at: Array | None = None
    ) -> None:
        """Records out = alpha h^T X; out: (columns of h, dim)."""
        for block, columns in self.blocks:
            tape.product(h.T, block, out[:, columns], alpha_at=alpha_at)
        if self.ones:
            sums = tape.scratch(1, h.shape[1])
            tape.column_sum(h, sums)
            factor: Array | float = 1.0 if alpha_at is None else alpha_at.reshape(1)
            tape.multiply(sums[0], factor, out[:, self.columns])

    def squares(self, tape: RecordingTape) -> Array:
        """Records the squares of all elements but the ones, as partial sums: (parts,)."""
        kernels = []
        for block, _ in self.blocks:
            distances = (stride // block.itemsize for stride in block.strides)
            kernels.append(fisher.squares(self.count, block.shape[1], *distances))
        parts = tape.scratch(sum(kernel.grid for kernel in kernels), dtype=np.float64)
        start = 0
        for kernel, (block, _) in zip(kernels, self.blocks, strict=True):
            tape.special(kernel, (block,), (parts[start : start + kernel.grid],))
            start += kernel.grid
        return parts

    def squared_differences(self, tape: RecordingTape, h: Array, w: Array, wanted: Array) -> Array:
        """Records the squared norms of the rows of X - h w, by blocks of columns, where wanted."""
        pieces = [(block, columns.start, block.shape[1]) for block, columns in self.blocks]
        if self.ones:
            pieces.append((h, self.columns, 1))
        squares = tape.scratch(len(pieces), self.count, dtype=np.float64)
        for number, (block, start, width) in enumerate(pieces):
            ones = start == self.columns
            row, column = (s // block.itemsize for s in block.strides)
            kernel = fisher.squared_differences(
                self.count, width, len(w), None if ones else row, column, self.dim
            )
            tape.special(kernel, (block, h, w[:, start:], wanted), (squares[number],))
        return squares


@attrs.frozen(eq=False)
class Side:
    """The input side or the output side of a preconditioned gradient.

    Attributes:
        estimate: The estimate of its Fisher matrix.
        use: The host's decisions for this use of the estimate.
        x: The rows.
        h: (rows, rank), set to X W^T.
    """

    estimate: Estimate
    use: Use
    x: DeviceColumnBlocks
    h: Array


def record_factor(tape: RecordingTape, sides: Sequence[Side]) -> Array:
    """Records h = X W^T for each side, and the operands of the updates.

    Equal operations of the two sides follow one another, so that they can share launches.

    Returns:
        (1, 1) float32: the product of the scales that give preconditioned rows the norm of X.
    """
    factor = tape.scratch(1, 1)
    sides = [side for side in sides if side.estimate.rank]
    if not sides:
        tape.fill(1.0, factor)
        return factor
    squares = [side.x.squares(tape) for side in sides]
    for side, parts in zip(sides, squares, strict=True):
        side.estimate.rows = side.x.count
        with tape.if_decided(side.use.begins):
            _record_start(tape, side, parts)
    for side in sides:
        side.x.times_transposed(tape, side.estimate.w, side.h)
    for side in sides:
        tape.product(side.h.T, side.h, side.estimate.gram)
    norms = [
        _record_norms(tape, side.estimate, side.x, parts)
        for side, parts in zip(sides, squares, strict=True)
    ]
    differences = [
        side.x.squared_differences(tape, side.h, side.estimate.w, is_small)
        for side, (_, is_small) in zip(sides, norms, strict=True)
    ]
    read = [
        array
        for side, (after, is_small), each in zip(sides, norms, differences, strict=True)
        for array in (side.estimate.before, after, is_small, each)
    ]
    tape.special(fisher.factor([each.size for each in differences]), tuple(read), (factor,))
    return factor


def _record_start(tape: RecordingTape, side: Side, parts: Array) -> None:
    """Records the start of an estimate, which sees the first rows several times."""
    estimate, x = side.estimate, side.x
    # Only the norm of X is wanted, but the kernel reads these too.
    tape.fill(0.0, estimate.gram)
    tape.fill(0.0, estimate.ww)
    _record_norms(tape, estimate, x, parts)
    tape.copy(estimate.start, estimate.w)
    tape.fill(SMALLEST, estimate.d)
    tape.fill(SMALLEST, estimate.rho)
    for _ in range(1 if x.count <= estimate.rank else 3):
        x.times_transposed(tape, estimate.w, side.h)
        tape.product(side.h.T, side.h, estimate.gram)
        x.transposed_times(tape, side.h, estimate.j)
        record_updates(tape, [estimate], [])


def _record_norms(
    tape: RecordingTape, estimate: Estimate, x: DeviceColumnBlocks, parts: Array
) -> tuple[Array, Array]:
    """Records the squared norms of X and X - H W, and whether the second is inexact."""
    after, is_small = (tape.scratch(1, 1, dtype=np.float64) for _ in range(2))
    tape.special(
        fisher.norms(len(parts), x.count if x.ones else 0, estimate.rank),
        (parts, estimate.gram, estimate.ww),
        (estimate.before, after, is_small),
    )
    return after, is_small


def record_update(tape: RecordingTape, side: Side) -> None:
    """Records the update of an estimate at the end of the segment, on minibatches that have one."""
    if side.estimate.rank == 0:
        return
    with tape.if_decided(side.use.moves):
        side.x.transposed_times(tape, side.h, side.estimate.j)
    tape.update_at_end(side.estimate, side.use.moves)


def record_updates(
    tape: RecordingTape, estimates: Sequence[Estimate], decisions: Sequence[int]
) -> None:
    """Records an update of estimates whose gram and j are computed.

    Args:
        tape: Records the arithmetic.
        estimates: The estimates, each once.
        decisions: For each, the number of the decision whether to update it; empty to update all.
    """
    tables = _tables(tape, estimates, decisions)
    any_of_them = tape.host_values.schedule.any_of(decisions)
    each = [*zip(estimates, decisions or [ALWAYS] * len(estimates), strict=True)]
    for e, takes_part in each:
        with tape.if_decided(takes_part):
            tape.product(e.j, e.j.T, e.k)
    with tape.if_decided(any_of_them):
        tape.special(fisher.fisher_step(len(estimates)), tables, ())
    for e, takes_part in each:
        with tape.if_decided(takes_part):
            term = tape.scratch(*e.w.shape)
            tape.multiply(e.w, e.decay, term)
            tape.add(e.j, term, e.j)
            tape.product(e.mix, e.j, e.new_w)
            tape.product(e.new_w, e.new_w.T, e.k)
    with tape.if_decided(any_of_them):
        tape.special(fisher.fisher_renew(len(estimates)), tables, ())
    for e, takes_part in each:
        with tape.if_decided(takes_part):
            tape.product(e.mix, e.new_w, e.w)
    with tape.if_decided(any_of_them):
        tape.special(fisher.fisher_orthonormalize(len(estimates)), tables, ())
    for e, takes_part in each:
        with tape.if_decided(takes_part):
            tape.product(e.w, e.w.T, e.ww)


def _tables(
    tape: RecordingTape, estimates: Sequence[Estimate], decisions: Sequence[int]
) -> tuple[Array, Array]:
    """The addresses and numbers of estimates, for the kernels in `source.fisher`."""
    addresses = np.array(
        [[tape.memory.address_of(array) for array in e.operands] for e in estimates],
        dtype=np.uint64,
    ).view(np.int64)
    known = np.array(
        [[e.rank, e.dim, e.rows, e.forgetting(), e.natural.options.alpha, 1.0] for e in estimates]
    )
    return addresses, tape.host_values.table(known, decisions) if decisions else known


def side_of(tape: RecordingTape, natural: FisherEstimate, x: DeviceColumnBlocks) -> Side:
    """The side with the estimate of `natural`, and memory for h."""
    estimate, use = tape.estimate(natural, x.dim)
    return Side(estimate, use, x, tape.scratch(x.count, estimate.rank))


def record_precondition(tape: RecordingTape, natural: FisherEstimate, x: Array) -> Array:
    """Records the preconditioning of rows in place, without a final factor.

    Returns:
        (1, 1) float32, the factor.
    """
    side = side_of(tape, natural, DeviceColumnBlocks([x], ones=False))
    factor = record_factor(tape, [side])
    record_update(tape, side)
    if side.estimate.rank:
        tape.product(side.h, side.estimate.w, x, addend=x, alpha=-1.0)
    return factor
