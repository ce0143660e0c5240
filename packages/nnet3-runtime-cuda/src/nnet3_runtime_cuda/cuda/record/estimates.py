"""The online natural gradient on a device: the same method, without a step on the host.

What the host knows is when an estimate begins and on which minibatches it moves
(`estimate_schedule`). The estimates of a backward pass are moved together at its end, since the
eigenvalue problem of one of them keeps but a small part of a device busy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from nnet3_runtime_cuda.cpu.natural_gradient.estimate_state import EstimateState
from nnet3_runtime_cuda.cpu.natural_gradient.online_estimate import (
    SMALLEST,
    OnlineNaturalGradient,
    _spread_rows,
)
from nnet3_runtime_cuda.cpu.tape import Array
from nnet3_runtime_cuda.cuda.record.estimate_schedule import ALWAYS, Clock, Use
from nnet3_runtime_cuda.cuda.source import fisher

if TYPE_CHECKING:
    from nnet3_runtime_cuda.cuda.bind.shadow_memory import ShadowMemory
    from nnet3_runtime_cuda.cuda.record.device_tape import DeviceTape


class Estimate:
    """The estimate of one Fisher matrix in device memory.

    Attributes:
        dim: Columns of the rows that it serves.
        rank: Of the estimate.
        w: (rank, dim).
        ww: (rank, rank), W W^T.
        number: Of the estimate, by which its minibatches are counted.
    """

    def __init__(
        self, memory: ShadowMemory, natural: OnlineNaturalGradient, dim: int, number: int
    ) -> None:
        """Allocates an estimate for rows of so many columns."""
        self.natural = natural
        self.number = number
        self.dim, self.rank = dim, natural.rank(dim)
        rank = self.rank
        self.w, self.ww = memory.zeros((rank, dim), "f4"), memory.zeros((rank, rank), "f4")
        self.d, self.rho = memory.zeros((rank,), "f8"), memory.zeros((1, 1), "f8")
        # Kept from a pass over the rows to the update at the end of the backward pass.
        self.j, self.new_w = memory.reserve((rank, dim), "f4"), memory.reserve((rank, dim), "f4")
        self.gram, self.k = (memory.reserve((rank, rank), "f4") for _ in range(2))
        self.mix, self.decay = memory.reserve((rank, rank), "f4"), memory.reserve((rank, 1), "f4")
        self.work = memory.reserve((fisher.work_size(rank),), "f8")
        self.roots = memory.reserve((rank + 2,), "f8")
        self.before = memory.reserve((1, 1), "f8")
        self.rows = 0
        options = natural.options
        scale = 1.0 / math.sqrt(2.0 + (dim + rank) * options.alpha / dim)
        self.start = (scale * _spread_rows(rank, dim)).astype(np.float32)

    def pull(self, memory: ShadowMemory, minibatches: int) -> None:
        """Lets the estimate on the host be as it is here, after so many minibatches."""
        kept = self.w, self.ww, self.d, self.rho
        memory.pull(kept)
        has_begun = minibatches > 0
        self.natural.state = EstimateState(
            minibatches=minibatches,
            has_begun=has_begun,
            w=self.w if has_begun else np.zeros((0, 0)),
            ww=self.ww if has_begun else np.zeros((0, 0)),
            d=self.d if has_begun else np.zeros(0),
            rho=float(self.rho[0, 0]),
            renewed=np.zeros(0),
        )

    def push(self, memory: ShadowMemory) -> int:
        """Goes on from the estimate on the host; returns how many minibatches it has seen."""
        state = self.natural.state
        if not state.has_begun:
            return 0
        for array, values in ((self.w, state.w), (self.ww, state.ww), (self.d, state.d)):
            array[...] = values
        self.rho[...] = state.rho
        memory.push([self.w, self.ww, self.d, self.rho])
        return state.minibatches

    @property
    def operands(self) -> tuple[Array, ...]:
        """What the kernels in `source.fisher` work on, in their order."""
        statistics = self.gram, self.k, self.d, self.rho, self.before
        return *statistics, self.mix, self.decay, self.work, self.roots, self.w, self.j

    def forgetting(self) -> float:
        """The weight of a minibatch in the running estimate (eta)."""
        options = self.natural.options
        if options.num_minibatches_history > 0.0:
            return 1.0 / options.num_minibatches_history
        return min(0.9, 1.0 - math.exp(-self.rows / options.num_samples_history))


class Estimates:
    """The estimates of a network, each made when it is first asked for.

    Attributes:
        clock: Counts their minibatches.
    """

    def __init__(self, memory: ShadowMemory) -> None:
        """Takes their memory from that of the network."""
        self.clock = Clock()
        self._memory = memory
        self._known: dict[int, Estimate] = {}

    def of(self, natural: OnlineNaturalGradient, dim: int) -> Estimate:
        """What stands for an estimate on the host, for rows of so many columns."""
        if id(natural) not in self._known:
            estimate = Estimate(self._memory, natural, dim, self.clock.add())
            self._known[id(natural)] = estimate
            self.clock.minibatches[estimate.number] = estimate.push(self._memory)
        return self._known[id(natural)]

    def pull(self, natural: OnlineNaturalGradient) -> None:
        """Lets an estimate on the host be as it is here, if it has been asked for."""
        estimate = self._known.get(id(natural))
        if estimate is not None:
            estimate.pull(self._memory, int(self.clock.minibatches[estimate.number]))


class Rows:
    """A matrix in blocks of columns, perhaps with a last column of ones."""

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

    def times_transposed(self, tape: DeviceTape, w: Array, out: Array) -> None:
        """Records out = X w^T."""
        for number, (block, columns) in enumerate(self.blocks):
            tape.matmul(block, w[:, columns].T, out, add=number > 0)
        if self.ones:
            tape.add(out, w[:, self.columns], out)

    def transposed_times(
        self, tape: DeviceTape, h: Array, out: Array, *, alpha_at: Array | None = None
    ) -> None:
        """Records out = alpha h^T X; out: (columns of h, dim)."""
        for block, columns in self.blocks:
            tape.product(h.T, block, out[:, columns], alpha_at=alpha_at)
        if self.ones:
            sums = tape.scratch(1, h.shape[1])
            tape.column_sum(h, sums)
            factor: Array | float = 1.0 if alpha_at is None else alpha_at.reshape(1)
            tape.multiply(sums[0], factor, out[:, self.columns])

    def squares(self, tape: DeviceTape) -> Array:
        """Records the squares of all elements but the ones, summed up in parts: (parts,)."""
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

    def squared_differences(self, tape: DeviceTape, h: Array, w: Array, wanted: Array) -> Array:
        """Records the squared norms of the rows of X - h w, by blocks of columns, if wanted."""
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
    """One side of what is preconditioned.

    Attributes:
        estimate: Of its Fisher matrix.
        use: The decisions of this use of it.
        x: The rows.
        h: (rows, rank), set to X W^T.
    """

    estimate: Estimate
    use: Use
    x: Rows
    h: Array


def record_factor(tape: DeviceTape, sides: Sequence[Side]) -> Array:
    """Records h = X W^T for each side, and what the updates will need.

    What is alike for the sides follows one another, so that it can share launches.

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
        with tape.phase(side.use.begins):
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


