"""CuPy itself, installed without a driver: it has all that the package calls.

The other tests use `strict_cupy`. These tests compare it, and the calls of `cupy_platform`, with
the real module: names, arguments and their types, error classes, compiler options. `nox -s cupy`
installs CuPy. On a machine with a driver they are skipped: `tests/test_gpu.py` runs there.
"""

from __future__ import annotations

import ctypes
import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nnet3_runtime_cuda.cuda.cupy_platform import OPTIONS
from nnet3_runtime_cuda.cuda.machine import open_platform
from nnet3_runtime_cuda.cuda.written_kernels import PRELUDE
from nnet3_runtime_cuda.errors import DeviceError
from strict_cupy import FakeArray, FakeDevice, FakeGraph, FakePool, FakeRuntime, FakeStream

NOT_OF_CUPY = {"add", "cuda", "new", "work", "capture", "behind", "host"}
NOT_OF_CUPY |= {"numbers", "written_by", "memory", "driver_version", "pinned"}
"""Names of the stand-ins that only tests use."""


@pytest.fixture(scope="module")
def cupy() -> Any:
    """The module, on a machine without a device."""
    module = pytest.importorskip("cupy", reason="CuPy is not installed")
    if module.cuda.runtime.driverGetVersion():
        pytest.skip("there is a driver")
    return module


def public(stand_in: Any) -> set[str]:
    """The names of a stand-in that CuPy should have."""
    names = {name for name in dir(stand_in) if not name.startswith("_")} - NOT_OF_CUPY
    special = {"__enter__", "__exit__", "__dlpack_device__"}
    return names | (special & set(vars(stand_in)))


@pytest.mark.parametrize(
    ("stand_in", "real"),
    [
        (FakeStream, "cuda.Stream"),
        (FakeGraph, "cuda.Graph"),
        (FakeDevice, "cuda.Device"),
        (FakePool, "cuda.MemoryPool"),
        (FakeArray, "ndarray"),
        (FakeRuntime, "cuda.runtime"),
    ],
)
def test_stand_in_has_nothing_of_its_own(cupy: Any, stand_in: Any, real: str) -> None:
    """CuPy has the names of the stand-in."""
    found = cupy
    for name in real.split("."):
        found = getattr(found, name)
    # The class of streams does not list attributes of instances.
    instances = {"ptr", "device_id"} if real == "cuda.Stream" else set()
    assert {name for name in public(stand_in) - instances if not hasattr(found, name)} == set()


def test_modules_have_what_is_used(cupy: Any) -> None:
    """Functions and classes are where the package looks for them, with the keywords it uses."""
    cuda = cupy.cuda
    for owner, names in (
        (cupy, ("RawModule", "asarray", "ascontiguousarray", "empty", "from_dlpack")),
        (cupy, ("get_default_memory_pool",)),
        (cuda, ("Device", "Stream", "alloc")),
        (cuda, ("get_current_stream", "get_elapsed_time", "Event", "set_allocator")),
        (cuda.MemoryPool, ("free_bytes", "get_limit", "used_bytes", "set_limit")),
        (cuda.MemoryPool, ("free_all_blocks",)),
    ):
        assert [name for name in names if not hasattr(owner, name)] == []
    for function, keyword in (
        (cupy.ascontiguousarray, "dtype"),
        (cuda.Stream.__init__, "non_blocking"),
        (cuda.Event.__init__, "disable_timing"),
        (cuda.Stream.begin_capture, "mode"),
    ):
        assert keyword in inspect.signature(function).parameters
    # The kinds of memory that pointers point to.
    runtime = cuda.runtime
    assert (runtime.memoryTypeUnregistered, runtime.memoryTypeHost) == (0, 1)
    assert runtime.PointerAttributes(0, 1, 2, 1).type == runtime.memoryTypeHost


