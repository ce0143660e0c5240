"""The online natural gradient as operations of a device, without steps on the host.

The host knows only when an estimate begins and on which minibatches it is updated (`HostSteps`).
The estimates of a backward pass are updated together at its end, because the eigenvalue problem of
a single one uses only a small part of a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnet3_runtime_cuda.cuda import fisher_kernels
from nnet3_runtime_cuda.cuda.memory import ProgramMemory, ShadowMemory
from nnet3_runtime_cuda.cuda.segments import ALWAYS, Clock
from nnet3_runtime_cuda.cuda.tape import RecordingTape
from nnet3_runtime_cuda.operations import Array, Call, Tape
from nnet3_runtime_cuda.operations.gradients import (
    SMALLEST,
    ColumnBlocks,
    EstimateState,
    FisherEstimate,
    Side,
    check_shape,
)
from nnet3_runtime_cuda.operations.natural_gradient import record_transposed_product


class Estimate:
    """The estimate of one Fisher matrix in device memory.

    Attributes:
        dim: Columns of the rows that the estimate is for.
        rank: The rank.
        w: W, (rank, dim).
        ww: W W^T, (rank, rank).
        number: Number of the estimate, by which its minibatches are counted.
    """

    def __init__(
        self, memory: ShadowMemory, natural: FisherEstimate, dim: int, number: int
    ) -> None:
        """Allocates an estimate for rows of `dim` columns."""
        self.natural = natural
        self.number = number
        self.dim, self.rank = dim, natural.rank_for(dim)
        rank = self.rank
        self.w, self.ww = memory.zeros((rank, dim), "f4"), memory.zeros((rank, rank), "f4")
        self.d, self.rho = memory.zeros((rank,), "f8"), memory.zeros((1, 1), "f8")
        # These last from a pass over the rows to the update at the end of the backward pass.
        self.j, self.new_w = memory.reserve((rank, dim), "f4"), memory.reserve((rank, dim), "f4")
        self.gram, self.k = (memory.reserve((rank, rank), "f4") for _ in range(2))
        self.mix, self.decay = memory.reserve((rank, rank), "f4"), memory.reserve((rank, 1), "f4")
        self.work = memory.reserve((fisher_kernels.work_size(rank),), "f8")
        self.roots = memory.reserve((rank + 2,), "f8")
        self.before = memory.reserve((1, 1), "f8")
        self.rows = 0
        self.start = natural.first_w(dim).astype(np.float32)

    def state(self, memory: ShadowMemory, minibatches: int) -> EstimateState:
        """The estimate after `minibatches` minibatches; memory: the network's memory."""
        if not minibatches:
            return EstimateState.unused()
        memory.pull([self.w, self.ww, self.d, self.rho])
        return EstimateState(
            minibatches=minibatches,
            has_begun=True,
            w=self.w.copy(),
            ww=self.ww.copy(),
            d=self.d.copy(),
            rho=float(self.rho[0, 0]),
            renewed=np.zeros(0),
        )

    def resume(self, state: EstimateState, memory: ShadowMemory) -> int:
        """Continues from a state; returns the number of minibatches that it has seen."""
        if not state.has_begun:
            return 0
        check_shape(state.w, self.rank, self.dim)
        for array, values in ((self.w, state.w), (self.ww, state.ww), (self.d, state.d)):
            array[...] = values
        self.rho[...] = state.rho
        memory.push([self.w, self.ww, self.d, self.rho])
        return state.minibatches

    @property
    def operands(self) -> tuple[Array, ...]:
        """The operands of the kernels in `fisher_kernels`, in their order."""
        statistics = self.gram, self.k, self.d, self.rho, self.before
        return *statistics, self.mix, self.decay, self.work, self.roots, self.w, self.j


class Estimates:
    """The estimates of a network, each made on its first use.

    Attributes:
        clock: Counts the minibatches of the estimates.
    """

    def __init__(self, memory: ShadowMemory) -> None:
        """Takes memory from the network's."""
        self.clock = Clock()
        self._memory = memory
        self._known: dict[FisherEstimate, Estimate] = {}
        self._given: dict[FisherEstimate, EstimateState] = {}  # of estimates without a use so far

    def of(self, natural: FisherEstimate, dim: int) -> Estimate:
        """The estimate that `natural` stands for, for rows of `dim` columns."""
        if natural not in self._known:
            estimate = Estimate(self._memory, natural, dim, self.clock.add())
            self._known[natural] = estimate
            given = self._given.pop(natural, EstimateState.unused())
            self.clock.minibatches[estimate.number] = estimate.resume(given, self._memory)
        return self._known[natural]

    @property
    def arrays(self) -> list[Array]:
        """The memory of all estimates, in the order of their first uses."""
        return [array for e in self._known.values() for array in (e.w, e.ww, e.d, e.rho)]

    def state(self, natural: FisherEstimate) -> EstimateState:
        """The state of an estimate between two minibatches."""
        if natural not in self._known:
            return self._given.get(natural, EstimateState.unused())
        estimate = self._known[natural]
        return estimate.state(self._memory, int(self.clock.minibatches[estimate.number]))

    def resume(self, natural: FisherEstimate, state: EstimateState) -> None:
        """Sets the state from which an estimate will continue; it must not be in use yet."""
        assert natural not in self._known, "a program uses the estimate"
        self._given[natural] = state