def _record_start(tape: DeviceTape, side: Side, parts: Array) -> None:
    """Records that an estimate starts, and sees the first rows a few times."""
    estimate, x = side.estimate, side.x
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
    tape: DeviceTape, estimate: Estimate, x: Rows, parts: Array
) -> tuple[Array, Array]:
    """Records the squared norm of X, that of X - H W, and whether the latter is inexact."""
    after, is_small = (tape.scratch(1, 1, dtype=np.float64) for _ in range(2))
    tape.special(
        fisher.norms(len(parts), x.count if x.ones else 0, estimate.rank),
        (parts, estimate.gram, estimate.ww),
        (estimate.before, after, is_small),
    )
    return after, is_small


def record_update(tape: DeviceTape, side: Side) -> None:
    """Records that the estimate is moved at the end of the segment, if it is time to."""
    if side.estimate.rank == 0:
        return
    with tape.phase(side.use.moves):
        side.x.transposed_times(tape, side.h, side.estimate.j)
    tape.update_at_end(side.estimate, side.use.moves)


def record_updates(
    tape: DeviceTape, estimates: Sequence[Estimate], decisions: Sequence[int]
) -> None:
    """Records a step of estimates whose gram and j are there.

    Args:
        tape: Records the arithmetic.
        estimates: Each once.
        decisions: For each the number of the decision whether it takes part; none if all do.
    """
    tables = _tables(tape, estimates, decisions)
    any_of_them = tape.host_values.schedule.any_of(decisions)
    each = [*zip(estimates, decisions or [ALWAYS] * len(estimates), strict=True)]
    for e, takes_part in each:
        with tape.phase(takes_part):
            tape.product(e.j, e.j.T, e.k)
    with tape.phase(any_of_them):
        tape.special(fisher.fisher_step(len(estimates)), tables, ())
    for e, takes_part in each:
        with tape.phase(takes_part):
            term = tape.scratch(*e.w.shape)
            tape.multiply(e.w, e.decay, term)
            tape.add(e.j, term, e.j)
            tape.product(e.mix, e.j, e.new_w)
            tape.product(e.new_w, e.new_w.T, e.k)
    with tape.phase(any_of_them):
        tape.special(fisher.fisher_renew(len(estimates)), tables, ())
    for e, takes_part in each:
        with tape.phase(takes_part):
            tape.product(e.mix, e.new_w, e.w)
    with tape.phase(any_of_them):
        tape.special(fisher.fisher_orthonormalize(len(estimates)), tables, ())
    for e, takes_part in each:
        with tape.phase(takes_part):
            tape.product(e.w, e.w.T, e.ww)


def _tables(
    tape: DeviceTape, estimates: Sequence[Estimate], decisions: Sequence[int]
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


def side_of(tape: DeviceTape, natural: OnlineNaturalGradient, x: Rows) -> Side:
    """One side, whose estimate on the host is `natural`, with memory for h."""
    estimate, use = tape.estimate(natural, x.dim)
    return Side(estimate, use, x, tape.scratch(x.count, estimate.rank))


def record_precondition(tape: DeviceTape, natural: OnlineNaturalGradient, x: Array) -> Array:
    """Records that rows are preconditioned in place, but for a factor.

    Returns:
        (1, 1) float32, the factor.
    """
    side = side_of(tape, natural, Rows([x], ones=False))
    factor = record_factor(tape, [side])
    record_update(tape, side)
    if side.estimate.rank:
        tape.product(side.h, side.estimate.w, x, addend=x, alpha=-1.0)
    return factor
