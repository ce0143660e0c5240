"""Devices by name, and the libraries that they need.

CuPy is imported here and nowhere else, and only when a CUDA device is asked for.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from typing import Any

from nnet3_runtime_cuda.cuda.cublaslt import Precision
from nnet3_runtime_cuda.cuda.cupy_platform import CupyPlatform
from nnet3_runtime_cuda.errors import DeviceError

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


def as_precision(name: str) -> Precision:
    """A precision by its name.

    Raises:
        DeviceError: there is no such precision.
    """
    try:
        return Precision(name)
    except ValueError:
        known = ", ".join(f"'{precision.value}'" for precision in Precision)
        raise DeviceError(f"unknown precision '{name}'; expected one of {known}") from None


def open_platform(device: str, precision: str = "fp32") -> CupyPlatform:
    """Opens a CUDA device.

    Args:
        device: "cuda" or "cuda:<number>".
        precision: How factors of matrix products are rounded: "fp32" (not at all), "tf32", "bf16",
            or split: "bf16x9".

    Raises:
        DeviceError: there is no such device or precision, no driver, or no CuPy; or libcublasLt
            cannot be found.
    """
    ordinal = cuda_ordinal(device)
    if ordinal is None:
        raise DeviceError(f"'{device}' is no CUDA device")
    chosen = as_precision(precision)
    cupy = _import_cupy(device)
    count = _count_devices(cupy, device)
    if ordinal >= count:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        chosen_by = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
        found = "there is only 'cuda:0'" if count == 1 else f"there are {count}, from 'cuda:0' on"
        raise DeviceError(f"there is no device '{device}': {found}{chosen_by}")
    return CupyPlatform(cupy, _cublaslt(device), ordinal, chosen)


def check_cuda_libraries(device: str = "cuda") -> None:
    """Raises a DeviceError if a library that drives CUDA devices is missing.

    It asks for no device: a computer without one may have the libraries.
    """
    _import_cupy(device)
    _cublaslt(device)


def _import_cupy(device: str) -> Any:
    try:
        return importlib.import_module("cupy")
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise DeviceError(f"device '{device}': CuPy cannot be imported: {error}") from error
        raise DeviceError(
            f"device '{device}' needs CuPy, which is not installed: {INSTALL}"
        ) from None
    except ImportError as error:
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