class DeviceTape(RecordingTape):
    """Records operations with the natural gradient among them."""

    def __init__(
        self,
        memory: ProgramMemory,
        finish: Callable[[Tape], Callable[[], object]],
        estimates: Estimates,
    ) -> None:
        """Starts a tape that `finish` makes a call of; `estimates` are those of the device."""
        super().__init__(memory, finish, estimates.clock)
        self.estimates = estimates
        # Updates for the end of the segment: each with the decision whether to make it.
        self._updates: list[tuple[Estimate, int]] = []

    def take(self) -> tuple[Call, ...]:
        """The operations since the last `take`, as one call that will be bound."""
        self.record_pending()
        return super().take()

    def record_pending(self, needed: Estimate | None = None) -> None:
        """Records the updates that wait; if an estimate is given, only if it is among them."""
        pending = self._updates
        if not pending or (needed is not None and all(e is not needed for e, _ in pending)):
            return
        self._updates = []
        self.begin_command()
        estimates, decisions = zip(*pending, strict=True)
        _record_updates(self, estimates, decisions)

    def precondition(self, estimate: FisherEstimate, x: Array) -> Array:
        """Preconditions the rows of x up to a factor, which it returns: (1,)."""
        side = self.side(estimate, ColumnBlocks([x]))
        used = [side] if len(side.w) else []
        factor = self.project(used)
        self.update_estimates(used)
        for _ in used:
            self.scaled_product(side.h, side.w, x, add=True, alpha=-1.0)
        preserving: Array = factor[0]
        return preserving

    def side(self, estimate: FisherEstimate, x: ColumnBlocks) -> Side:
        """One side of a gradient, with memory for H, and the host's decisions for this use."""
        own = self.estimates.of(estimate, x.dim)
        self.record_pending(own)
        decisions = self.host_steps.use(own.number, estimate.update_period)
        return Side(x, own.w, self.scratch(len(x), own.rank), (own, *decisions))

    def project(self, sides: Sequence[Side]) -> Array:
        """H = X W^T of sides; returns the product of the scales that keep the norms, (1, 1).

        Equal operations of the sides follow one another, so that they can share launches.
        """
        factor = self.scratch(1, 1)
        if not sides:
            self.fill(1.0, factor)
            return factor
        squares = [_squares(self, side.x) for side in sides]
        for side, parts in zip(sides, squares, strict=True):
            estimate, begins, _ = side.estimate
            estimate.rows = len(side.x)
            with self.if_decided(begins):
                _record_start(self, side, parts)
        for side in sides:
            _set_h(self, side)
        for side in sides:
            self.product(side.h.T, side.h, side.estimate[0].gram)
        norms = [_norms(self, side, parts) for side, parts in zip(sides, squares, strict=True)]
        differences = [
            _squared_differences(self, side, is_small)
            for side, (_, is_small) in zip(sides, norms, strict=True)
        ]
        read = [
            array
            for side, (after, is_small), each in zip(sides, norms, differences, strict=True)
            for array in (side.estimate[0].before, after, is_small, each)
        ]
        kernel = fisher_kernels.factor([each.size for each in differences])
        self.special(kernel, tuple(read), (factor,))
        return factor

    def update_estimates(self, sides: Sequence[Side]) -> None:
        """Changes the estimates at the end of the pass, for minibatches that change them."""
        for x, _, h, (estimate, _, moves) in sides:
            with self.if_decided(moves):
                record_transposed_product(self, h, x, estimate.j)
            self._updates.append((estimate, moves))


def _set_h(tape: DeviceTape, side: Side) -> None:
    """Records h = X W^T."""
    for number, (block, columns) in enumerate(side.x.blocks):
        tape.matmul(block, side.w[:, columns].T, side.h, add=number > 0)
    if side.x.last is not None:
        tape.add(side.h, side.w[:, -1], side.h)


