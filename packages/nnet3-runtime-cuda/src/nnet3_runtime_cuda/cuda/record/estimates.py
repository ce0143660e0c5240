"""The online natural gradient on a device: the same method, without a step on the host.

What the host knows is when an estimate begins and on which minibatches it moves
(`estimate_schedule`). The estimates of a backward pass are moved together at its end, since the
eigenvalue problem of one of them keeps but a small part of a device busy.
"""

from __future__ import annotations

import numpy as np

from nnet3_runtime_cuda.cuda.memory.shadow_memory import ShadowMemory
from nnet3_runtime_cuda.cuda.record.estimate_schedule import Clock
from nnet3_runtime_cuda.cuda.source import fisher
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.estimate_state import EstimateState
from nnet3_runtime_cuda.operations.natural_gradient import FisherEstimate


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
        self, memory: ShadowMemory, natural: FisherEstimate, dim: int, number: int
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
        self.start = natural.first_w(dim).astype(np.float32)

    def state(self, memory: ShadowMemory, minibatches: int) -> EstimateState:
        """The estimate after so many minibatches; memory: that of the network."""
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
        """Goes on from a state; returns how many minibatches it has seen."""
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
        return self.natural.forgetting(self.rows)


class Estimates:
    """The estimates of a network, each made when it is first asked for.

    Attributes:
        clock: Counts their minibatches.
    """

    def __init__(self, memory: ShadowMemory) -> None:
        """Takes their memory from that of the network."""
        self.clock = Clock()
        self._memory = memory
        self._known: dict[FisherEstimate, Estimate] = {}
        self._given: dict[FisherEstimate, EstimateState] = {}  # of those not asked for yet

    def of(self, natural: FisherEstimate, dim: int) -> Estimate:
        """What stands for an estimate on the host, for rows of so many columns."""
        if natural not in self._known:
            estimate = Estimate(self._memory, natural, dim, self.clock.add())
            self._known[natural] = estimate
            given = self._given.pop(natural, EstimateState.unused())
            self.clock.minibatches[estimate.number] = estimate.resume(given, self._memory)
        return self._known[natural]

    def state(self, natural: FisherEstimate) -> EstimateState:
        """An estimate as it is between two minibatches."""
        if natural not in self._known:
            return self._given.get(natural, EstimateState.unused())
        estimate = self._known[natural]
        return estimate.state(self._memory, int(self.clock.minibatches[estimate.number]))

    def resume(self, natural: FisherEstimate, state: EstimateState) -> None:
        """Lets an estimate that has not been asked for go on from a state."""
        assert natural not in self._known, "a program uses the estimate"
        self._given[natural] = state
