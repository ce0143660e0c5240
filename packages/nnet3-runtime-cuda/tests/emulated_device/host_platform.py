"""The processor as a platform: kernel sources built with a C++ compiler, for tests without a GPU.

A block's threads run one after another. Threads of kernels with barriers are fibres, each with its
own stack, and take turns at every barrier. Matrix products are NumPy's, or those of split factors,
whatever their sizes. A strict platform watches every access to memory (`host_strict.h`), which
takes about fifty times longer. It refuses reads of memory that nothing has written, whatever
becomes of the value, as initcheck of compute-sanitizer does.
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
from nnet3_runtime_cuda import DeviceError
from nnet3_runtime_cuda.cuda.cupy_platform import ProductMemory
from nnet3_runtime_cuda.cuda.platform import Call, Gemm, Properties
from nnet3_runtime_cuda.cuda.recorded import C_TYPES
from nnet3_runtime_cuda.cuda.split_products import TERMS, Tiling, bind, tiling_of, workspace_bytes

from emulated_device.dry_run import check_launch
from emulated_device.host_memory import BY_HOST, HostMemory, Stretch
from emulated_device.host_products import check_and_mark, multiply
from emulated_device.orders import any_order

SIZES = {kind: np.dtype(name).itemsize for name, kind in C_TYPES.items()} | {
    "unsigned long long": 8
}
"""The bytes of an element of each type of C++ that kernels take pointers to."""

SMALL_DEVICE = 4, 1 << 20
"""Multiprocessors, and bytes of working memory, for the plans of split products."""

MOST_PARTS = 3
"""Of the terms of a split product; its sizes say how many it has."""

FLAGS = ("-std=c++17", "-fPIC", "-w")
STRICT_FLAGS = ("-O1", "-DSTRICT", "-fsanitize=thread")
SHIM, STRICT = (Path(__file__).with_name(f"host_{name}.h") for name in ("shim", "strict"))
_KERNEL = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?(\w+)\(([^)]*)\)'
)
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
        parameters: Type and name of each argument: ("float*", "x").
        module: Keeps the library loaded.
    """

    name: str
    function: Callable[..., None]
    parameters: Sequence[tuple[str, str]]
    module: ctypes.CDLL


