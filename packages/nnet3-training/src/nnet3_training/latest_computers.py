"""The computers of a network for the latest requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nnet3_computation import ComputationRequest, NnetComputation
from nnet3_runtime_cuda import DeviceNnet, NnetComputer

if TYPE_CHECKING:
    from nnet3_runtime_cuda import Tracer

MOST_COMPUTERS = 8
"""The number of computers that stay by default."""


class LatestComputers:
    """Computers for the latest requests; each has its own memory, so only a few stay."""

    def __init__(self, device_nnet: DeviceNnet, most: int, trace: Tracer | None = None) -> None:
        """Begins without computers.

        Args:
            device_nnet: The network.
            most: The number of computers that stay.
            trace: See `NnetComputer`.
        """
        self._device_nnet, self._most, self._trace = device_nnet, most, trace
        # The latest is last. An OrderedDict would break if Ctrl-C came while it compares requests.
        self._computers: dict[ComputationRequest, NnetComputer] = {}

    @property
    def requests(self) -> tuple[ComputationRequest, ...]:
        """The requests whose computers there are; the latest is last."""
        return tuple(self._computers)

    def of(
        self, request: ComputationRequest, compile: Callable[[ComputationRequest], NnetComputation]
    ) -> NnetComputer:
        """The computer for a request; `compile` makes the computation if there is none."""
        computer = self._computers.pop(request, None)
        if computer is None:
            computation = compile(request)
            if len(self._computers) >= self._most:
                del self._computers[next(iter(self._computers))]
            computer = NnetComputer(self._device_nnet, computation, trace=self._trace)
        self._computers[request] = computer
        return computer

    def clear(self) -> None:
        """Forgets all computers."""
        self._computers.clear()
