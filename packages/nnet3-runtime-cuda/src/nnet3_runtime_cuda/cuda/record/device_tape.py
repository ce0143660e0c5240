"""The tape of a device: records operations, and the work of the host for them."""

from __future__ import annotations

from collections.abc import Callable

from nnet3_runtime_cuda.cuda.memory.program_memory import ProgramMemory
from nnet3_runtime_cuda.cuda.record.estimates import Estimates
from nnet3_runtime_cuda.cuda.record.natural_affine import record_affine
from nnet3_runtime_cuda.cuda.record.preconditioning import record_precondition, record_updates
from nnet3_runtime_cuda.cuda.record.recording_tape import RecordingTape
from nnet3_runtime_cuda.cuda.record.unbound_segments import PendingSegment
from nnet3_runtime_cuda.operations import Array, Call, Tape
from nnet3_runtime_cuda.operations.gradients import (
    AffineGradient,
    AffinePreconditioner,
    FisherEstimate,
)


class DeviceTape(RecordingTape):
    """Records operations on arrays in shadow memory, and hands them over by segments."""

    def __init__(
        self,
        memory: ProgramMemory,
        finish: Callable[[Tape], Callable[[], object]],
        estimates: Estimates,
    ) -> None:
        """Starts a tape that `finish` makes a call of; `estimates` are those of the device."""
        super().__init__(memory, estimates)
        self._finish = finish
        self._run: Callable[[], object] | None = None

    def run(self) -> None:
        """Runs the recorded operations; the device may still be at work when this returns."""
        if self._run is None:
            self._run = self._finish(self)
        self._run()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded since the last `take`."""
        return not self.operations and not self.host_values.is_used

    def take(self) -> tuple[Call, ...]:
        """The operations since the last `take`, as one call that will be bound."""
        self.flush_updates()
        operations, self.operations = tuple(self.operations), []
        return (PendingSegment(operations, self.host_values.take_steps(), self.device_scratch),)

    def flush_updates(self) -> None:
        """Records the updates for the end of the segment."""
        pending, self._pending = self._pending, []
        if pending:
            self.begin_command()
            record_updates(self, [estimate for estimate, _ in pending], [m for _, m in pending])

    def precondition(self, estimate: FisherEstimate, x: Array) -> Array:
        """Preconditions the rows of x up to a factor, which it returns: (1,)."""
        factor: Array = record_precondition(self, estimate, x)[0]
        return factor

    def precondition_affine(self, sides: AffinePreconditioner, gradient: AffineGradient) -> None:
        """Adds the natural gradient of an affine map."""
        record_affine(self, sides, gradient)
