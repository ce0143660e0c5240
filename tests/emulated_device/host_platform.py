"""The processor as a platform: kernel sources built with a C++ compiler, for tests without a GPU.

A block's threads run one after another. Threads of kernels with barriers are fibres, each with its
own stack, and take turns at every barrier. Matrix products are NumPy's. A strict platform watches
every access to memory (`host_strict.h`), which takes about fifty times longer.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_runtime_cuda import DeviceError, DeviceMemoryError
from nnet3_runtime_cuda.cuda.platform.platform import (
    ALIGNMENT,
    Call,
    Gemm,
    Matrix,
    Properties,
    check_launch,
)
from nnet3_runtime_cuda.operations import Array

Stretches = tuple[tuple[int, ...], tuple[int, ...]]
"""Where stretches of memory begin, and where they end."""

FLAGS = ("-std=c++17", "-fPIC", "-w")
STRICT_FLAGS = ("-O1", "-DSTRICT", "-fsanitize=thread")
SHIM, STRICT = (Path(__file__).with_name(f"host_{name}.h") for name in ("shim", "strict"))
_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\)')
_WAITS = re.compile(r"__syncthreads\(|over_block<")
_SHARED = re.compile(r"__shared__ \w+ (?P<arrays>[^;]+);")


def compiler() -> str | None:
    """The C++ compiler that is used, or None if there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


@attrs.frozen(eq=False)
class HostKernel:
    """A kernel of a module that was built.

    Attributes:
        name: Of the kernel.
        function: Takes grid, block and an array of pointers to arguments.
        num_arguments: How many there are.
        module: Keeps the library loaded.
    """

    name: str
    function: Callable[..., None]
    num_arguments: int
    module: ctypes.CDLL


class HostPlatform:
    """Runs programs for a device on the processor; see `Platform`."""

    def __init__(self, memory_limit: int = 1 << 34, *, strict: bool = False) -> None:
        """Opens a device.

        Args:
            memory_limit: Bytes of memory that it has.
            strict: Whether kernels that race, touch memory that is not theirs, or wait at different
                barriers raise a DeviceError.
        """
        self._limit = memory_limit
        self._strict = strict
        self._stretches: Stretches = ((), ())
        self._known: dict[ctypes.CDLL, Stretches] = {}
        self._blocks: dict[int, Array] = {}
        self._modules: dict[str, Mapping[str, object]] = {}

    @property
    def properties(self) -> Properties:
        """A device without compute capability."""
        used = sum(block.nbytes for block in self._blocks.values())
        return Properties(name="host", total_bytes=self._limit, free_bytes=self._limit - used)

    # ---- memory ----

    def allocate(self, nbytes: int) -> int:
        """The address of that much memory."""
        free = self.properties.free_bytes
        if nbytes > free:
            raise DeviceMemoryError(f"expected {nbytes} bytes of memory, found {free} free")
        block = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
        # What nobody has written must not look like a number.
        block.fill(0xFF)
        address = -(-block.ctypes.data // ALIGNMENT) * ALIGNMENT
        self._blocks[address] = block
        self._note_stretches()
        return address

    def free(self, address: int) -> None:
        """Gives memory back."""
        del self._blocks[address]
        self._note_stretches()

    def _note_stretches(self) -> None:
        """Tells the watcher where memory begins and ends."""
        begins = sorted(self._blocks)
        ends = (begin + self._blocks[begin].nbytes - ALIGNMENT for begin in begins)
        self._stretches = tuple(begins), tuple(ends)

    def upload(self, address: int, array: npt.NDArray[Any]) -> None:
        """Copies a contiguous array to memory."""
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def download(self, address: int, array: npt.NDArray[Any]) -> None:
        """Copies memory to a contiguous array."""
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def clear(self, address: int, nbytes: int) -> None:
        """Sets memory to zero."""
        ctypes.memset(address, 0, nbytes)

    # ---- work ----

    def build(self, source: str, kernels: Sequence[str]) -> Mapping[str, object]:
        """Compiles a module with the C++ compiler."""
        if source not in self._modules:
            self._modules[source] = _build(source, strict=self._strict)
        built = self._modules[source]
        return {name: built[name] for name in kernels}

    def launch(
        self,
        kernel: object,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[int],
    ) -> Call:
        """Binds a kernel to addresses."""
        assert isinstance(kernel, HostKernel)
        check_launch(grid, block, arguments)
        if len(arguments) != kernel.num_arguments:
            raise DeviceError(f"expected {kernel.num_arguments} arguments, found {len(arguments)}")
        pointers = (ctypes.c_void_p * max(len(arguments), 1))(*arguments)
        sizes = (ctypes.c_uint * 6)(*grid, *block)
        if self._strict:
            return functools.partial(self._run_watched, kernel, sizes, pointers)
        return functools.partial(kernel.function, sizes, pointers)

    def _run_watched(self, kernel: HostKernel, sizes: object, pointers: object) -> None:
        """Runs a kernel; raises a DeviceError that says what it did wrong."""
        if self._known.get(kernel.module) is not self._stretches:
            self._known[kernel.module] = self._stretches
            count = len(self._blocks)
            begins, ends = ((ctypes.c_uint64 * count)(*places) for places in self._stretches)
            kernel.module.strict_memory(begins, ends, count)
        kernel.function(sizes, pointers)
        found: bytes = kernel.module.strict_message()
        if found:
            raise DeviceError(f"kernel {kernel.name}: {found.decode()}")

    def workspace(self) -> object:
        """None is needed."""
        return None

    def gemm(self, product: Gemm, workspace: object = None) -> Call:
        """Binds a product to addresses."""
        return functools.partial(_multiply, product)

    def capture(self, calls: Sequence[Call]) -> Call:
        """One call for all."""

        def replay() -> None:
            for call in calls:
                call()

        return replay

    def synchronize(self) -> None:
        """Nothing: calls are done when they return."""


def _array(matrix: Matrix, rows: int, columns: int, number: int = 0) -> Array:
    """A matrix of a product as an array."""
    if matrix.transposed:
        rows, columns = columns, rows
    size = (rows - 1) * matrix.stride + columns
    address = matrix.address + 4 * number * matrix.batch_stride
    flat = np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))
    array = np.lib.stride_tricks.as_strided(flat, (rows, columns), (4 * matrix.stride, 4))
    return array.T if matrix.transposed else array


