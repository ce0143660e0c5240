"""The resources that kernels of the benchmark networks need, compiled by NVRTC without a device.

    python benchmarks/cuda_kernels.py                       # all networks, sm_80, sm_90, sm_100
    python benchmarks/cuda_kernels.py --network tdnnf --architecture sm_90 --worst 10

The benchmark needs the wheel nvidia-cuda-nvrtc, and no driver. The modules are those that a program
loads on a device: the first run of a program waits for them, later processes find them in CuPy's
cache. Each line has the processor time to compile a module. It also has the largest numbers of
registers, of bytes spilled from registers to memory, and of bytes of shared memory among its
kernels (48 KiB of shared memory may be used without asking). Launches, and the registers and shared
memory of a block, are compared with CUDA's limits.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
from cuda_launches import segments_of
from networks import BENCHMARKS
from nnet3_runtime_cuda.cuda.element_kernels import Launch
from nnet3_runtime_cuda.cuda.segments import module_of

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import nvrtc

PROGRAMS = ((1, False), (8, False), (8, True), (64, True))
"""Minibatch sizes, and whether the program trains."""

REGISTERS_OF_BLOCK, SHARED_OF_BLOCK = 65536, 48 << 10

_KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+) bytes smem")


@attrs.frozen
class Resources:
    """The resources of a kernel.

    Attributes:
        name: Of the kernel.
        registers: Of a thread.
        spilled: Bytes of spill stores and loads of a thread.
        stack: Bytes of its stack.
        shared: Bytes of shared memory of a block.
    """

    name: str
    registers: int
    spilled: int
    stack: int
    shared: int


def resources_of(log: str) -> Iterator[Resources]:
    """The resources of each kernel, as the assembler prints them."""
    for match in _KERNEL.finditer(log):
        shared = _SHARED.search(match["rest"])
        yield Resources(
            match["name"],
            int(match["registers"]),
            int(match["stores"]) + int(match["loads"]),
            int(match["stack"]),
            int(shared[1]) if shared else 0,
        )


def refusals(launches: Sequence[tuple[str, Launch]], known: dict[str, Resources]) -> list[str]:
    """The launches that a device would refuse, and why; `DryRun` has checked their sizes."""
    found = []
    for name, launch in launches:
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        needs = known[name]
        # Registers are given out to a warp in units of 256.
        registers = -(-needs.registers * 32 // 256) * 256 * -(-threads // 32)
        if registers > REGISTERS_OF_BLOCK:
            found.append(f"{name}: {needs.registers} registers, {threads} threads")
        if needs.shared > SHARED_OF_BLOCK:
            found.append(f"{name}: {needs.shared} bytes of shared memory")
    return found


def rows_of(
    name: str, sequences: int, architectures: Sequence[str], worst: int, *, train: bool
) -> Iterator[str]:
    """A line for each architecture, and the kernels that need most."""
    compiler = nvrtc.installed()
    if compiler is None:
        raise SystemExit("expected the wheel nvidia-cuda-nvrtc, found none")
    segments, platform = segments_of(name, sequences, train=train)
    source = max(platform.sources, key=len)
    lists = [segment.launches for segment in segments]
    _, names = module_of(lists)
    launches = [
        (names[call.text], call)
        for each in lists
        for call in each.calls
        if isinstance(call, Launch)
    ]
    for architecture in architectures:
        start = time.process_time()
        failed, log = compiler.compiled(source, architecture, "--ptxas-options=-v")
        seconds = time.process_time() - start
        if failed:
            raise SystemExit(log)
        known = {kernel.name: kernel for kernel in resources_of(log)}
        assert set(names.values()) <= set(known), "the assembler tells of every kernel"
        kernels = sorted(known.values(), key=lambda k: (k.spilled, k.stack, k.registers))
        refused = refusals(launches, known)
        yield " | ".join(
            [
                f"| {name} {'train' if train else 'infer'} n={sequences}",
                architecture,
                str(len(kernels)),
                f"{len(source) / 1e3:.0f}",
                f"{seconds:.1f}",
                str(max(k.registers for k in kernels)),
                str(max(k.spilled for k in kernels)),
                str(max(k.stack for k in kernels)),
                str(max(k.shared for k in kernels)),
                f"{'; '.join(refused) or 'none'} |",
            ]
        )
        for kernel in reversed(kernels[-worst:] if worst else []):
            yield f"  {kernel}"


HEAD = [
    "program",
    "architecture",
    "kernels",
    "source, kB",
    "compiling, s",
    "registers",
    "spilled bytes",
    "stack",
    "shared bytes",
    "refused launches",
]


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=sorted(BENCHMARKS), action="append")
    parser.add_argument("--architecture", choices=nvrtc.ARCHITECTURES, action="append")
    parser.add_argument("--worst", type=int, default=0, help="kernels to name of each module")
    arguments = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    for name in arguments.network or sorted(BENCHMARKS):
        for sequences, train in PROGRAMS:
            architectures = arguments.architecture or nvrtc.ARCHITECTURES
            for row in rows_of(name, sequences, architectures, arguments.worst, train=train):
                print(row, flush=True)


if __name__ == "__main__":
    main()
