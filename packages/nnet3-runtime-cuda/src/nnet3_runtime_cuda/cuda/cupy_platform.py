"""CUDA devices, through CuPy: memory, kernels by NVRTC, products by cuBLASLt, graphs.

All work is queued on CuPy's current stream of the calling thread, so that it stays in order with
the caller's work. Only `capture` uses other streams.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ctypes import CDLL
from functools import partial
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cuda import cublaslt, split_products
from nnet3_runtime_cuda.cuda.cublaslt import CublasLt, CublasLtError
from nnet3_runtime_cuda.cuda.platform import Call, Gemm, Properties
from nnet3_runtime_cuda.errors import DeviceError, DeviceMemoryError

HOPPER = (9, 0)

BF16X9_CAPABILITIES = (10, 0), (10, 3)
"""The compute capabilities for which cuBLAS splits factors."""

WORKSPACE_BYTES = {True: 32 << 20, False: 4 << 20}
"""The workspace of a product, from Hopper on and before, as NVIDIA recommends."""

OPTIONS = ("-std=c++17",)

Step = tuple[Call, int, Sequence[int]]
"""A call, its branch, and the numbers of the calls that it waits for."""


class CupyPlatform:
    """A CUDA device.

    Attributes:
        ordinal: Number of the device, among those that CUDA_VISIBLE_DEVICES leaves visible.
    """

    def __init__(self, cupy: Any, library: CDLL, ordinal: int = 0, precision: str = "fp32") -> None:
        """Opens a device; `devices.open_platform` finds the modules.

        Args:
            cupy: The module.
            library: libcublasLt.
            ordinal: Number of the device.
            precision: Of the factors of products.

        Raises:
            DeviceError: the device cannot be used.
        """
        self.ordinal = ordinal
        self._cupy = cupy
        self._precision = precision
        self._device = cupy.cuda.Device(ordinal)
        self._contexts: dict[str, _Current] = {}
        self._blocks: dict[int, Any] = {}
        self._constants: dict[float, int] = {}
        self._split_kernels: dict[str, Mapping[str, object]] = {}
        self._captures = _CAPTURES.setdefault(ordinal, Captures())
        with self._current("opening the device"):
            self._blas = CublasLt(library)
            found = cupy.cuda.runtime.getDeviceProperties(ordinal)
        self._name = found["name"].decode()
        self._capability = int(found["major"]), int(found["minor"])
        self._multiprocessors = int(found["multiProcessorCount"])
        self._max_workspace = WORKSPACE_BYTES[self._capability >= HOPPER]
        wanted = ""
        if precision == "bf16x9" and self._capability not in BF16X9_CAPABILITIES:
            wanted = "10.0 or 10.3"
        elif precision == "fp32x3" and self._capability < split_products.LEAST_CAPABILITY:
            wanted = "8.0 or more"
        if wanted:
            raise DeviceError(
                f"precision '{precision}' needs a device of compute capability {wanted}; "
                f"'cuda:{ordinal}' ({self._name}) has {'.'.join(map(str, self._capability))}"
            )

    def _current(self, what: str) -> _Current:
        """The device is current within; errors of CUDA become DeviceErrors."""
        if what not in self._contexts:
            cuda = self._cupy.cuda
            errors = cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError
            about = f"device 'cuda:{self.ordinal}': {what} failed"
            self._contexts[what] = _Current(self._device, errors, about)
        return self._contexts[what]

    def _stream(self) -> Any:
        return self._cupy.cuda.get_current_stream()

    @property
    def properties(self) -> Properties:
        """The properties of the device, and its free memory within CuPy's limit."""
        pool = self._cupy.get_default_memory_pool()
        with self._current("asking for the free memory"):
            free, total = self._device.mem_info
            # Memory that CuPy holds and does not use is free for this process only.
            free += pool.free_bytes()
            limit = pool.get_limit()
            if limit:
                free = min(free, max(limit - pool.used_bytes(), 0))
        return Properties(
            name=self._name,
            compute_capability=self._capability,
            multiprocessors=self._multiprocessors,
            total_bytes=total,
            free_bytes=free,
        )

    # ---- memory ----

    def allocate(self, nbytes: int) -> int:
        """See Platform."""
        with self._current("allocating memory"):
            try:
                memory = self._cupy.cuda.alloc(nbytes)
            except self._cupy.cuda.memory.OutOfMemoryError:
                free = self.properties.free_bytes
                raise DeviceMemoryError(
                    f"device 'cuda:{self.ordinal}' ({self._name}) has not the {nbytes:,} bytes of "
                    f"memory that are needed: {free:,} bytes are free"
                ) from None
        address = int(memory.ptr)
        self._blocks[address] = memory
        return address

    def free(self, address: int) -> None:
        """See Platform."""
        if sys.is_finalizing():
            return  # the driver may be gone; the memory goes with the process
        self._captures.between(partial(self._release, address))

    def _release(self, address: int) -> None:
        self._wait()
        del self._blocks[address]

    def upload(self, address: int, array: npt.NDArray[Any]) -> None:
        """See Platform."""
        runtime = self._cupy.cuda.runtime
        with self._current("copying to the device"):
            kind, stream = runtime.memcpyHostToDevice, self._stream()
            start = array.__array_interface__["data"][0]
            runtime.memcpyAsync(address, start, array.nbytes, kind, stream.ptr)
            # The call returns when the array has been read, unless its memory is pinned or managed:
            # the device reads such memory by itself, later.
            if runtime.pointerGetAttributes(start).type != runtime.memoryTypeUnregistered:
                stream.synchronize()

    def download(self, address: int, array: npt.NDArray[Any]) -> None:
        """See Platform."""
        runtime = self._cupy.cuda.runtime
        with self._current("copying from the device"):
            stream = self._stream()
            kind = runtime.memcpyDeviceToHost
            runtime.memcpyAsync(array.ctypes.data, address, array.nbytes, kind, stream.ptr)
            stream.synchronize()

    def clear(self, address: int, nbytes: int) -> None:
        """See Platform."""
        with self._current("clearing memory"):
            self._cupy.cuda.runtime.memsetAsync(address, 0, nbytes, self._stream().ptr)

    def adopt(self, value: Any) -> Any:
        """A CuPy array of the memory of any array on a CUDA device.

        Work on it may follow on the current stream.

        Raises:
            BufferError: its owner does not give it.
        """
        with self._current("taking an array over"):
            if isinstance(value, self._cupy.ndarray):
                return value
            if hasattr(value, "__dlpack__"):
                return self._cupy.from_dlpack(value)
            return self._cupy.asarray(value)

    def copy_from(self, array: Any, address: int) -> None:
        """Copies a CuPy array to memory, as contiguous float32."""
        with self._current("copying an array"):
            contiguous = self._cupy.ascontiguousarray(array, dtype=np.float32)
            self._copy(address, contiguous.data.ptr, contiguous.nbytes)

    def copy_of(self, address: int, shape: tuple[int, ...]) -> Any:
        """A copy of contiguous float32 memory as a CuPy array, in memory that CuPy allocates."""
        with self._current("copying an array"):
            array = self._cupy.empty(shape, dtype=np.float32)
            if array.nbytes:
                self._copy(array.data.ptr, address, array.nbytes)
            return array

    def _copy(self, to: int, start: int, nbytes: int) -> None:
        runtime = self._cupy.cuda.runtime
        # At once, without what CuPy's functions for copies look at first.
        runtime.memcpyAsync(to, start, nbytes, runtime.memcpyDeviceToDevice, self._stream().ptr)

    # ---- work ----

    def build(self, source: str, kernels: Sequence[str]) -> Mapping[str, object]:
        """See Platform. CuPy caches compiled kernels, also on disk."""
        with self._current("loading kernels"):
            module = self._cupy.RawModule(code=source, options=OPTIONS)
            try:
                module.compile()
            except self._cupy.cuda.compiler.CompileException as error:
                raise DeviceError(f"CUDA source does not compile: {error}") from None
            except self._current("loading kernels").errors:
                raise
            except (RuntimeError, AssertionError, OSError) as error:
                # CuPy's error for a library that it does not find.
                raise DeviceError(
                    f"device 'cuda:{self.ordinal}': kernels cannot be compiled, as NVRTC is "
                    f"missing, or not the one that CuPy needs ({type(error).__name__}: {error})"
                ) from error
            return {name: module.get_function(name) for name in kernels}

    def launch(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[int],
    ) -> Call:
        """See Platform."""
        # As 64-bit scalars they are what the kernel takes for pointers and for numbers.
        scalars = tuple(np.uint64(argument) for argument in arguments)

        def run() -> None:
            with self._current("launching a kernel"):
                kernel(grid, block, scalars)

        return run

    def workspace(self) -> ProductMemory:
        """See Platform."""
        return ProductMemory(self)

    def gemm(self, product: Gemm, workspace: object = None) -> Call:
        """See Platform."""
        shared = workspace if isinstance(workspace, ProductMemory) else self.workspace()
        sizes = product.rows, product.columns, product.inner, product.batch
        if self._precision == "fp32x3" and split_products.is_faster(*sizes):
            tiling = split_products.tiling_of(*sizes, self._multiprocessors, self._max_workspace)
            shared.reserve(split_products.workspace_bytes(product, tiling))
            return split_products.bind(
                product, tiling, self._built_once, self.launch, shared.address
            )
        with self._current("binding a matrix product"):
            try:
                return self._bound(product, shared)
            except CublasLtError:
                if not (product.bias or product.relu):
                    raise
            # cuBLASLt cannot do the bias or rectification, or has no algorithm for them.
            plain = self._bound(attrs.evolve(product, bias=0, relu=False), shared)
        kernel = self.build(cublaslt.ending_source(product), [cublaslt.ENDING])[cublaslt.ENDING]
        block = cublaslt.ENDING_THREADS, 1, 1
        arguments = product.out.address, product.bias
        ending = self.launch(kernel, cublaslt.ending_grid(product), block, arguments)

        def run() -> None:
            plain()
            ending()

        return run

    def _built_once(self, source: str, kernels: Sequence[str]) -> Mapping[str, object]:
        if source not in self._split_kernels:
            self._split_kernels[source] = self.build(source, kernels)
        return self._split_kernels[source]

    def _bound(self, product: Gemm, workspace: ProductMemory) -> Call:
        workspace_bytes, queue = self._blas.bind(
            product,
            precision=self._precision,
            max_workspace_bytes=self._max_workspace,
            beta_at=self._constant(product.beta) if product.alpha_at else 0,
        )
        workspace.reserve(workspace_bytes)

        def run() -> None:
            with self._current("running a matrix product"):
                queue(workspace.address(), self._stream().ptr)

        return run

    def _constant(self, value: float) -> int:
        """The address of a float32 with that value."""
        if value not in self._constants:
            address = self.allocate(4)
            self.upload(address, np.array([value], dtype=np.float32))
            self.synchronize()
            self._constants[value] = address
        return self._constants[value]

    def capture(
        self,
        calls: Sequence[Call],
        branches: Sequence[int] = (),
        waits: Sequence[Sequence[int]] = (),
    ) -> Call:
        """See Platform.

        The first run makes the calls one by one, so that everything that loads lazily is loaded:
        loading is not allowed while a stream is captured. The second run captures and replays.
        """
        branches, waits = branches or [0] * len(calls), waits or [()] * len(calls)
        steps = tuple(zip(calls, branches, waits, strict=True))
        has_run, graph = False, None

        def run() -> None:
            nonlocal has_run, graph
            if not has_run:
                for call in calls:
                    call()
                has_run = True
                return
            if graph is None:
                with self._captures.active(), self._current("capturing a graph"):
                    graph = captured(self._cupy.cuda, steps)
                    graph.upload(self._stream())
            with self._current("launching a graph"):
                graph.launch(self._stream())

        return run

    def synchronize(self) -> None:
        """See Platform."""
        self._captures.between(self._wait)

    def _wait(self) -> None:
        with self._current("running"):
            self._cupy.cuda.runtime.deviceSynchronize()


