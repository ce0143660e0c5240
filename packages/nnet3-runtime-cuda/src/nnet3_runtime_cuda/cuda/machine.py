"""A device as the place where programs run: by name, the libraries it needs, and callers' arrays.

CuPy is imported here and nowhere else, and only when a CUDA device is asked for.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation.computation import NnetComputation

from nnet3_runtime_cuda.arrays import is_on_cuda, on_host
from nnet3_runtime_cuda.cuda.cublaslt import COMPUTE_TYPE
from nnet3_runtime_cuda.cuda.cupy_platform import CupyPlatform
from nnet3_runtime_cuda.cuda.memory import ProgramMemory, ShadowMemory
from nnet3_runtime_cuda.cuda.natural_gradient import DeviceTape, Estimates
from nnet3_runtime_cuda.cuda.platform import Platform
from nnet3_runtime_cuda.cuda.segments import DeviceSegment, bind_segments
from nnet3_runtime_cuda.errors import DeviceError, RunError
from nnet3_runtime_cuda.machine import KeptArrays, Machine, Program, Transfer, all_of
from nnet3_runtime_cuda.operations import Array, Call, Tape
from nnet3_runtime_cuda.operations.gradients import EstimateState, FisherEstimate
from nnet3_runtime_cuda.operations.scratch import Workspace


class Exchange(Transfer):
    """Takes matrices from the caller and gives matrices back, on CuPy's current stream.

    An array on the device stays there: it is copied once, to the memory that the program reads.
    PyTorch tensors and other arrays with `__dlpack__` get the stream, and finish their own work
    before the program reads them there.
    """

    def __init__(self, memory: ShadowMemory) -> None:
        """For a program whose matrices are in that memory."""
        self._memory = memory
        self._platform = memory.platform
        # A device shares arrays with CuPy; the processor in its place has none to share.
        self._cuda: Any = self._platform if hasattr(self._platform, "adopt") else None
        # The key is the identity of a shadow; a reference to the shadow keeps the identity unique.
        self._addresses: dict[int, tuple[Array, int]] = {}

    def taken(self, value: Any) -> Any:
        """A CuPy array of the same memory, if the value lies on a CUDA device; else a NumPy array.

        Raises:
            RunError: it lies on another device, or cannot be passed on (a tensor that requires
                gradients).
        """
        if self._cuda is None or isinstance(value, np.ndarray) or not is_on_cuda(value):
            return on_host(value)
        try:
            array = self._cuda.adopt(value)
        except BufferError as error:
            raise RunError(f"an array cannot be taken over: {error}") from None
        if array.device.id != self._cuda.ordinal:
            raise RunError(
                f"an array is on 'cuda:{array.device.id}', the network on "
                f"'cuda:{self._cuda.ordinal}'"
            )
        return array

    def put(self, array: Any, view: Array) -> None:
        """Copies a matrix to the memory of the program, as contiguous float32."""
        if not view.size:
            return
        if isinstance(array, np.ndarray):
            contiguous = np.ascontiguousarray(array, dtype=np.float32)
            self._platform.upload(self._address(view), contiguous)
        else:
            assert self._cuda is not None
            self._cuda.copy_from(array, self._address(view))

    def get(self, view: Array, *, on_device: bool, copies: bool = True) -> Any:
        """A copy of contiguous float32 memory of the program: NumPy, or CuPy."""
        if self._cuda is not None and on_device:
            return self._cuda.copy_of(self._address(view) if view.size else 0, view.shape)
        array: npt.NDArray[np.float32] = np.empty(view.shape, dtype=np.float32)
        if array.size:
            self._platform.download(self._address(view), array)
        return array

    def _address(self, view: Array) -> int:
        known = self._addresses.get(id(view))
        if known is None:
            known = self._addresses[id(view)] = view, self._memory.address_of(view)
        return known[1]


class DeviceMachine(Machine):
    """Runs programs on a platform.

    Attributes:
        memory: The memory of the network.
    """

    is_device: ClassVar[bool] = True

    def __init__(self, platform: Platform) -> None:
        """Uses a platform; nothing is allocated yet."""
        self.workers = None
        self.memory = ShadowMemory(platform)
        self._estimates = Estimates(self.memory)
        self._kept = KeptArrays()
        weakref.finalize(self, self.memory.close).atexit = False

    def tape(
        self,
        dtype: npt.DTypeLike = np.float32,
        *,
        is_alone: bool = False,
        workspace: Workspace | None = None,
    ) -> DeviceTape:
        """A tape that keeps operations; threads and memory of the processor do not matter.

        Raises:
            DeviceError: the dtype is not float32.
        """
        if np.dtype(dtype) != np.float32:
            raise DeviceError(f"expected values of float32 on a device, found {np.dtype(dtype)}")
        return DeviceTape(ProgramMemory(self.memory), self.finish, self._estimates)

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """The shadow of zeros."""
        return self.memory.zeros(shape, dtype)

    def bind(self, program: Program, tape: Tape, computation: NnetComputation) -> Program:
        """Compiles the kernels of all segments as one module, and binds them.

        Raises:
            DeviceMemoryError: there is not enough memory; the message names a minibatch that would
                fit.
        """
        assert isinstance(tape, DeviceTape)
        self._bind(tape, program.calls, computation)
        bound = attrs.evolve(
            program, memory_bytes=tape.memory.nbytes, transfer=Exchange(tape.memory)
        )
        weakref.finalize(bound, tape.memory.close).atexit = False
        return bound

    def finish(self, tape: Tape) -> Callable[[], object]:
        """A call that runs the recorded operations."""
        assert isinstance(tape, DeviceTape)
        calls = tape.take()
        self._bind(tape, calls)
        run = all_of(calls)
        weakref.finalize(run, tape.memory.close).atexit = False
        return run

    def _bind(
        self, tape: DeviceTape, calls: Sequence[Call], computation: NnetComputation | None = None
    ) -> None:
        tape.device_scratch.place(tape.memory)
        segments = [call for call in calls if isinstance(call, DeviceSegment)]
        bind_segments(tape.memory, segments, computation)
        # The uploads must be done before any stream runs the program.
        self.memory.platform.synchronize()

    def freeze_estimates(self, on: bool) -> None:
        """Sets whether the estimates of Fisher matrices stay fixed."""
        self._estimates.clock.is_frozen = on

    def keep_estimates(self) -> Callable[[], object]:
        """Keeps estimates and counts of the host; the call that it returns sets them back."""
        estimates = self._estimates
        return all_of([self._kept.keep(self, estimates.arrays), estimates.clock.keep()])

    def estimate_state(self, estimate: FisherEstimate) -> EstimateState:
        """Downloads an estimate, between two minibatches."""
        return self._estimates.state(estimate)

    def resume_estimate(self, estimate: FisherEstimate, state: EstimateState) -> None:
        """Sets the state from which an estimate, which no program uses yet, continues."""
        self._estimates.resume(estimate, state)

    def pull(self, arrays: Iterable[Array]) -> None:
        """Downloads the contents of arrays into their shadows."""
        self.memory.pull(arrays)

    def push(self, arrays: Iterable[Array]) -> None:
        """Uploads the contents of shadows."""
        self.memory.push(arrays)


# ---- devices by name, and their libraries ----

_NAME = re.compile(r"cuda(?::(?P<ordinal>\d+))?")

INSTALL = "pip install 'cupy-cuda12x[ctk]' (or cupy-cuda13x[ctk], as your driver supports)"


def cuda_ordinal(device: str) -> int | None:
    """The number of a CUDA device; None for the processor.

    Args:
        device: "cpu", "cuda" (the first one) or "cuda:<number>"; CUDA_VISIBLE_DEVICES decides
            which devices are counted, and in which order.

    Raises:
        DeviceError: it is none of these.
    """
    if device == "cpu":
        return None
    match = _NAME.fullmatch(device)
    if match is None:
        raise DeviceError(
            f"unknown device '{device}'; expected 'cpu', 'cuda' or 'cuda:<number>', as 'cuda:1'"
        )
    return int(match["ordinal"] or 0)


def check_precision(name: str) -> None:
    """Raises a DeviceError if there is no precision of that name."""
    if name not in [*COMPUTE_TYPE]:  # also of what has no hash
        known = ", ".join(f"'{precision}'" for precision in COMPUTE_TYPE)
        raise DeviceError(f"unknown precision '{name}'; expected one of {known}")


def open_platform(device: str, precision: str = "fp32") -> CupyPlatform:
    """Opens a CUDA device.

    Args:
        device: "cuda" or "cuda:<number>".
        precision: How factors of matrix products are rounded: "fp32" (not at all), "tf32", "bf16",
            or split: "bf16x9", "fp32x3".

    Raises:
        DeviceError: there is no such device or precision, no driver, or no CuPy; or libcublasLt
            cannot be found.
    """
    ordinal = cuda_ordinal(device)
    if ordinal is None:
        raise DeviceError(f"'{device}' is no CUDA device")
    check_precision(precision)
    cupy = _import_cupy(device)
    count = _count_devices(cupy, device)
    if ordinal >= count:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        chosen_by = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
        found = "there is only 'cuda:0'" if count == 1 else f"there are {count}, from 'cuda:0' on"
        raise DeviceError(f"there is no device '{device}': {found}{chosen_by}")
    return CupyPlatform(cupy, _cublaslt(device), ordinal, precision)


def check_cuda_libraries() -> None:
    """Raises a DeviceError if a library that drives CUDA devices is missing.

    It asks for no device: a computer without one may have the libraries.
    """
    _import_cupy("cuda")
    _cublaslt("cuda")


def _import_cupy(device: str) -> Any:
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise DeviceError(
                f"device '{device}' needs CuPy, which is not installed: {INSTALL}"
            ) from None
        raise DeviceError(f"device '{device}': CuPy cannot be imported: {error}") from error


def _count_devices(cupy: Any, device: str) -> int:
    """How many devices are visible, at least 1."""
    runtime = cupy.cuda.runtime
    try:
        count: int = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise DeviceError(f"device '{device}': {_no_device(runtime, error)}") from None
    if count == 0:
        raise DeviceError(f"device '{device}': there is no CUDA device here")
    return count


def _no_device(runtime: Any, error: Exception) -> str:
    """Why CUDA sees no device."""
    driver: int = runtime.driverGetVersion()
    if driver == 0:
        return f"there is no NVIDIA driver here ({error})"
    wanted: int = runtime.runtimeGetVersion()
    if driver // 1000 < wanted // 1000:
        return (
            f"the driver supports CUDA {_version(driver)}, but CuPy was built for CUDA "
            f"{_version(wanted)}: install a newer driver, or cupy-cuda{driver // 1000}x instead"
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f", CUDA_VISIBLE_DEVICES={visible}"
    return f"no CUDA device can be used ({error}{hidden})"


def _version(number: int) -> str:
    """12080 is 12.8."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _cublaslt(device: str) -> ctypes.CDLL:
    """libcublasLt, from NVIDIA's wheels or a CUDA installation, wherever CuPy finds its own."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ModuleNotFoundError:
        raise DeviceError(
            f"device '{device}' needs CuPy 14 or newer, which brings cuda-pathfinder: {INSTALL}"
        ) from None
    try:
        loaded = pathfinder.load_nvidia_dynamic_lib("cublasLt")
        if loaded.abs_path is None:
            raise OSError("it is loaded, but nobody knows from where")
        return ctypes.CDLL(loaded.abs_path)
    except (pathfinder.DynamicLibNotFoundError, OSError) as error:
        raise DeviceError(
            f"device '{device}': libcublasLt cannot be loaded; {INSTALL} brings it ({error})"
        ) from None