def test_errors_are_of_the_classes_that_are_caught(cupy: Any) -> None:
    """Errors of CUDA are RuntimeErrors, and lack of memory and bad sources are not."""
    cuda = cupy.cuda
    assert issubclass(cuda.runtime.CUDARuntimeError, RuntimeError)
    assert issubclass(cuda.driver.CUDADriverError, RuntimeError)
    assert issubclass(cuda.memory.OutOfMemoryError, MemoryError)
    assert not issubclass(cuda.compiler.CompileException, RuntimeError)


def test_arguments_are_converted(cupy: Any) -> None:
    """Calls fail because there is no driver, not because of an argument's type."""
    runtime, array = cupy.cuda.runtime, np.zeros(4, dtype=np.float32)
    start, device = array.__array_interface__["data"][0], 1 << 40
    calls: list[Callable[[], object]] = [
        lambda: runtime.memcpyAsync(device, start, array.nbytes, runtime.memcpyHostToDevice, 0),
        lambda: runtime.memcpyAsync(start, device, array.nbytes, runtime.memcpyDeviceToHost, 0),
        lambda: runtime.memcpyAsync(device, device, 4, runtime.memcpyDeviceToDevice, 0),
        lambda: runtime.pointerGetAttributes(start),
        lambda: runtime.memsetAsync(device, 0, array.nbytes, 0),
        lambda: runtime.deviceSynchronize(),
        lambda: runtime.getDeviceProperties(0),
        lambda: cupy.cuda.alloc(1 << 20),
        lambda: cupy.empty((2, 3), dtype=np.float32),
        lambda: cupy.cuda.Device(0).mem_info,
        lambda: cupy.cuda.get_current_stream(),
        lambda: cupy.RawModule(code=PRELUDE, options=OPTIONS).compile(),
    ]
    for call in calls:
        with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInsufficientDriver"):
            call()


def test_contiguous_arrays_are_taken_as_they_are(cupy: Any) -> None:
    """CuPy makes no copy of a contiguous array of float32, and gives its address and bytes."""
    cuda = cupy.cuda
    pointer = cuda.MemoryPointer(cuda.UnownedMemory(1 << 40, 24, None, 0), 0)
    array = cupy.ndarray((2, 3), np.float32, memptr=pointer)
    assert cupy.ascontiguousarray(array, dtype=np.float32) is array
    assert (array.data.ptr, array.nbytes) == (1 << 40, 24)


def test_options_are_accepted(cupy: Any) -> None:
    """NVRTC accepts the options that CuPy makes of ours, with one C++ standard."""
    from cupy._core import core
    from cupy_backends.cuda.libs import nvrtc

    try:
        assembled = core.assemble_cupy_compiler_options(OPTIONS)
        nvrtc.getVersion()
    except RuntimeError as error:
        pytest.skip(f"NVRTC or the headers of CUDA are not installed: {error}")
    given = (*assembled, "-ftz=true", "-arch=sm_90", "--device-as-default-execution-space")
    program = nvrtc.createProgram(PRELUDE, "module.cu", (), ())
    nvrtc.compileProgram(program, given)
    assert nvrtc.getCUBIN(program)[:4] == b"\x7fELF"
    assert sum("std=" in option for option in given) == 1


def test_cublaslt_is_found(cupy: Any) -> None:
    """cuda-pathfinder finds the wheel's library, which has all functions that the package calls."""
    from cuda import pathfinder
    from nnet3_runtime_cuda.cuda.cublaslt import Library

    try:
        loaded = pathfinder.load_nvidia_dynamic_lib("cublasLt")
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("libcublasLt is not installed")
    assert loaded.abs_path is not None
    Library(ctypes.CDLL(loaded.abs_path))


def test_device_without_driver(cupy: Any) -> None:
    """Without a driver, the message says what is missing."""
    with pytest.raises(DeviceError, match="device 'cuda': there is no NVIDIA driver here"):
        open_platform("cuda")


def test_importing_warns_of_nothing(cupy: Any) -> None:
    """A program that turns warnings into errors can use CuPy."""
    command = [sys.executable, "-W", "error", "-c", "import cupy, cuda.pathfinder"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