def _multiply(g: Gemm) -> None:
    for number in range(g.batch):
        out = _array(g.out, g.rows, g.columns, number)
        a = _array(g.a, g.rows, g.inner, number)
        b = _array(g.b, g.inner, g.columns, number)
        alpha = ctypes.c_float.from_address(g.alpha_at).value if g.alpha_at else g.alpha
        result = np.float32(alpha) * (a @ b)
        if g.beta:
            addend = _array(g.addend or g.out, g.rows, g.columns, number)
            result += np.float32(g.beta) * addend
        if g.bias:
            result += _array(Matrix(address=g.bias, stride=g.columns), 1, g.columns)
        out[...] = np.maximum(result, 0) if g.relu else result


def kernel_names(source: str) -> list[str]:
    """The kernels of a source, in order."""
    return [match[1] for match in _KERNEL.finditer(source)]


def _build(source: str, *, strict: bool) -> Mapping[str, object]:
    """The kernels of a module by name; libraries are kept by the hash of what they are made of."""
    program = compiler()
    if program is None:
        raise DeviceError("expected a C++ compiler, found none")
    text = _with_entries(_SHARED.sub(_watched, source) if strict else source)
    flags = (*FLAGS, *(STRICT_FLAGS if strict else ("-O0",)))
    made_of = (SHIM.read_text(), STRICT.read_text(), text, *flags)
    folder = _kept()
    path = folder / f"{_digest(*made_of)}.so"
    if not path.exists():
        shim = _compiled_shim(program, flags)
        with tempfile.TemporaryDirectory(dir=folder) as name:
            unit, compiled, made = (Path(name) / f"kernels.{end}" for end in ("cpp", "o", "so"))
            unit.write_text(text)
            _run_compiler(program, *flags, "-include", shim, "-c", unit, "-o", compiled)
            # Linked without the flags: what the compiler's checks call is in the module itself.
            _run_compiler(program, "-shared", compiled, "-o", made)
            made.rename(path)
    module = ctypes.CDLL(str(path))
    if strict:
        module.strict_message.restype = ctypes.c_char_p
        module.strict_memory.restype = None
    kernels: dict[str, object] = {}
    for name, parameters in _KERNEL.findall(source):
        function = getattr(module, f"run_{name}")
        function.restype = None
        kernels[name] = HostKernel(name, function, len(_types(parameters)), module)
    return kernels


def _kept() -> Path:
    """The folder for compiled libraries."""
    folder = Path(tempfile.gettempdir()) / f"nnet3-host-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _digest(*made_of: str) -> str:
    """The name of the file that is made of these texts."""
    return hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:24]


def _run_compiler(program: str, *arguments: str | Path) -> None:
    """Runs the C++ compiler; raises a DeviceError with what it says if it fails."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DeviceError(f"a module does not compile:\n{done.stderr}")


@functools.cache
def _compiled_shim(program: str, flags: tuple[str, ...]) -> Path:
    """The shim with its compiled form beside it: modules take half to four fifths of the time."""
    headers = [SHIM, STRICT]
    digest = _digest(program, *flags, *(header.read_text() for header in headers))
    folder = _kept() / f"{digest}-headers"
    folder.mkdir(exist_ok=True)
    shim = folder / SHIM.name
    compiled = shim.with_name(f"{shim.name}.gch")
    if not compiled.exists():
        # Renamed when they are whole: another process may be doing the same.
        with tempfile.TemporaryDirectory(dir=folder) as name:
            for header in headers:
                shutil.copy(header, name)
            made = Path(name, SHIM.name)
            _run_compiler(program, *flags, "-x", "c++-header", made, "-o", f"{made}.gch")
            for file in (STRICT.name, SHIM.name, compiled.name):
                Path(name, file).rename(folder / file)
    return shim


def _watched(declaration: re.Match[str]) -> str:
    """A declaration of shared arrays, and the calls that have them watched."""
    names = [array.strip().partition("[")[0] for array in declaration["arrays"].split(",")]
    calls = "".join(f" strict::share((void*)&{name}, sizeof {name});" for name in names)
    return declaration[0] + calls


def _types(parameters: str) -> list[str]:
    return [p.rsplit("*", 1)[0] + "*" for p in parameters.split(",") if p.strip()]


def _with_entries(source: str) -> str:
    """The source with a function for each kernel that runs all its blocks."""
    starts = [*_KERNEL.finditer(source)]
    entries = []
    for number, match in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(source)
        waits = bool(_WAITS.search(source, match.end(), end))
        name, types = match.group(1), _types(match.group(2))
        loads = "".join(f"  {kind} a{k} = ({kind})p[{k}];\n" for k, kind in enumerate(types))
        arguments = ", ".join(f"a{k}" for k in range(len(types)))
        runner = "run_fibres" if waits else "run_threads"
        entries.append(
            f'extern "C" void run_{name}(const unsigned* sizes, void** p) {{\n{loads}'
            f"  {runner}(sizes, [=] {{ {name}({arguments}); }});\n}}\n"
        )
    return source + "\n" + "".join(entries)
