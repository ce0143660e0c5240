"""Compilers for C programs of networks, and what runs the programs that they make."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
import package_tests  # noqa: F401  the helpers of the packages
import pytest
from c_computer import COMPILER, STRICT, WITH_CBLAS, segments_of
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet
from nnet3_runtime_c import to_c

_ZIG = (sys.executable, "-m", "ziglang", "cc") if importlib.util.find_spec("ziglang") else None
_QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
_SECONDS = 600


@attrs.frozen
class Target:
    """A compiler with a processor.

    Attributes:
        name: The name of the compiler or processor.
        compiler: How the compiler is called; None if it is not here.
        runner: What runs programs: a command before theirs; None if it is not here.
    """

    name: str
    compiler: Sequence[str] | None
    runner: Sequence[str] | None = ()

    @property
    def quick(self) -> str:
        """The option that compiles fast; Zig builds a C library for each kind of options."""
        return "-O1" if self.runner != () else "-O0"

    def __str__(self) -> str:
        """Its name."""
        return self.name

    def build(self, folder: Path, name: str, *options: str) -> Path:
        """Compiles NAME.c of a folder to the program NAME.out; skips the test if nothing can."""
        if self.compiler is None:
            pytest.skip(f"there is no compiler for {self.name} here (gcc, clang, ziglang)")
        command = [*self.compiler, *STRICT, *options, "-DNNET3_MAIN", f"{name}.c"]
        subprocess.run([*command, "-o", f"{name}.out", "-lm"], cwd=folder, check=True)
        return folder / f"{name}.out"

    def run(self, program: Path, data: bytes, *arguments: str) -> bytes:
        """What a program writes; skips the test if nothing can run it."""
        if self.runner is None:
            pytest.skip(f"compiled, but nothing here runs it: {self.name} (qemu-user, wasmtime)")
        command = [*self.runner, str(program), *arguments]
        where = {"cwd": program.parent, "timeout": _SECONDS}
        return subprocess.run(command, input=data, stdout=-1, check=True, **where).stdout

    def computer(self, folder: Path, *options: str) -> type:
        """A class of runtimes, for `judge_class`, whose programs are built in a folder."""
        target = self

        class ProgramComputer:
            def __init__(self, nnet: Nnet, computation: NnetComputation) -> None:
                to_c(nnet, computation, name="net").write(folder)
                self._program = target.build(folder, "net", *options)
                _, self._inputs, self._outputs = segments_of(nnet, computation)[0]

            def forward(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
                given = data_of([inputs[name] for name in self._inputs])
                return arrays_of(target.run(self._program, given), self._outputs)

        return ProgramComputer


def data_of(arrays: Iterable[np.ndarray]) -> bytes:
    """Arrays as a program reads them, one after the other."""
    return b"".join(np.asarray(array, np.float32).tobytes() for array in arrays)


def arrays_of(data: bytes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The arrays of these shapes that a program has written, one after the other."""
    found, sizes = np.frombuffer(data, np.float32), [*map(math.prod, shapes.values())]
    assert len(found) == sum(sizes), f"{len(found)} numbers, expected {sum(sizes)}"
    parts = np.split(found, np.cumsum(sizes)[:-1])
    return {name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)}


def _native(program: str, *options: str, name: str = "") -> Target:
    path = shutil.which(program)
    return Target(name or program, path and [path, *options])


def _cross(name: str, triple: str, *options: str, runner: Sequence[str] | None) -> Target:
    return Target(name, _ZIG and [*_ZIG, "-target", triple, "-s", *options], runner)


_WASMTIME = importlib.util.find_spec("wasmtime") and [
    sys.executable,
    str(Path(__file__).with_name("run_wasm.py")),
]
TARGETS = (
    _native("gcc"),
    _native("clang"),
    Target("zig", _ZIG),
    _cross("aarch64", "aarch64-linux-musl", runner=_QEMU and [_QEMU]),
    _cross("wasm32", "wasm32-wasi", "-msimd128", runner=_WASMTIME),
)
"""Two compilers, a third one, and two other processors that it compiles for."""

CBLAS = _native("gcc", *WITH_CBLAS, name="cblas")
"""Products by a CBLAS."""

_ALL = {each.name: each for each in (*TARGETS, CBLAS, Target("cc", COMPILER and [COMPILER]))}
CHOSEN = _ALL[os.environ.get("C_TARGET", "cc")]
"""What C_TARGET in the environment names, or else the C compiler of this machine."""
