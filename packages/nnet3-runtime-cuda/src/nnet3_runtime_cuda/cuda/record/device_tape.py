"""The tape of a device: records operations, and what the host does for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cpu.tape import Array, Call, Operand, Tape
from nnet3_runtime_cuda.cuda.bind.program_memory import ProgramMemory
from nnet3_runtime_cuda.cuda.record.estimate_schedule import Use
from nnet3_runtime_cuda.cuda.record.estimates import (
    Estimate,
    Estimates,
    record_precondition,
    record_updates,
)
from nnet3_runtime_cuda.cuda.record.host_values import HostValues
from nnet3_runtime_cuda.cuda.record.natural_affine import record_affine
from nnet3_runtime_cuda.cuda.record.recording_tape import RecordingTape
from nnet3_runtime_cuda.cuda.record.unbound_segments import PendingSegment
from nnet3_runtime_cuda.errors import DeviceError

if TYPE_CHECKING:
    from nnet3_runtime_cuda.cpu.natural_gradient.online_estimate import OnlineNaturalGradient
    from nnet3_runtime_cuda.kernels.gradient.affine_gradient import AffineGradient
    from nnet3_runtime_cuda.kernels.gradient.natural_affine import AffinePreconditioner


class DeviceTape(RecordingTape):
    """Records operations on arrays in shadow memory, decisions of the host, natural gradient.

    Attributes:
        host_values: What the host does before each run.
    """

    def __init__(
        self,
        memory: ProgramMemory,
        finish: Callable[[Tape], Callable[[], object]],
        estimates: Estimates,
    ) -> None:
        """Starts a tape that `finish` makes a call of; `estimates` are those of the device."""
        super().__init__(memory)
        self.host_values = HostValues(memory, estimates.clock)
        self._finish = finish
        self._run: Callable[[], object] | None = None
        self._estimates = estimates
        self._pending: list[tuple[Estimate, int]] = []

    def run(self) -> None:
        """Runs what was recorded; what it does on the device may not be done when this returns."""
        if self._run is None:
            self._run = self._finish(self)
        self._run()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded since the last `take`."""
        return not self.operations and not self.host_values.is_used

    def take(self) -> tuple[Call, ...]:
        """What was recorded since the last `take`, as one call that is to be bound."""
        self._flush_updates()
        assert not self.calls, "nothing is left to the processor: calls would be lost"
        operations, self.operations = tuple(self.operations), []
        return (PendingSegment(operations, self.host_values.take_steps(), self.device_scratch),)

    # ---- what the host does ----

    def record(
        self, call: Call, *, reads: Sequence[Operand] = (), writes: Sequence[Array] = ()
    ) -> None:
        """Refused: on a device nothing runs on the host in between.

        Raises:
            DeviceError: always.
        """
        raise DeviceError(f"{call!r} cannot run on a device")

    def host(
        self, fill: Callable[[Array], object], *shape: int, dtype: npt.DTypeLike | None = None
    ) -> Array:
        """An array that the host fills before the segment runs."""
        return self.host_values.array(fill, shape, self.dtype if dtype is None else dtype)

    def value(self, function: Callable[[], float]) -> Array:
        """(1,) float64: what the function returns before the segment runs."""
        return self.host_values.value(function)

    def note(self, function: Callable[[], object]) -> None:
        """Has the host call a function before the segment runs."""
        self.host_values.note(function)

    def random_uniform(self, rng: np.random.Generator, out: Array) -> None:
        """out = numbers in [0, 1): element i of the stream of this operation and this run.

        The generator only gives the key, once.
        """
        key = float(rng.integers(1 << 32))
        runs = iter(range(1 << 53))
        run = self.value(lambda: float(next(runs)))
        stream = len(self.operations)
        operands = (key, float(stream), self._operand(run, out.shape))
        self._map_onto("uniform", operands, out)

    # ---- natural gradient ----

    def estimate(self, natural: OnlineNaturalGradient, dim: int) -> tuple[Estimate, Use]:
        """The estimate in device memory that stands for one on the host, and this use of it."""
        estimate = self._estimates.of(natural, dim)
        if any(pending is estimate for pending, _ in self._pending):
            self._flush_updates()
        period = natural.options.update_period
        return estimate, self.host_values.schedule.use(estimate.number, period)

    def update_at_end(self, estimate: Estimate, moves: int) -> None:
        """Has an estimate updated when the segment ends, or before it is used again.

        Args:
            estimate: Which.
            moves: Number of the decision whether it is to be.
        """
        self._pending.append((estimate, moves))

    def _flush_updates(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self.begin_command()
            record_updates(self, [estimate for estimate, _ in pending], [m for _, m in pending])

    def precondition(self, natural: OnlineNaturalGradient, x: Array) -> Array:
        """Preconditions the rows of x but for a factor, which it returns: (1,)."""
        factor: Array = record_precondition(self, natural, x)[0]
        return factor

    def precondition_affine(self, sides: AffinePreconditioner, gradient: AffineGradient) -> None:
        """Adds the natural gradient of an affine map; see `AffinePreconditioner.record`."""
        record_affine(self, sides, gradient)
