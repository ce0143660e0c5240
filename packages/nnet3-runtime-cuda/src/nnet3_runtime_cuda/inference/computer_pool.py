"""Computers of a network that are kept for those who come with the same request."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nnet3_compiler.computation import NnetComputation
from nnet3_descriptors.forking import GATE
from nnet3_graph import ComputationRequest

from nnet3_runtime_cuda.arrays import FloatArray
from nnet3_runtime_cuda.computer import NnetComputer
from nnet3_runtime_cuda.cpu.threads.blas_threads import LIMIT
from nnet3_runtime_cuda.device import DeviceNnet

if TYPE_CHECKING:
    from nnet3_runtime_cuda.tracing import Tracer

MOST_IDLE_BYTES = 1 << 29
"""Computers that wait for another run of their request have at most so much memory in all.

Utterances that are computed as a whole have a request for each length, and seldom one that was
there before. To bind a computation again takes a third of the time to run it (the benchmark's
x-vectors).
"""


class ComputerPool:
    """Runs requests, for any number of threads at once, each on a computer of its own.

    Attributes:
        compile_seconds: Time so far in which computations were compiled and bound to memory, by one
            thread or by several at once.
    """

    def __init__(
        self,
        device_nnet: DeviceNnet,
        compile: Callable[[ComputationRequest], NnetComputation],
        *,
        capacity: int,
        trace: Tracer | None = None,
    ) -> None:
        """Begins without computers.

        Args:
            device_nnet: The network.
            compile: Makes the computation for a request.
            capacity: The computers for so many requests are kept, if they have not more memory
                than MOST_IDLE_BYTES; those that were not used for longest go first.
            trace: Hears what each command takes.
        """
        self.compile_seconds = 0.0
        self._num_compiling = 0
        self._compiling_since = 0.0
        self._device_nnet = device_nnet
        self._compile = compile
        self._capacity, self._trace = capacity, trace
        workers = device_nnet.machine.workers
        self._threads = 1 if workers is None else workers.threads
        self._lock = threading.Lock()
        # Those that no thread is running; by request, and whether they keep to one thread.
        self._idle: OrderedDict[tuple[ComputationRequest, bool], list[NnetComputer]] = OrderedDict()
        self._idle_bytes = 0

    def prepare(self, request: ComputationRequest) -> None:
        """Has a computer ready for a request, which is to have all threads of the model.

        Raises:
            ForkError: the process was forked while other threads computed, and they did not end.
        """
        with GATE.unforked():
            with LIMIT.at_most(self._threads):
                computer = self._computer(request, is_alone=False)
            self._keep((request, False), computer)

    def forward(
        self, request: ComputationRequest, inputs: Mapping[str, FloatArray], *, is_alone: bool
    ) -> dict[str, FloatArray]:
        """The outputs for a request.

        Args:
            request: What is to be computed.
            inputs: See `NnetComputer.forward`.
            is_alone: Whether all is to be done on the thread that asks, beside others.

        Raises:
            ForkError: the process was forked while other threads computed, and they did not end.
        """
        with GATE.unforked():
            return self._forward(request, inputs, is_alone=is_alone)

    def _forward(
        self, request: ComputationRequest, inputs: Mapping[str, FloatArray], *, is_alone: bool
    ) -> dict[str, FloatArray]:
        kind = request, is_alone
        with self._lock:
            idle = self._idle.get(kind)
            computer = idle.pop() if idle else None
            if computer is not None:
                self._idle_bytes -= computer.memory_bytes
        with LIMIT.at_most(1 if is_alone else self._threads):
            # How parameters are laid out depends on the number of threads.
            if computer is None:
                computer = self._computer(request, is_alone=is_alone)
            outputs = computer.forward(inputs)
        # One that was interrupted is not used again: it may be anywhere in its program.
        self._keep(kind, computer)
        return outputs

    def _keep(self, kind: tuple[ComputationRequest, bool], computer: NnetComputer) -> None:
        """Keeps a computer for the next one who comes with the same request."""
        with self._lock:
            self._idle.setdefault(kind, []).append(computer)
            self._idle.move_to_end(kind)
            self._idle_bytes += computer.memory_bytes
            while len(self._idle) > 1 and (
                len(self._idle) > self._capacity or self._idle_bytes > MOST_IDLE_BYTES
            ):
                _, dropped = self._idle.popitem(last=False)
                self._idle_bytes -= sum(each.memory_bytes for each in dropped)

    def _computer(self, request: ComputationRequest, *, is_alone: bool) -> NnetComputer:
        with self._lock:
            if not self._num_compiling:
                self._compiling_since = time.perf_counter()
            self._num_compiling += 1
        try:
            computation = self._compile(request)
            threads = 1 if is_alone else None
            return NnetComputer(self._device_nnet, computation, threads=threads, trace=self._trace)
        finally:
            with self._lock:
                self._num_compiling -= 1
                if not self._num_compiling:
                    self.compile_seconds += time.perf_counter() - self._compiling_since
