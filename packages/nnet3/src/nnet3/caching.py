"""Compile, optimize and check in one call, and remember the result."""

from __future__ import annotations

import itertools
import os
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs
import numpy as np
from nnet3_computation import OptionError
from nnet3_descriptors import Nnet
from nnet3_descriptors.forking import GATE
from nnet3_descriptors.values import NotCopied

from nnet3.known_results import KnownResults

if TYPE_CHECKING:
    from nnet3_compiler import CompilerOptions
    from nnet3_computation import ComputationRequest, NnetComputation
    from nnet3_optimizer import OptimizeOptions

T = TypeVar("T")


@attrs.define(eq=False)
class Promise(Generic[T]):
    """What one thread makes, and others wait for.

    They wait for a raw lock: Ctrl-C may leave the condition of a `Future` locked.

    Attributes:
        value: What was made, or None.
        error: Why it was not made, or None; without either, the thread was interrupted.
        making: Locked until it is made.
    """

    value: T | None = None
    error: BaseException | None = None
    making: threading.Lock = attrs.field(factory=threading.Lock)

    def result(self) -> T | None:
        """Waits for the value.

        Raises:
            BaseException: the error.
        """
        with self.making:
            pass
        if self.error is not None:
            raise self.error
        return self.value


class CachingCompiler(NotCopied):
    """Turns requests into optimized, checked computations, and remembers them.

    It remembers the last ones of this process, and in files those of all processes.

    It may be used from several threads at once. If one thread compiles a request, other threads
    that want the same request wait for it; threads with different requests do not wait for each
    other.

    Attributes:
        nnet: The network.
        capacity: The number of computations to remember. With more, the cache drops the least
            recently used one.
        seconds: The time of "compilation", "optimization" and "checking" so far, of all threads.
        known: What is known of the network in the files of the cache; each computation that is made
            is kept there for later processes.
    """

    _instead = "save() writes what another one can load()"

    def __init__(
        self,
        nnet: Nnet,
        *,
        compiler_options: CompilerOptions | None = None,
        optimize_options: OptimizeOptions | None = None,
        capacity: int = 64,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Begins without computations.

        Args:
            nnet: The network.
            compiler_options: The options of the compiler; None for the default ones.
            optimize_options: The options of the optimizer; None for the default ones.
            capacity: The number of computations to remember.
            cache_dir: The folder with computations of earlier processes, "" for none; None for what
                NNET3_CACHE_DIR says, or else a folder among the caches of the user.

        Raises:
            OptionError: The capacity is not a positive integer, or the folder no path.
        """
        if not isinstance(capacity, int | np.integer) or capacity < 1:
            raise OptionError(f"capacity must be an integer of at least 1 (got {capacity!r})")
        self.nnet = nnet
        self._compiler_options, self._optimize_options = compiler_options, optimize_options
        self.capacity = capacity
        self.known = KnownResults(nnet, cache_dir)
        self.seconds = {"compilation": 0.0, "optimization": 0.0, "checking": 0.0}
        self._lock = threading.Lock()
        # The latest is last. An OrderedDict would break if Ctrl-C came while it compares requests.
        self._computations: dict[ComputationRequest, Promise[NnetComputation]] = {}

    @property
    def compiler_options(self) -> CompilerOptions:
        """The options of the compiler."""
        if self._compiler_options is None:
            with GATE.importing():
                from nnet3_compiler import CompilerOptions
            self._compiler_options = CompilerOptions()
        return self._compiler_options

    @property
    def optimize_options(self) -> OptimizeOptions:
        """The options of the optimizer."""
        if self._optimize_options is None:
            with GATE.importing():
                from nnet3_optimizer import OptimizeOptions
            self._optimize_options = OptimizeOptions()
        return self._optimize_options

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
        own: Promise[NnetComputation] = Promise()
        own.making.acquire()
        try:
            while True:
                with self._lock:
                    promise = self._computations.get(request, own)
                    if promise.value is None and not promise.making.locked():
                        promise = own
                    self._remember(request, promise)
                if promise is own:
                    break
                # If a thread is interrupted, one of the threads that wait takes over its request.
                computation = promise.result()
                if computation is not None:
                    return computation
            options = self._compiler_options, self._optimize_options
            own.value = self.known.computation(request, options, lambda: self._make(request))
            return own.value
        except Exception as error:
            own.error = error
            raise
        finally:
            own.making.release()  # at once: Ctrl-C may come again
            with self._lock:
                if own.value is None and self._computations.get(request) is own:
                    del self._computations[request]

    def _make(self, request: ComputationRequest) -> NnetComputation:
        from nnet3_compiler import compile_computation
        from nnet3_optimizer import optimize

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
        with GATE.importing():
            from nnet3_optimizer import check_computation
        options = self.optimize_options
        removed = options.optimize and options.remove_dead_commands
        check_computation(self.nnet, computation, check_unused=removed)

    def _remember(self, request: ComputationRequest, promise: Promise[NnetComputation]) -> None:
        """Puts a computation in the last place; the lock must be held."""
        self._computations.pop(request, None)
        self._computations[request] = promise
        while len(self._computations) > self.capacity:
            del self._computations[next(iter(self._computations))]

    # -- on disk -------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all finished computations to a file, which other readers never see half-written.

        Raises:
            FileError: The file could not be written.
        """
        with self._lock:
            ready = [
                (request, promise.value)
                for request, promise in self._computations.items()
                if promise.value is not None
            ]
        with GATE.importing():
            from nnet3.saved_computations import save_computations
        save_computations(path, self.nnet, (self.compiler_options, self.optimize_options), ready)

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
        with GATE.importing():
            from nnet3.saved_computations import load_computations
        options = self.compiler_options, self.optimize_options
        loaded = load_computations(path, self.nnet, options)
        for _, computation in loaded:
            self._check(computation)
        with self._lock:
            for request, computation in loaded:
                if request not in self._computations:
                    self._remember(request, Promise(computation))


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
