"""The time and the size of networks in C, beside the NumPy runtime and ONNX Runtime.

    OPENBLAS_NUM_THREADS=1 python benchmarks/c_runtime.py
    OPENBLAS_NUM_THREADS=1 python benchmarks/c_runtime.py final.mdl --subsampling 3

Each network runs as a stream of chunks of 0.2 s, one sequence on one thread; the x-vector network
computes one vector of 3 s. `nnet3.export_c` converts it, and a C compiler builds it with `-O3
-march=native`. "C" is the processor time of a chunk in milliseconds, "NumPy" and "ONNX" are that
time relative to the runtimes': medians of `--turns` turns, in each of which all run some chunks,
every other one the other way round. "again" is a second copy of the C code relative to the first,
which shows how much is noise. "error" is the largest difference from ONNX Runtime after some
chunks, relative to the largest output. Sizes: "code" is the object file's, without weights;
"arena" is the memory of an instance. "start" is the processor time of the program without input, in
milliseconds: it maps the weights into memory. Pin it to a core (`taskset -c 1`).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import nnet3
import numpy as np
import onnxruntime
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_compiler import chunks_with_state, looped_requests, stream_network
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet
from nnet3_descriptors.editing import for_inference
from nnet3_runtime_cuda import NnetComputer
from workload import Workload

CHUNK, XVECTOR = 20, 300
"""Frames of a chunk, rounded up to a multiple of the subsampling, and of an x-vector."""

CALLS = 4
"""Chunks of a turn: the weights of the others are in the cache before the first."""

CHECKED = 8
"""Chunks after which the outputs are compared."""

Array = np.ndarray
Chunk = Callable[[], Array]
FLOATS = ctypes.POINTER(ctypes.c_float)


@attrs.frozen(kw_only=True)
class Form:
    """A network and how it is run.

    Attributes:
        name: Its name in the table.
        nnet: The network.
        xvector: Whether it computes one vector; otherwise a stream.
        subsampling: Frames for each row of output.
    """

    name: str
    nnet: Nnet
    xvector: bool
    subsampling: int

    def options(self) -> dict[str, Any]:
        """The options of `export_c` and `export_onnx`."""
        if self.xvector:
            return {"frames": XVECTOR, "xvector": True}
        return {"frames": CHUNK, "stream": True, "frame_subsampling_factor": self.subsampling}

    def inputs(self, rows: dict[str, int]) -> dict[str, Array]:
        """Values for inputs of these numbers of rows."""
        rng = np.random.default_rng(1)
        return {
            name: rng.standard_normal((count, self.nnet.node_dim(name)), np.float32)
            for name, count in rows.items()
        }


@attrs.define(kw_only=True)
class CProgram:
    """A network in C, as a library and as a program.

    Attributes:
        chunk: Computes the next chunk.
        code, weights, arena: Sizes in bytes.
        start: Milliseconds of the program's start.
    """

    chunk: Chunk
    code: int
    weights: int
    arena: int
    start: float


def in_c(form: Form, folder: Path, flags: list[str]) -> tuple[CProgram, Chunk]:
    """Converts and builds a network; the second value computes chunks with a copy of the code."""
    source = nnet3.export_c(form.nnet, name="net", weights_in_source=False, **form.options())
    source.write(folder)
    compiler = os.environ.get("CC", "gcc")
    options = ["-std=c99", "-O3", "-march=native", "-fPIC", "-DNNET3_MAIN", *flags]
    for command in (
        [*options, "-c", "net.c"],
        ["-shared", "net.o", "-o", "net.so", "-lm"],
        ["net.o", "-o", "net", "-lm"],
    ):
        subprocess.run([compiler, *command], cwd=folder, check=True)
    shutil.copy(folder / "net.so", folder / "again.so")
    sizes = subprocess.run(["size", "net.o"], cwd=folder, check=True, capture_output=True).stdout
    arena = int(source.header.split("_ARENA ")[1].split()[0])
    weights = np.memmap(folder / "net.weights", np.uint8, "r")
    code = int(sizes.split(b"\n")[1].split()[0])
    found, again = (
        caller(form, folder / name, source.header, arena, weights)
        for name in ("net.so", "again.so")
    )
    program = CProgram(
        chunk=found, code=code, weights=len(weights), arena=4 * arena, start=start_of(folder)
    )
    return program, again


def caller(form: Form, path: Path, header: str, arena: int, weights: Array) -> Chunk:
    """Returns what computes the next chunk."""
    library = ctypes.CDLL(str(path))
    calls = [ports_of(line) for line in re.findall(r"^   call \d+: (.*)$", header, re.MULTILINE)]
    loop = int(re.findall(r"then again from call (\d+) on", header)[0])
    names = list(dict.fromkeys(name for inputs, _ in calls for name in inputs))
    state = np.zeros(arena + 64, np.float32)
    values = pointer(weights)  # keeps the file mapped
    library.net_init(pointer(state), values)
    step = library.net_forward if form.xvector else library.net_step
    ready = []
    for inputs, outputs in calls:
        given = form.inputs(inputs)
        found = np.zeros(outputs["output"], np.float32)
        arguments = [pointer(given[name]) if name in given else None for name in names]
        ready.append((given, found, [pointer(state), *arguments, pointer(found)]))
    number = 0

    def chunk() -> Array:
        nonlocal number
        _, found, arguments = ready[number]
        assert values
        step(*arguments)
        number = number + 1 if number + 1 < len(ready) else loop
        return found

    return chunk


def pointer(array: Array) -> Any:
    """A pointer in C, which keeps the array."""
    return array.ctypes.data_as(FLOATS)


def ports_of(line: str) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """The rows of each input, and rows and columns of each output, of a line of a header."""
    found = re.findall(r"(input|output) (\S+) (\d+) x (\d+)", line)
    return (
        {name: int(rows) for kind, name, rows, _ in found if kind == "input"},
        {name: (int(rows), int(dim)) for kind, name, rows, dim in found if kind == "output"},
    )


def start_of(folder: Path) -> float:
    """Milliseconds of processor time of the program without input, the least of some runs."""
    times = []
    for _ in range(8):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["./net", "net.weights"], cwd=folder, check=True, stdin=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1e3 * min(times)


def in_numpy(form: Form) -> Chunk:
    """Returns what computes a chunk as `Model.stream` and `Model.xvector` do."""
    nnet = for_inference(form.nnet)
    if form.xvector:
        request = ComputationRequest(
            inputs=[IoSpecification.from_range("input", 0, XVECTOR)],
            outputs=[IoSpecification.from_range("output", 0, 1)],
        )
    else:
        nnet, chunk = stream_network(nnet, CHUNK, frame_subsampling_factor=form.subsampling)
        requests = looped_requests(nnet, chunk, frame_subsampling_factor=form.subsampling)
        chunks = chunks_with_state(nnet, requests)
        nnet, request = chunks.nnet, chunks.chunks[-1].request
    computer = NnetComputer(nnet, CachingCompiler(nnet).compile(request), threads=1)
    rng = np.random.default_rng(1)
    given = {
        io.name: rng.standard_normal((len(io.indexes), nnet.node_dim(io.name)), np.float32)
        for io in request.inputs
    }
    return lambda: computer.forward(given)["output"]


def in_onnx_runtime(form: Form) -> Chunk:
    """Returns what computes the next chunk."""
    models = nnet3.export_onnx(form.nnet, sequences=1, **form.options())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    ready = []
    for model in models:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [each.name for each in session.get_outputs()]
        rows = {each.name: each.shape[1] for each in session.get_inputs()}
        own = {name: count for name, count in rows.items() if not name.startswith("state.")}
        ready.append((session, names, {name: a[None] for name, a in form.inputs(own).items()}))
    state: dict[str, Array] = {}
    number = 0

    def chunk() -> Array:
        nonlocal number, state
        session, names, given = ready[min(number, len(ready) - 1)]
        found = dict(zip(names, session.run(names, given | state), strict=True))
        output = found.pop("output")
        state = {name.replace("next_state", "state", 1): value for name, value in found.items()}
        number += 1
        return output[0]

    return chunk


def medians(chunks: list[Chunk], turns: int) -> list[float]:
    """Milliseconds of a chunk of the first, and of each of the others relative to it."""
    times = []
    for turn in range(turns):
        spent = [0.0] * len(chunks)
        order = range(len(chunks))
        for number in reversed(order) if turn % 2 else order:
            chunks[number]()  # the weights of the one before leave the cache
            start = time.process_time()
            for _ in range(CALLS):
                chunks[number]()
            spent[number] = (time.process_time() - start) / CALLS
        times.append(spent)
    found = np.array(times)
    ratios = np.median(found[:, :1] / found[:, 1:], axis=0)
    return [1e3 * float(np.median(found[:, 0])), *ratios.tolist()]


def row(form: Form, turns: int, flags: list[str]) -> str:
    """The row of a network."""
    with tempfile.TemporaryDirectory() as name:
        program, again = in_c(form, Path(name), flags)
        others = [in_numpy(form), in_onnx_runtime(form)]
        for _ in range(CHECKED):
            found, _, _, expected = (each() for each in [program.chunk, again, *others])
        error = np.abs(found - expected).max() / np.abs(expected).max()
        times = medians([program.chunk, *others, again], turns)
    cells = [
        form.name,
        f"{times[0]:.2f}",
        *(f"{each:.2f}" for each in times[1:]),
        f"{error:.0e}",
        f"{program.code / 1024:.0f}",
        f"{program.weights / 2**20:.1f}",
        f"{program.arena / 1024:.0f}",
        f"{program.start:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def forms(names: list[str], subsampling: int) -> Iterator[Form]:
    """The networks: benchmarks, or files of models."""
    for name in names:
        if name in BENCHMARKS:
            xvector = name == "xvector"
            nnet = Workload.make(name, "infer", 1).nnet
            yield Form(name=name, nnet=nnet, xvector=xvector, subsampling=1 if xvector else 3)
        else:
            nnet = nnet3.load(name).nnet
            yield Form(name=Path(name).name, nnet=nnet, xvector=False, subsampling=subsampling)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=[*BENCHMARKS], help="or files; all of them")
    parser.add_argument("--subsampling", type=int, default=3, help="of files")
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--flags", default="", help="more options for the compiler")
    arguments = parser.parse_args()
    titles = "network", "C", "NumPy", "ONNX", "again", "error", "code KiB", "weights MiB"
    print(f"| {' | '.join([*titles, 'arena KiB', 'start'])} |\n{'|---' * 10}|")
    for form in forms(arguments.networks, arguments.subsampling):
        print(row(form, arguments.turns, arguments.flags.split()), flush=True)


if __name__ == "__main__":
    main()
