"""Computers of a network, which wait for further runs with the same request."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import nnet3_runtime_cuda
from nnet3_computation import memory
from nnet3_descriptors.forking import GATE
from nnet3_runtime_cuda.cpu import LIMIT, Workspace

if TYPE_CHECKING:
    from nnet3_computation import ComputationRequest, NnetComputation
    from nnet3_runtime_cuda import NnetComputer
    from nnet3_runtime_cuda.arrays import FloatArray
    from nnet3_runtime_cuda.device import DeviceNnet
    from nnet3_runtime_cuda.tracing import Tracer

T = TypeVar("T")

MOST_BYTES = 1 << 29
"""The default limit on the bytes of all computers together, running and waiting.

Computers that wait for another run of their request are freed first; running ones keep their bytes.
Utterances that are computed as a whole have a request for each length, so a request seldom occurs
again. Binding a computation again takes a third of the time of running it (the benchmark's
x-vectors).
"""

MOST_SHARED = 1 << 26
"""The most bytes of matrices that lie in a workspace: the share of a minibatch of `MOST_BYTES`."""

LARGE = 1 << 16
"""Bytes of matrices from which on scratch memory is in proportion to them."""


_Kind: TypeAlias = "tuple[ComputationRequest, bool]"
"""A request, and whether its computers run on one thread."""


class ComputerPool:
    """Runs requests for any number of threads at once, each on a separate computer.

    On the processor the computers that run in turn share their memory, a `Workspace`: there are as
    many as computers have run at a time. All of them count with their whole memory.

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
        shares_memory: bool = True,
    ) -> None:
        """Begins without computers.

        Args:
            device_nnet: The network.
            compile: Makes the computation for a request.
            capacity: Number of requests whose computers stay, if memory allows (see `within`); the
                least recently used ones are dropped first.
            trace: Receives what each command reads and writes.
            shares_memory: Whether computers that run in turn share memory. A thread may then bind
                a computer although an idle one has the same request.
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
        self._idle: dict[_Kind, list[NnetComputer]] = {}
        self._shares_memory = shares_memory and not device_nnet.machine.is_device
        # The workspaces that no computer runs in; the latest is last.
        self._free: list[Workspace] = []
        # Idle and running computers, and bytes of those being bound. A computer that Ctrl-C
        # left to nobody ends.
        self._computers: weakref.WeakSet[NnetComputer] = weakref.WeakSet()
        self._bytes_to_come = 0
        self._limits: list[int] = []
        # Bytes with scratch for each byte of matrices, of the large computer with the most so far.
        self._with_scratch = 1.0
        # Of the requests that were asked for last; the latest is last.
        self._bytes_of: dict[ComputationRequest, int] = {}

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
        is_limit = False
        try:
            self._limits += [most_bytes]
            is_limit = True  # at once: Ctrl-C comes after calls
            with GATE.importing(), self._lock:
                self._make_room(0)
            yield
        finally:
            if is_limit:
                self._limits.remove(most_bytes)
            with GATE.importing(), self._lock:
                self._make_room(0)

    def bytes_of(self, request: ComputationRequest) -> int:
        """The memory for the matrices of a request.

        Raises:
            NotComputableError, CompilationError: the network gives no output for these frames.
        """
        known = self._bytes_of.get(request)
        if known is None:
            known = memory.peak_bytes(self._compile(request))
        with GATE.importing(), self._lock:
            self._bytes_of.pop(request, None)
            self._bytes_of[request] = known
            if len(self._bytes_of) > self._capacity:
                del self._bytes_of[next(iter(self._bytes_of))]
        return known

    def prepare(self, request: ComputationRequest) -> None:
        """Prepares a computer for a request; it will run on all threads of the model.

        Raises:
            ForkError: the process was forked while other threads computed, and they did not end.
        """
        with GATE.unforked():
            workspace = self._workspace()
            with LIMIT.at_most(self._threads):
                computer = self._computer(request, workspace, is_alone=False)
            self._keep((request, False), computer)

    def forward(
        self,
        request: ComputationRequest,
        inputs: Mapping[str, FloatArray],
        take: Callable[[Mapping[str, FloatArray]], T],
        *,
        is_alone: bool,
    ) -> T:
        """Computes the outputs for a request, and returns what `take` makes of them.

        Args:
            request: The rows to compute.
            inputs: See `NnetComputer.forward`.
            take: Called with the outputs, of which it copies what is to outlast the call: the next
                computer may run in their memory.
            is_alone: Whether all work stays on the calling thread, beside other threads.

        Raises:
            ForkError: the process was forked while other threads computed, and they did not end.
        """
        with GATE.unforked():
            return self._run(
                (request, is_alone), lambda computer: take(computer.forward(inputs, copies=False))
            )

    def _run(self, kind: _Kind, run: Callable[[NnetComputer], T]) -> T:
        """Runs a computer of this kind, which is an idle one or is made."""
        request, is_alone = kind
        computer = self._idle_one(kind)
        workspace = self._workspace() if computer is None else computer.workspace
        with LIMIT.at_most(1 if is_alone else self._threads):
            try:
                # The layout of parameters depends on the number of threads.
                if computer is None:
                    computer = self._computer(request, workspace, is_alone=is_alone)
                result = run(computer)
            except BaseException as error:
                with self._lock:
                    if computer is not None:
                        # It is not used again: its memory may hold anything.
                        self._computers.discard(computer)
                    if workspace is not None:
                        self._leave(workspace, is_quiet=isinstance(error, Exception))
                raise
        self._keep(kind, computer)
        return result

    def _idle_one(self, kind: _Kind) -> NnetComputer | None:
        """An idle computer in a free workspace, which no longer is; None if there is none."""
        with self._lock:
            idle = self._idle.get(kind, [])
            for computer in reversed(idle):
                if computer.workspace is None or computer.workspace in self._free:
                    break
            else:
                return None
            idle.remove(computer)
            if not idle:
                del self._idle[kind]
            if computer.workspace is not None:
                self._free.remove(computer.workspace)
            return computer

    def _leave(self, workspace: Workspace, *, is_quiet: bool) -> None:
        """Frees a workspace after an error; the lock must be held.

        Args:
            workspace: Where a computer failed.
            is_quiet: Whether nothing runs there any more. After Ctrl-C threads may still write, so
                the computers there are dropped.
        """
        if is_quiet:
            self._free.append(workspace)
            return
        for kind, idle in list(self._idle.items()):
            for computer in [each for each in idle if each.workspace is workspace]:
                idle.remove(computer)
                self._computers.discard(computer)
            if not idle:
                del self._idle[kind]

    def _workspace(self) -> Workspace | None:
        """A workspace in which no computer runs, for one that is to be bound."""
        if not self._shares_memory:
            return None
        with self._lock:
            return self._free.pop() if self._free else Workspace(MOST_SHARED)

    def _keep(self, kind: _Kind, computer: NnetComputer) -> None:
        """Keeps a computer for the next run with the same request."""
        with self._lock:
            self._idle[kind] = [*self._idle.pop(kind, ()), computer]
            if computer.workspace is not None:
                self._free.append(computer.workspace)
            while len(self._idle) > self._capacity:
                self._drop_oldest()
            # The memory of this computer is in use already.
            self._make_room(0, kept=1)

    @property
    def _bytes(self) -> int:
        """Bytes of all computers."""
        return self._bytes_to_come + sum(each.memory_bytes for each in self._computers)

    def _make_room(self, needed: int, *, kept: int = 0) -> None:
        """Drops idle computers until `needed` bytes are free, or only `kept` computers are left."""
        most = min(self._limits, default=MOST_BYTES)
        while self._bytes + needed > most and sum(map(len, self._idle.values())) > kept:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drops the computer that has been idle for longest."""
        kind, computers = next(iter(self._idle.items()))
        if computers:  # Ctrl-C may have left none
            self._computers.discard(computers.pop(0))
        if not computers:
            del self._idle[kind]

    def _computer(
        self, request: ComputationRequest, workspace: Workspace | None, *, is_alone: bool
    ) -> NnetComputer:
        with self._lock:
            if not self._num_compiling:
                self._compiling_since = time.perf_counter()
            self._num_compiling += 1
        try:
            return self._bound(self._compile(request), workspace, threads=1 if is_alone else None)
        finally:
            with self._lock:
                self._num_compiling -= 1
                if not self._num_compiling:
                    self.compile_seconds += time.perf_counter() - self._compiling_since

    def _bound(
        self, computation: NnetComputation, workspace: Workspace | None, *, threads: int | None
    ) -> NnetComputer:
        """Binds a computation to memory, after making room for it."""
        matrices = memory.peak_bytes(computation)
        needed = 0
        try:
            with self._lock:
                most = round(matrices * self._with_scratch)  # scratch is known when it is bound
                self._make_room(most)
                self._bytes_to_come += most
                needed = most  # at once: Ctrl-C comes after calls
            with self._device_nnet.reading_files():
                computer = nnet3_runtime_cuda.NnetComputer(
                    self._device_nnet,
                    computation,
                    threads=threads,
                    trace=self._trace,
                    workspace=workspace,
                )
            with self._lock:
                self._computers.add(computer)
                if matrices >= LARGE:
                    self._with_scratch = max(self._with_scratch, computer.memory_bytes / matrices)
            return computer
        finally:
            with self._lock:
                self._bytes_to_come -= needed
                self._make_room(0)
