"""The estimates of Fisher matrices in device memory, for the online natural gradient.

The host knows only when an estimate begins and on which minibatches it is updated
(`estimate_schedule`).
"""

from __future__ import annotations

import numpy as np

from nnet3_runtime_cuda.cuda.memory.shadow_memory import ShadowMemory
from nnet3_runtime_cuda.cuda.record.estimate_schedule import Clock
from nnet3_runtime_cuda.cuda.source import fisher
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import EstimateState, FisherEstimate, check_shape


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
        self.work = memory.reserve((fisher.work_size(rank),), "f8")
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
        """The operands of the kernels in `source.fisher`, in their order."""
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
