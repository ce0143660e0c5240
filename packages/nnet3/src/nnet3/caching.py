"""Compile, optimize and check in one call, and remember the result."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from concurrent.futures import CancelledError, Future
from typing import ClassVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler import CompilerOptions, compile_computation
from nnet3_computation import ComputationError, ComputationRequest, NnetComputation, OptionError
from nnet3_descriptors import Nnet
from nnet3_descriptors.forking import GATE
from nnet3_descriptors.structure import Digests, NetworkFingerprint
from nnet3_descriptors.values import Serialized
from nnet3_optimizer import OptimizeOptions, check_computation, optimize

from nnet3.errors import CacheError

_Bytes = npt.NDArray[np.uint8]


@attrs.frozen(kw_only=True, eq=False)
class CachedComputation:
    """One entry of a saved cache: both values in their serialized form, as (bytes,) uint8."""

    request: _Bytes
    computation: _Bytes


@attrs.frozen(kw_only=True, eq=False)
class SavedCache(Serialized):
    """The content of a file of `CachingCompiler.save`.

    Caches of version 1 are refused: their computations have no fingerprints.

    Attributes:
        network_nodes: The fingerprint of the network: the digest of each node.
        network_components: The digest of each component.
        compiler_options: The options that they were compiled with.
        optimize_options: The options that they were optimized with.
        entries: The computations; the last one is the one used most recently.
    """

    FORMAT: ClassVar[str] = "nnet3.computation-cache"
    VERSION: ClassVar[int] = 2

    network_nodes: Digests
    network_components: Digests
    compiler_options: CompilerOptions
    optimize_options: OptimizeOptions
    entries: tuple[CachedComputation, ...]


class CachingCompiler:
    """Turns requests into optimized, checked computations, and remembers them.

    It may be used from several threads at once. If one thread compiles a request, other threads
    that want the same request wait for it; threads with different requests do not wait for each
    other.

    Attributes:
        nnet: The network.
        compiler_options: The options of the compiler.
        optimize_options: The options of the optimizer.
        capacity: The number of computations to remember. With more, the cache drops the least
            recently used one.
        seconds: The time of "compilation", "optimization" and "checking" so far, of all threads.

    Raises:
        OptionError: The capacity is not a positive integer.
    """

    def __init__(
        self,
        nnet: Nnet,
        *,
        compiler_options: CompilerOptions | None = None,
        optimize_options: OptimizeOptions | None = None,
        capacity: int = 64,
    ) -> None:
        if not isinstance(capacity, int | np.integer) or capacity < 1:
            raise OptionError(f"capacity must be an integer of at least 1 (got {capacity!r})")
        self.nnet = nnet
        self.compiler_options = compiler_options or CompilerOptions()
        self.optimize_options = optimize_options or OptimizeOptions()
        self.capacity = capacity
        self.seconds = {"compilation": 0.0, "optimization": 0.0, "checking": 0.0}
        self._lock = threading.Lock()
        # The latest is last. An OrderedDict would break if Ctrl-C came while it compares requests.
        self._computations: dict[ComputationRequest, Future[NnetComputation]] = {}

    def __repr__(self) -> str:
        """The network, and how much is remembered."""
        return f"<CachingCompiler of {self.nnet!r}: {len(self)} of {self.capacity} computations>"

    def __len__(self) -> int:
        """The number of computations that are remembered, or being made."""
        return len(self._computations)

    def compile(self, request: ComputationRequest) -> NnetComputation:
        """Returns the computation for a request.

        Raises:
            RequestError: The request does not fit the network.
            NotComputableError: An output can't be computed from the inputs.
            UnboundedComputationError: The outputs need infinitely many rows.
            CompilationError: The recurrence of the network has no order of computation.
            CheckError: The computation failed the checks; this is a fault of this project.
            PassError: With `verify`, a pass failed; this, too, is a fault of this project.
            ForkError: The process was forked while other threads compiled, and they did not end.
        """
        with GATE.unforked():
            return self._compile(request)

    def _compile(self, request: ComputationRequest) -> NnetComputation:
        while True:
            with self._lock:
                promise = self._computations.get(request)
                if promise is None:
                    own = self._remember(request, Future())
                    break
                self._remember(request, promise)
            # If a thread is interrupted, one of the threads that wait takes over its request.
            with contextlib.suppress(CancelledError):
                return promise.result()
        try:
            computation = self._make(request)
        except BaseException as error:
            with self._lock:
                if self._computations.get(request) is own:
                    del self._computations[request]
            if isinstance(error, Exception):
                own.set_exception(error)
            else:
                own.cancel()
            raise
        own.set_result(computation)
        return computation

    def _make(self, request: ComputationRequest) -> NnetComputation:
        times = [time.perf_counter()]
        compiled = compile_computation(self.nnet, request, self.compiler_options)
        times.append(time.perf_counter())
        optimized = optimize(self.nnet, compiled, self.optimize_options)
        times.append(time.perf_counter())
        self._check(optimized)
        times.append(time.perf_counter())
        with self._lock:
            for stage, (begin, end) in zip(self.seconds, itertools.pairwise(times), strict=True):
                self.seconds[stage] += end - begin
        return optimized

    def _check(self, computation: NnetComputation) -> None:
        options = self.optimize_options
        removed = options.optimize and options.remove_dead_commands
        check_computation(self.nnet, computation, check_unused=removed)

    def _remember(
        self, request: ComputationRequest, promise: Future[NnetComputation]
    ) -> Future[NnetComputation]:
        """Puts a computation in the last place and returns it; the lock must be held."""
        self._computations.pop(request, None)
        self._computations[request] = promise
        while len(self._computations) > self.capacity:
            del self._computations[next(iter(self._computations))]
        return promise

    # -- on disk -------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all finished computations to a file, which other readers never see half-written.

        Raises:
            FileError: The file could not be written.
        """
        with self._lock:
            ready = [
                (request, promise.result())
                for request, promise in self._computations.items()
                if promise.done() and promise.exception() is None
            ]
        network = NetworkFingerprint.of(self.nnet)
        saved = SavedCache(
            network_nodes=network.nodes,
            network_components=network.components,
            compiler_options=self.compiler_options,
            optimize_options=self.optimize_options,
            entries=tuple(
                CachedComputation(
                    request=np.frombuffer(request.to_bytes(), dtype=np.uint8),
                    computation=np.frombuffer(computation.to_bytes(), dtype=np.uint8),
                )
                for request, computation in ready
            ),
        )
        saved.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Remembers the computations of a file that `save` wrote, besides those already there.

        Every computation is checked against the network before any is taken.

        Raises:
            CacheError: The file is for a network of another structure, or for other options, or
                holds a computation under a request that it was not made for; the message names
                what differs.
            SerializationError: The file is not a cache.
            CheckError: A computation in it does not fit the network.
            FileError: The file could not be read.
        """
        saved = SavedCache.load(path)
        network = NetworkFingerprint(nodes=saved.network_nodes, components=saved.network_components)
        difference = network.difference(self.nnet)
        if difference is not None:
            raise CacheError(f"{os.fspath(path)}: the cache is of another network: {difference}")
        for name in ("compiler_options", "optimize_options"):
            expected, found = getattr(self, name), getattr(saved, name)
            if expected != found:
                raise CacheError(f"{os.fspath(path)}: expected {expected}, found {found}")
        loaded: list[tuple[ComputationRequest, NnetComputation]] = []
        for entry in saved.entries:
            computation = NnetComputation.from_bytes(entry.computation.tobytes())
            request = ComputationRequest.from_bytes(entry.request.tobytes())
            try:
                computation.check_network(self.nnet)
                computation.check_request(request)
            except ComputationError as error:
                raise CacheError(f"{os.fspath(path)}: {error}") from error
            self._check(computation)
            loaded.append((request, computation))
        with self._lock:
            for request, computation in loaded:
                if request not in self._computations:
                    promise: Future[NnetComputation] = Future()
                    promise.set_result(computation)
                    self._remember(request, promise)


def compile(nnet: Nnet, request: ComputationRequest) -> NnetComputation:
    """Compiles, optimizes and checks a computation; `CachingCompiler` remembers it, too.

    It is `compile_computation` of nnet3-compiler and `optimize` of nnet3-optimizer, with their
    default options.

    Args:
        nnet: The network.
        request: The given inputs and the wanted outputs.

    Raises:
        NotComputableError, CompilationError: the outputs cannot be computed from the inputs.
    """
    return CachingCompiler(nnet).compile(request)