class _Current:
    """Makes a device the current one; a plain class, since every call goes through it."""

    def __init__(self, device: Any, errors: tuple[type[Exception], ...], about: str) -> None:
        self._device = device
        self.errors = errors
        self._about = about

    def __enter__(self) -> None:
        self._device.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._device.__exit__()
        if kind is not None and issubclass(kind, self.errors):
            raise DeviceError(f"{self._about}: {error}") from None


class ProductMemory:
    """Memory that products use in turn, all of which run on one branch of one stream."""

    def __init__(self, platform: CupyPlatform) -> None:
        """Without memory, until a product that needs some runs."""
        self._platform = platform
        self._nbytes = 0
        self._address = 0

    def reserve(self, nbytes: int) -> None:
        """Makes it large enough for a product, before any runs."""
        assert not self._address or nbytes <= self._nbytes, "products are bound before they run"
        self._nbytes = max(self._nbytes, nbytes)

    def address(self) -> int:
        """Its address; 0 if there is none."""
        if self._nbytes and not self._address:
            self._address = self._platform.allocate(self._nbytes)
            weakref.finalize(self, self._platform.free, self._address).atexit = False
        return self._address


class Captures:
    """Separates captures from waits for a whole device, because CUDA does not allow both at once.

    While a stream of a device is captured, a wait for the device is an error, and spoils the
    capture. So other threads wait for the end of the capture, and memory that the garbage collector
    frees meanwhile is freed after it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_active = False
        self._postponed: list[Callable[[], None]] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """A capture, after those of other threads."""
        with self._lock:
            self._is_active = True
            try:
                yield
            finally:
                self._is_active = False
                postponed, self._postponed = self._postponed, []
                for action in postponed:
                    action()

    def between(self, action: Callable[[], None]) -> None:
        """Runs a function that waits for the device, while nothing is captured."""
        with self._lock:
            if self._is_active:
                self._postponed.append(action)
            else:
                action()


_CAPTURES: dict[int, Captures] = {}
"""For each device, by its number, the captures of all platforms on it."""


def captured(cuda: Any, steps: Sequence[Step]) -> Any:
    """The graph of calls, each of which is made on the stream of its branch.

    All branches begin behind an event of the first one, and it ends behind an event of each.
    """
    count = 1 + max(branch for _, branch, _ in steps)
    first, *others = streams = [cuda.Stream(non_blocking=True) for _ in range(count)]
    awaited = {number for _, _, waits in steps for number in waits}
    events: dict[int, Any] = {}
    with first:
        first.begin_capture()
        try:
            begin = _event_behind(cuda, first) if others else None
            for stream in others:
                stream.wait_event(begin)
            for number, (call, branch, waits) in enumerate(steps):
                with streams[branch] as stream:
                    for other in waits:
                        stream.wait_event(events[other])
                    call()
                    if number in awaited:
                        events[number] = _event_behind(cuda, stream)
            for stream in others:
                first.wait_event(_event_behind(cuda, stream))
        except BaseException:
            # Ends the capture; the error that broke it off is raised already.
            with suppress(Exception):
                first.end_capture()
            raise
        return first.end_capture()


def _event_behind(cuda: Any, stream: Any) -> Any:
    """An event behind the work of a stream so far."""
    return stream.record(cuda.Event(disable_timing=True))
