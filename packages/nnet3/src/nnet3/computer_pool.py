"""Computers of a network, which wait for further runs with the same request."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from nnet3_computation import ComputationRequest
from nnet3_computation.computation import NnetComputation
from nnet3_computation.memory import peak_bytes
from nnet3_descriptors.forking import GATE
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.arrays import FloatArray
from nnet3_runtime_cuda.cpu import LIMIT
from nnet3_runtime_cuda.device import DeviceNnet

if TYPE_CHECKING:
    from nnet3_runtime_cuda.tracing import Tracer

MOST_BYTES = 1 << 29
"""The default limit on the bytes of all computers together, running and waiting.

Computers that wait for another run of their request are freed first; running ones keep their bytes.
Utterances that are computed as a whole have a request for each length, so a request seldom occurs
again. Binding a computation again takes a third of the time of running it (the benchmark's
x-vectors).
"""

LARGE = 1 << 16
"""Bytes of matrices from which on scratch memory is in proportion to them."""


class ComputerPool:
    """Runs requests for any number of threads at once, each on a separate computer.

    Attributes:
        compile_seconds: Total time so far during which at least one thread compiled a computation
            or bound it to memory.
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
            capacity: Number of requests whose computers stay, if memory allows (see `within`); the
                least recently used ones are dropped first.
            trace: Receives what each command reads and writes.
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
        # Idle computers, by request and whether they run on one thread; the latest kind is last. An
        # OrderedDict would break if Ctrl-C came while it compares requests.
        self._idle: dict[tuple[ComputationRequest, bool], list[NnetComputer]] = {}
        # Bytes of idle and of running computers.
        self._bytes = 0
        self._limits: list[int] = []
        # Bytes with scratch for each byte of matrices, of the large computer with the most so far.
        self._with_scratch = 1.0

    def run_side_by_side(self, count: int) -> bool:
        """Whether `count` tasks run side by side, each on one thread: at least one for each."""
        return count >= self._threads

    @contextlib.contextmanager
    def within(self, most_bytes: int) -> Iterator[None]:
        """Limits the memory of computers within the block; outside blocks, the limit is MOST_BYTES.

        Running computers count, and take the memory that they need; beyond the limit no idle
        computer stays. If blocks on several threads set limits, the smallest one applies.

        Args:
            most_bytes: Bytes for the matrices and scratch of all computers of the pool.
        """
        with self._lock:
            self._limits.append(most_bytes)
            self._make_room(0)
        try:
            yield
        finally:
            with self._lock:
                self._limits.remove(most_bytes)
                self._make_room(0)

    def prepare(self, request: ComputationRequest) -> None:
        """Prepares a computer for a request; it will run on all threads of the model.

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
            request: The rows to compute.
            inputs: See `NnetComputer.forward`.
            is_alone: Whether all work stays on the calling thread, beside other threads.

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
            if not idle:
                self._idle.pop(kind, None)
        with LIMIT.at_most(1 if is_alone else self._threads):
            # The layout of parameters depends on the number of threads.
            if computer is None:
                computer = self._computer(request, is_alone=is_alone)
            try:
                outputs = computer.forward(inputs)
            except BaseException:
                # An interrupted computer is not used again: its memory may hold anything.
                with self._lock:
                    self._bytes -= computer.memory_bytes
                raise
        self._keep(kind, computer)
        return outputs

    def _keep(self, kind: tuple[ComputationRequest, bool], computer: NnetComputer) -> None:
        """Keeps a computer for the next run with the same request."""
        with self._lock:
            self._idle[kind] = [*self._idle.pop(kind, ()), computer]
            while len(self._idle) > self._capacity:
                self._drop_oldest()
            # The memory of this computer is in use already.
            self._make_room(0, kept=1)

    def _make_room(self, needed: int, *, kept: int = 0) -> None:
        """Drops idle computers until `needed` bytes are free, or only `kept` computers are left."""
        most = min(self._limits, default=MOST_BYTES)
        while self._bytes + needed > most and sum(map(len, self._idle.values())) > kept:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drops the computer that has been idle for longest."""
        kind, computers = next(iter(self._idle.items()))
        if computers:  # Ctrl-C may have left none
            self._bytes -= computers.pop(0).memory_bytes
        if not computers:
            del self._idle[kind]

    def _computer(self, request: ComputationRequest, *, is_alone: bool) -> NnetComputer:
        with self._lock:
            if not self._num_compiling:
                self._compiling_since = time.perf_counter()
            self._num_compiling += 1
        try:
            return self._bound(self._compile(request), threads=1 if is_alone else None)
        finally:
            with self._lock:
                self._num_compiling -= 1
                if not self._num_compiling:
                    self.compile_seconds += time.perf_counter() - self._compiling_since

    def _bound(self, computation: NnetComputation, *, threads: int | None) -> NnetComputer:
        """Binds a computation to memory, after making room for it."""
        matrices = peak_bytes(computation)
        with self._lock:
            needed = round(matrices * self._with_scratch)  # scratch is known only when it is bound
            self._make_room(needed)
            self._bytes += needed
        taken = 0
        try:
            computer = NnetComputer(
                self._device_nnet, computation, threads=threads, trace=self._trace
            )
            taken = computer.memory_bytes
        finally:
            with self._lock:
                if matrices >= LARGE:
                    self._with_scratch = max(self._with_scratch, taken / matrices)
                self._bytes += taken - needed
                self._make_room(0)
        return computer
