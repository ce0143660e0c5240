"""NVIDIA's run-time compiler from its wheel, which needs neither a driver nor a device."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from pathlib import Path

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")

OPTIONS = (b"-std=c++17", b"-ftz=true", b"--device-as-default-execution-space")
"""The options of the runtime, and CuPy's addition: float32 denormal numbers count as 0."""


class Nvrtc:
    """Compiles CUDA C++ for an architecture, and returns the compiler's errors."""

    def __init__(self, folder: Path) -> None:
        """Loads the libraries in a folder."""
        for path in folder.glob("libnvrtc-builtins.so*"):
            if "alt" not in path.name:
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(next(iter(sorted(folder.glob("libnvrtc.so*"))))))

    def errors(self, source: str, architecture: str) -> str:
        """The compiler's messages if a module does not compile, else nothing."""
        failed, log = self.compiled(source, architecture)
        return log or "it does not compile" if failed else ""

    def compiled(self, source: str, architecture: str, *options: str) -> tuple[bool, str]:
        """Compiles a module; returns whether that failed, and the compiler's messages."""
        program = ctypes.c_void_p()
        create = self._library.nvrtcCreateProgram
        assert create(ctypes.byref(program), source.encode(), b"module.cu", 0, None, None) == 0
        given = [f"--gpu-architecture={architecture}".encode(), *OPTIONS]
        given += [option.encode() for option in options]
        array = (ctypes.c_char_p * len(given))(*given)
        failed = self._library.nvrtcCompileProgram(program, len(given), array)
        size = ctypes.c_size_t()
        self._library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(max(size.value, 1))
        self._library.nvrtcGetProgramLog(program, log)
        self._library.nvrtcDestroyProgram(ctypes.byref(program))
        return bool(failed), log.value.decode()


@functools.cache
def installed() -> Nvrtc | None:
    """The compiler, if a wheel nvidia-cuda-nvrtc (or -cu12) is installed."""
    found = importlib.util.find_spec("nvidia")
    for root in found.submodule_search_locations or () if found else ():
        for path in Path(root).rglob("libnvrtc.so*"):
            return Nvrtc(path.parent)
    return None
