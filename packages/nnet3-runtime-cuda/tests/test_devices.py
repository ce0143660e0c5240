"""Names of devices, and errors for devices that cannot be used."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from nnet3_runtime_cuda.cuda.machine import cuda_ordinal, open_platform
from nnet3_runtime_cuda.device import check_cuda_libraries
from nnet3_runtime_cuda.errors import DeviceError
from strict_cupy import StrictCupy


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> StrictCupy:
    """A CuPy with two devices, as the result of `import cupy`."""
    module = StrictCupy(lambda source: {})
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def use_library(monkeypatch: pytest.MonkeyPatch, find: Any) -> None:
    """Makes cuda-pathfinder find libraries by `find`."""
    pathfinder: Any = ModuleType("cuda.pathfinder")
    pathfinder.load_nvidia_dynamic_lib = find
    pathfinder.DynamicLibNotFoundError = type("DynamicLibNotFoundError", (RuntimeError,), {})
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", pathfinder)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, stand_in: ctypes.CDLL) -> None:
    """Makes cuda-pathfinder find the stand-in."""

    def find(name: str) -> SimpleNamespace:
        assert name == "cublasLt"
        return SimpleNamespace(abs_path=stand_in._name)

    use_library(monkeypatch, find)


def test_devices_are_counted(cupy: StrictCupy, library: None) -> None:
    """The number selects the device, of which the first is meant without; so do names alone."""
    names = {"cpu": None, "cuda": 0, "cuda:0": 0, "cuda:12": 12}
    assert {name: cuda_ordinal(name) for name in names} == names
    assert open_platform("cuda").ordinal == 0
    assert open_platform("cuda:1", "bf16").ordinal == 1


def test_precision_that_the_device_lacks(
    cupy: StrictCupy, library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some devices split factors; the error says what this one is."""
    with pytest.raises(DeviceError, match=r"10\.0 or 10\.3; 'cuda:0' \(Stand-in\) has 9\.0"):
        open_platform("cuda", "bf16x9")
    properties = cupy.cuda.runtime.getDeviceProperties(0)

    def become(major: int, minor: int) -> None:
        found = {**properties, "major": major, "minor": minor}
        monkeypatch.setattr(cupy.cuda.runtime, "getDeviceProperties", lambda number: found)

    become(10, 3)
    assert open_platform("cuda", "bf16x9").properties.compute_capability == (10, 3)
    become(7, 5)
    with pytest.raises(DeviceError, match=r"'fp32x3' needs .* 8\.0 or more; .* has 7\.5"):
        open_platform("cuda", "fp32x3")


def test_libraries_without_a_device(
    cupy: StrictCupy, library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries can be there without a device or a driver; each is asked for."""
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", None)
    check_cuda_libraries()

    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    with pytest.raises(DeviceError, match="needs CuPy 14 or newer"):
        check_cuda_libraries()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match="needs CuPy, which is not installed"):
        check_cuda_libraries()


def test_cupy_is_imported_only_when_it_is_asked_for() -> None:
    """Importing the package, and all of its modules, imports neither CuPy nor a CUDA library."""
    program = (
        "import sys, nnet3_runtime_cuda, nnet3_runtime_cuda.cuda.machine\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('cupy', 'cuda')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