class HostPlatform:
    """Runs programs for a device on the processor; see `Platform`."""

    def __init__(
        self, memory_limit: int = 1 << 34, *, strict: bool = False, split: bool = False
    ) -> None:
        """Opens a device.

        Args:
            memory_limit: Bytes of memory that it has.
            strict: Whether work that races, touches memory that is not its own, reads memory that
                nothing has written, or waits at different barriers raises a DeviceError.
            split: Whether products are those of split factors, as by `precision="fp32x3"`.
        """
        self._limit = memory_limit
        self._strict = strict
        self._split = split
        self._memory = HostMemory(memory_limit)
        self._known: dict[ctypes.CDLL, tuple[Stretch, ...]] = {}
        self._modules: dict[str, Mapping[str, object]] = {}
        self._rng = np.random.default_rng(0)

    @property
    def properties(self) -> Properties:
        """A device without compute capability."""
        free = self._memory.free_bytes
        return Properties(name="host", total_bytes=self._limit, free_bytes=free)

    # ---- memory ----

    def allocate(self, nbytes: int) -> int:
        """The address of that much memory."""
        return self._memory.allocate(nbytes)

    def free(self, address: int) -> None:
        """Gives memory back."""
        self._memory.free(address)

    def upload(self, address: int, array: npt.NDArray[Any]) -> None:
        """Copies a contiguous array to memory."""
        self._memory.written(address, (array.nbytes,), (1,))[...] |= BY_HOST
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def download(self, address: int, array: npt.NDArray[Any]) -> None:
        """Copies memory to a contiguous array."""
        written = self._memory.written(address, (array.nbytes,), (1,))
        if self._strict and not written.all():
            raise DeviceError(
                f"a copy to the host reads what nothing has written: byte {written.argmin()} of "
                f"{array.nbytes}"
            )
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def clear(self, address: int, nbytes: int) -> None:
        """Sets memory to zero."""
        self._memory.written(address, (nbytes,), (1,))[...] |= BY_HOST
        ctypes.memset(address, 0, nbytes)

    def forget(self) -> None:
        """Counts memory as unwritten that the host never set: no run may need what another left."""
        self._memory.forget()

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
        if len(arguments) != len(kernel.parameters):
            raise DeviceError(
                f"expected {len(kernel.parameters)} arguments, found {len(arguments)}"
            )
        pointers = (ctypes.c_void_p * max(len(arguments), 1))(*arguments)
        sizes = (ctypes.c_uint * 6)(*grid, *block)
        if self._strict:
            return functools.partial(self._run_watched, kernel, sizes, pointers, tuple(arguments))
        return functools.partial(kernel.function, sizes, pointers)

    def _run_watched(
        self, kernel: HostKernel, sizes: object, pointers: object, arguments: Sequence[int]
    ) -> None:
        """Runs a kernel; raises a DeviceError that says what it did wrong."""
        module, stretches = kernel.module, self._memory.stretches
        if self._known.get(module) is not stretches:
            self._known[module] = stretches
            count = len(stretches)
            module.strict_memory(
                (ctypes.c_uint64 * count)(*(each.address for each in stretches)),
                (ctypes.c_uint64 * count)(*(each.end for each in stretches)),
                (ctypes.c_uint64 * count)(*(each.written.ctypes.data for each in stretches)),
                count,
            )
        kernel.function(sizes, pointers)
        found: bytes = module.strict_message()
        if found:
            place = self._place_of(module.strict_place(), kernel, arguments)
            raise DeviceError(f"kernel {kernel.name}: {found.decode()}{place}")

    def _place_of(self, address: int, kernel: HostKernel, arguments: Sequence[int]) -> str:
        """The argument that an address belongs to, for messages: the nearest one before it."""
        stretch = self._memory.at(address)
        if stretch is None:
            return ""
        inside = [
            (argument, number)
            for number, argument in enumerate(arguments)
            if stretch.address <= argument <= address
        ]
        if not inside:
            return f"; byte {address - stretch.address} of {stretch.nbytes}, no argument's"
        argument, number = max(inside)
        kind, name = kernel.parameters[number]
        element = (address - argument) // SIZES[kind.removesuffix("*").strip()]
        return f"; element {element} of argument {number} ({kind} {name})"

    def workspace(self) -> ProductMemory:
        """See Platform."""
        return ProductMemory(self)

    def gemm(self, product: Gemm, workspace: object = None) -> Call:
        """Binds a product to addresses."""
        if self._split:
            shared = workspace if isinstance(workspace, ProductMemory) else self.workspace()
            wanted = 1 + (product.rows + product.columns + product.inner) % MOST_PARTS
            plan = tiling_in_parts(product, wanted)
            shared.reserve(workspace_bytes(product, plan))
            return bind(product, plan, self.build, self.launch, shared.address)
        if not self._strict:
            return functools.partial(multiply, product)

        def run() -> None:
            check_and_mark(product, self._memory)
            multiply(product)

        return run

    def capture(
        self,
        calls: Sequence[Call],
        branches: Sequence[int] = (),
        waits: Sequence[Sequence[int]] = (),
    ) -> Call:
        """One call for all, each time in another order that the branches and waits allow."""
        branches, waits = branches or [0] * len(calls), waits or [()] * len(calls)
        last: dict[int, int] = {}
        before = []
        for number, (branch, others) in enumerate(zip(branches, waits, strict=True)):
            before.append([*others, *([last[branch]] if branch in last else [])])
            last[branch] = number

        def replay() -> None:
            for number in any_order(before, self._rng):
                calls[number]()

        return replay

    def synchronize(self) -> None:
        """Nothing: calls are done when they return."""


def tiling_in_parts(product: Gemm, wanted: int) -> Tiling:
    """A plan with so many parts, if there are enough terms; small products would have one."""
    sizes = product.rows, product.columns, product.inner, product.batch
    terms = -(-product.inner // (wanted * TERMS)) * TERMS
    parts = -(-product.inner // terms)
    return attrs.evolve(tiling_of(*sizes, *SMALL_DEVICE), parts=parts, terms=terms)


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
        module.strict_place.restype = ctypes.c_uint64
    kernels: dict[str, object] = {}
    for name, parameters in _KERNEL.findall(source):
        function = getattr(module, f"run_{name}")
        function.restype = None
        kernels[name] = HostKernel(name, function, _parameters(parameters), module)
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


def _parameters(text: str) -> list[tuple[str, str]]:
    """Type and name of each parameter of a kernel: of a pointer, or of a number of 64 bits."""
    named = [each.strip() for each in text.split(",") if each.strip()]
    split = [each.rpartition("*" if "*" in each else " ") for each in named]
    return [((kind + end).strip(), name.strip()) for kind, end, name in split]


def _with_entries(source: str) -> str:
    """The source with a function for each kernel that runs all its blocks."""
    starts = [*_KERNEL.finditer(source)]
    entries = []
    for number, match in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(source)
        waits = bool(_WAITS.search(source, match.end(), end))
        name, types = match.group(1), [kind for kind, _ in _parameters(match.group(2))]
        loads = "".join(f"  {kind} a{k} = ({kind})p[{k}];\n" for k, kind in enumerate(types))
        arguments = ", ".join(f"a{k}" for k in range(len(types)))
        runner = "run_fibres" if waits else "run_threads"
        entries.append(
            f'extern "C" void run_{name}(const unsigned* sizes, void** p) {{\n{loads}'
            f"  {runner}(sizes, [=] {{ {name}({arguments}); }});\n}}\n"
        )
    return source + "\n" + "".join(entries)
