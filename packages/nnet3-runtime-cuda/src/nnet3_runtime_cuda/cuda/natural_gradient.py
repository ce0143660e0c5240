"""The online natural gradient as operations of a device, without steps on the host.

The host knows only when an estimate begins and on which minibatches it is updated (`host_steps`).
The estimates of a backward pass are updated together at its end, because the eigenvalue problem of
a single one uses only a small part of a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnet3_runtime_cuda.cuda import fisher_kernels
from nnet3_runtime_cuda.cuda.host_steps import ALWAYS, Clock
from nnet3_runtime_cuda.cuda.memory import ProgramMemory, ShadowMemory
from nnet3_runtime_cuda.cuda.tape import RecordingTape
from nnet3_runtime_cuda.operations import Array, Call, Tape
from nnet3_runtime_cuda.operations.gradients import (
    SMALLEST,
    AffineGradient,
    AffinePreconditioner,
    EstimateState,
    FisherEstimate,
    check_shape,
)


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
        self.dim, self.rank = dim, natural.rank(dim)
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

    def forgetting(self) -> float:
        """The weight of a minibatch in the running estimate (eta)."""
        return self.natural.forgetting(self.rows)


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

    def begin_update(self, estimate: Estimate, moves: int) -> None:
        """Has an estimate updated at the end or before its next use, if a decision is positive."""
        self._updates.append((estimate, moves))

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
        side = Side(self, estimate, [x])
        factor = _record_factor(self, [side])
        side.record_update()
        if side.estimate.rank:
            self.product(side.h, side.estimate.w, x, addend=x, alpha=-1.0)
        preserving: Array = factor[0]
        return preserving

    def precondition_affine(self, sides: AffinePreconditioner, gradient: AffineGradient) -> None:
        """Adds the natural gradient of an affine map; see `AffinePreconditioner`.

        It uses the blocks of columns; the methods that save work on a processor are not used.
        """
        dy, linear = gradient.dy, gradient.linear
        given = Side(self, sides.input_side, gradient.xs, ones=gradient.bias is not None)
        wanted = Side(self, sides.output_side, [dy])
        factor = _record_factor(self, [given, wanted])
        for side in (given, wanted):
            side.record_update()
        rows, (height, width) = len(dy), (len(linear), given.dim)
        rank_in, rank_out = given.estimate.rank, wanted.estimate.rank
        of_gradient = (rank_in + rank_out) * height * width
        is_cheaper = of_gradient <= rows * (rank_in * height + rank_out * width)
        record = _precondition_gradient if is_cheaper else _precondition_products
        record(self, given, wanted, factor, gradient)


class Side:
    """The input side or the output side of a preconditioned gradient: rows, and their estimate.

    The rows come in blocks of columns, and can have a last column of ones.

    Attributes:
        blocks: (rows, some columns) each, with its place among all columns.
        columns: Number of columns without that of ones.
        dim: Number of columns.
        count: Number of rows.
        estimate: The estimate of the Fisher matrix.
        use: The host's decisions for this use of the estimate.
        h: (rows, rank), set to X W^T.
    """

    def __init__(
        self,
        tape: DeviceTape,
        natural: FisherEstimate,
        blocks: Sequence[Array],
        *,
        ones: bool = False,
    ) -> None:
        """Puts blocks side by side, and takes memory for h."""
        self._tape = tape
        self.blocks: list[tuple[Array, slice]] = []
        self.columns = 0
        for block in blocks:
            self.blocks.append((block, slice(self.columns, self.columns + block.shape[1])))
            self.columns += block.shape[1]
        self.ones = ones
        self.dim, self.count = self.columns + ones, len(blocks[0])
        self.estimate = tape.estimates.of(natural, self.dim)
        tape.record_pending(self.estimate)
        period = natural.options.update_period
        self.use = tape.host_steps.schedule.use(self.estimate.number, period)
        self.h = tape.scratch(self.count, self.estimate.rank)

    def set_h(self) -> None:
        """Records h = X W^T."""
        w = self.estimate.w
        for number, (block, columns) in enumerate(self.blocks):
            self._tape.matmul(block, w[:, columns].T, self.h, add=number > 0)
        if self.ones:
            self._tape.add(self.h, w[:, self.columns], self.h)

    def transposed_times(self, h: Array, out: Array, *, alpha_at: Array | None = None) -> None:
        """Records out = alpha h^T X; out: (columns of h, dim)."""
        tape = self._tape
        for block, columns in self.blocks:
            tape.product(h.T, block, out[:, columns], alpha_at=alpha_at)
        if self.ones:
            sums = tape.scratch(1, h.shape[1])
            tape.column_sum(h, sums)
            factor: Array | float = 1.0 if alpha_at is None else alpha_at.reshape(1)
            tape.multiply(sums[0], factor, out[:, self.columns])

    def squares(self) -> Array:
        """Records the squares of all elements but the ones, as partial sums: (parts,)."""
        kernels = []
        for block, _ in self.blocks:
            distances = (stride // block.itemsize for stride in block.strides)
            kernels.append(fisher_kernels.squares(self.count, block.shape[1], *distances))
        parts = self._tape.scratch(sum(kernel.grid for kernel in kernels), dtype=np.float64)
        start = 0
        for kernel, (block, _) in zip(kernels, self.blocks, strict=True):
            self._tape.special(kernel, (block,), (parts[start : start + kernel.grid],))
            start += kernel.grid
        return parts

    def squared_differences(self, wanted: Array) -> Array:
        """Records the squared norms of the rows of X - h W, by blocks of columns, where wanted."""
        w = self.estimate.w
        pieces = [(block, columns.start, block.shape[1]) for block, columns in self.blocks]
        if self.ones:
            pieces.append((self.h, self.columns, 1))
        squares = self._tape.scratch(len(pieces), self.count, dtype=np.float64)
        for number, (block, start, width) in enumerate(pieces):
            row, column = (s // block.itemsize for s in block.strides)
            kernel = fisher_kernels.squared_differences(
                self.count, width, len(w), None if start == self.columns else row, column, self.dim
            )
            read = block, self.h, w[:, start:], wanted
            self._tape.special(kernel, read, (squares[number],))
        return squares

    def norms(self, parts: Array) -> tuple[Array, Array]:
        """Records the squared norms of X and X - H W, and whether the second is inexact."""
        estimate = self.estimate
        after, is_small = (self._tape.scratch(1, 1, dtype=np.float64) for _ in range(2))
        self._tape.special(
            fisher_kernels.norms(len(parts), self.count if self.ones else 0, estimate.rank),
            (parts, estimate.gram, estimate.ww),
            (estimate.before, after, is_small),
        )
        return after, is_small

    def start(self, parts: Array) -> None:
        """Records the start of the estimate, which sees the first rows several times."""
        tape, estimate = self._tape, self.estimate
        # Only the norm of X is wanted, but the kernel reads these too.
        tape.fill(0.0, estimate.gram)
        tape.fill(0.0, estimate.ww)
        self.norms(parts)
        tape.copy(estimate.start, estimate.w)
        tape.fill(SMALLEST, estimate.d)
        tape.fill(SMALLEST, estimate.rho)
        for _ in range(1 if self.count <= estimate.rank else 3):
            self.set_h()
            tape.product(self.h.T, self.h, estimate.gram)
            self.transposed_times(self.h, estimate.j)
            _record_updates(tape, [estimate], [])

    def record_update(self) -> None:
        """Records the update of the estimate, for minibatches that have one."""
        if self.estimate.rank == 0:
            return
        with self._tape.if_decided(self.use.moves):
            self.transposed_times(self.h, self.estimate.j)
        self._tape.begin_update(self.estimate, self.use.moves)


def _record_factor(tape: DeviceTape, sides: Sequence[Side]) -> Array:
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
    squares = [side.squares() for side in sides]
    for side, parts in zip(sides, squares, strict=True):
        side.estimate.rows = side.count
        with tape.if_decided(side.use.begins):
            side.start(parts)
    for side in sides:
        side.set_h()
    for side in sides:
        tape.product(side.h.T, side.h, side.estimate.gram)
    norms = [side.norms(parts) for side, parts in zip(sides, squares, strict=True)]
    differences = [
        side.squared_differences(is_small) for side, (_, is_small) in zip(sides, norms, strict=True)
    ]
    read = [
        array
        for side, (after, is_small), each in zip(sides, norms, differences, strict=True)
        for array in (side.estimate.before, after, is_small, each)
    ]
    kernel = fisher_kernels.factor([each.size for each in differences])
    tape.special(kernel, tuple(read), (factor,))
    return factor


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
    any_of_them = tape.host_steps.schedule.any_of(decisions)
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
        [[e.rank, e.dim, e.rows, e.forgetting(), e.natural.options.alpha, 1.0] for e in estimates]
    )
    return addresses, tape.host_steps.table(known, decisions) if decisions else known


def _precondition_gradient(
    tape: DeviceTape, given: Side, wanted: Side, factor: Array, total: AffineGradient
) -> None:
    """Records linear and bias (+)= (I - W'^T W') G (I - W^T W), from G: for many rows."""
    dy = total.dy
    w_in, w_out = given.estimate.w, wanted.estimate.w
    linear, bias = total.linear, total.bias
    gradient = linear if bias is None and total.first else _aligned(tape, len(linear), given.dim)
    given.transposed_times(dy, gradient, alpha_at=factor)
    if given.estimate.rank:
        s = _aligned(tape, len(linear), given.estimate.rank)
        tape.product(gradient, w_in.T, s)
        tape.product(s, w_in, gradient, addend=gradient, alpha=-1.0)
    if wanted.estimate.rank:
        t = _aligned(tape, wanted.estimate.rank, given.dim)
        tape.product(w_out, gradient, t)
        tape.product(w_out.T, t, gradient, addend=gradient, alpha=-1.0)
    if gradient is linear:
        return
    record = tape.copy if total.first else lambda part, out: tape.add(out, part, out)
    record(gradient[:, : given.columns], linear)
    if bias is not None:
        record(gradient[:, given.columns], bias)


def _aligned(tape: DeviceTape, rows: int, columns: int) -> Array:
    """Working memory for a matrix whose rows begin at multiples of 16 bytes."""
    return tape.scratch(rows, -(-columns // 4) * 4)[:, :columns]


def _precondition_products(
    tape: DeviceTape, given: Side, wanted: Side, factor: Array, total: AffineGradient
) -> None:
    """Records linear and bias (+)= G - W'^T (T - (T W^T) W) - S W, T = H'^T X, S = D^T H."""
    dy = total.dy
    w_in, w_out = given.estimate.w, wanted.estimate.w
    rank_in, rank_out = given.estimate.rank, wanted.estimate.rank
    linear, bias = total.linear, total.bias
    t, s = tape.scratch(rank_out, given.dim), tape.scratch(len(linear), rank_in)
    if rank_out:
        given.transposed_times(wanted.h, t, alpha_at=factor)
    if rank_in:
        tape.product(dy.T, given.h, s, alpha_at=factor)
    for block, columns in given.blocks:
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
        tape.product(left, right[:, : given.columns], linear, addend=linear, alpha=-1.0)
        if bias is not None:
            column = bias[:, None]
            tape.product(left, right[:, given.columns :], column, addend=column, alpha=-1.0)