def _squares(tape: DeviceTape, x: ColumnBlocks) -> Array:
    """Records the squares of all elements but the ones, as partial sums: (parts,)."""
    kernels = []
    for block, _ in x.blocks:
        distances = (stride // block.itemsize for stride in block.strides)
        kernels.append(fisher_kernels.squares(len(x), block.shape[1], *distances))
    parts = tape.scratch(sum(kernel.grid for kernel in kernels), dtype=np.float64)
    start = 0
    for kernel, (block, _) in zip(kernels, x.blocks, strict=True):
        tape.special(kernel, (block,), (parts[start : start + kernel.grid],))
        start += kernel.grid
    return parts


def _squared_differences(tape: DeviceTape, side: Side, wanted: Array) -> Array:
    """Records the squared norms of the rows of X - h W, by blocks of columns, where wanted."""
    x, w, h, _ = side
    pieces = [(block, columns.start, block.shape[1]) for block, columns in x.blocks]
    if x.last is not None:
        pieces.append((h, x.dim - 1, 1))
    squares = tape.scratch(len(pieces), len(x), dtype=np.float64)
    for number, (block, start, width) in enumerate(pieces):
        row, column = (s // block.itemsize for s in block.strides)
        is_ones = number == len(x.blocks)
        kernel = fisher_kernels.squared_differences(
            len(x), width, len(w), None if is_ones else row, column, x.dim
        )
        tape.special(kernel, (block, h, w[:, start:], wanted), (squares[number],))
    return squares


def _norms(tape: DeviceTape, side: Side, parts: Array) -> tuple[Array, Array]:
    """Records the squared norms of X and X - H W, and whether the second is inexact."""
    estimate = side.estimate[0]
    after, is_small = (tape.scratch(1, 1, dtype=np.float64) for _ in range(2))
    ones = 0 if side.x.last is None else len(side.x)
    tape.special(
        fisher_kernels.norms(len(parts), ones, estimate.rank),
        (parts, estimate.gram, estimate.ww),
        (estimate.before, after, is_small),
    )
    return after, is_small


def _record_start(tape: DeviceTape, side: Side, parts: Array) -> None:
    """Records the start of the estimate, which sees the first rows several times."""
    estimate = side.estimate[0]
    # Only the norm of X is wanted, but the kernel reads these too.
    tape.fill(0.0, estimate.gram)
    tape.fill(0.0, estimate.ww)
    _norms(tape, side, parts)
    tape.copy(estimate.start, estimate.w)
    tape.fill(SMALLEST, estimate.d)
    tape.fill(SMALLEST, estimate.rho)
    for _ in range(1 if len(side.x) <= estimate.rank else 3):
        _set_h(tape, side)
        tape.product(side.h.T, side.h, estimate.gram)
        record_transposed_product(tape, side.h, side.x, estimate.j)
        _record_updates(tape, [estimate], [])


def _record_updates(
    tape: DeviceTape, estimates: Sequence[Estimate], decisions: Sequence[int]
) -> None:
    """Records an update of estimates whose gram and j are computed.

    Args:
        tape: Records the arithmetic.
        estimates: The estimates, each once.
        decisions: For each, the number of the decision whether to update it; empty to update all.
    """
    tables = _tables(tape, estimates, decisions)
    any_of_them = tape.host_steps.any_of(decisions)
    each = [*zip(estimates, decisions or [ALWAYS] * len(estimates), strict=True)]
    for e, takes_part in each:
        with tape.if_decided(takes_part):
            tape.product(e.j, e.j.T, e.k)
    with tape.if_decided(any_of_them):
        tape.special(fisher_kernels.fisher_step(len(estimates)), tables, ())
    for e, takes_part in each:
        with tape.if_decided(takes_part):
            term = tape.scratch(*e.w.shape)
            tape.multiply(e.w, e.decay, term)
            tape.add(e.j, term, e.j)
            tape.product(e.mix, e.j, e.new_w)
            tape.product(e.new_w, e.new_w.T, e.k)
    with tape.if_decided(any_of_them):
        tape.special(fisher_kernels.fisher_renew(len(estimates)), tables, ())
    for e, takes_part in each:
        with tape.if_decided(takes_part):
            tape.product(e.mix, e.new_w, e.w)
    with tape.if_decided(any_of_them):
        tape.special(fisher_kernels.fisher_orthonormalize(len(estimates)), tables, ())
    for e, takes_part in each:
        with tape.if_decided(takes_part):
            tape.product(e.w, e.w.T, e.ww)


def _tables(
    tape: DeviceTape, estimates: Sequence[Estimate], decisions: Sequence[int]
) -> tuple[Array, Array]:
    """The addresses and numbers of estimates, for the kernels in `fisher_kernels`."""
    addresses = np.array(
        [[tape.memory.address_of(array) for array in e.operands] for e in estimates],
        dtype=np.uint64,
    ).view(np.int64)
    known = np.array(
        [
            [e.rank, e.dim, e.rows, e.natural.forgetting(e.rows), e.natural.alpha, 1.0]
            for e in estimates
        ]
    )
    return addresses, tape.host_steps.table(known, decisions) if decisions else known
