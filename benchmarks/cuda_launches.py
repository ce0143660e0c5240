"""The launches and bytes of the benchmark networks in the CUDA runtime, counted without a device.

    python benchmarks/cuda_launches.py --n 64
    python benchmarks/cuda_launches.py --network tdnnf
    python benchmarks/cuda_launches.py --network tdnnf --kinds     # bytes and flops of each kind

The benchmark counts the kernels and matrix products of programs for a device, with a kernel for
each operation and with fused ones. The programs are a forward and a backward pass with natural
gradient, for a minibatch that leaves its estimates alone and for one that updates them. The floor
is the time of the products at 67 TFLOP/s, and the time to move all operands at 4.8 TB/s, the peaks
of an H200 in fp32. Each kernel or product reads and writes each of its operands once. Nothing here
was measured on a device.

With --kinds the steps of a minibatch are added up by kind. Values that stay in registers do not
count as moved. The time at the peaks is, for each step, that of the slower of arithmetic and
memory, and at least the time of a small kernel in a graph. "Guarded" are steps that most
minibatches skip (self-repair, exact norms); they count as launches. "Few blocks" are the bytes of
kernels with fewer blocks than an H200 has multiprocessors.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path

import attrs
import numpy as np
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_descriptors import parse_config, set_test_mode
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.cuda.element_kernels import key_of
from nnet3_runtime_cuda.cuda.fusion import (
    Group,
    group_operations,
    later_readers,
    side_by_side,
    with_epilogues,
)
from nnet3_runtime_cuda.cuda.launches import DeviceSegment, LaunchList, launch_list
from nnet3_runtime_cuda.cuda.recorded import Operation, Product, Special
from nnet3_runtime_cuda.lowering import lower

sys.path.append(str(Path(__file__).parents[1] / "packages/nnet3-runtime-cuda/tests"))
from emulated_device import DryRun

FLOPS, BYTES = 67e12, 4.8e12
"""Of an H200: fp32 operations and bytes of memory per second."""

MULTIPROCESSORS = 132
"""Of an H200."""

SELDOM = frozenset({"squared_differences"})
"""Kernels that look by themselves whether they are wanted, which they are in few minibatches."""

SMALLEST_STEP = 2e-6
"""Seconds that a step of a graph takes at least: an assumption."""


@attrs.frozen
class Count:
    """The launches of a pass.

    Attributes:
        kernels: Launches of kernels of ours.
        products: Matrix products.
    """

    kernels: int
    products: int

    @classmethod
    def of(cls, launches: LaunchList, updates: Collection[int] = ()) -> Count:
        """The launches of a minibatch for which these decisions of the host are positive."""
        counts = [0, 0]
        for call, decision in zip(launches.calls, launches.decisions, strict=True):
            if decision < 0 or decision in updates:
                counts[isinstance(call, Product)] += 1
        return cls(*counts)

    def __str__(self) -> str:
        """Kernels and products."""
        return f"{self.kernels} + {self.products}"


def updates_of(segment: DeviceSegment) -> set[int]:
    """The decisions that are positive when estimates are updated, but not started."""
    schedule = segment.host.schedule
    return set(range(schedule.length)) - schedule.starts


def operations_of(segment: DeviceSegment) -> list[Operation]:
    """The launches of a minibatch that leaves the estimates alone."""
    return [operation for operation in segment.operations if operation.decision < 0]


@attrs.define
class Work:
    """The work of some steps.

    Attributes:
        launches: Number of the steps.
        flops: Operations of products.
        moved: Bytes that they read and write.
        starved: Bytes that kernels with few blocks move.
        seconds: At the peaks.
    """

    launches: int = 0
    flops: int = 0
    moved: int = 0
    starved: int = 0
    seconds: float = 0.0

    def add(self, flops: int, moved: int, blocks: int) -> None:
        """Adds a step."""
        self.launches += 1
        self.flops += flops
        self.moved += moved
        self.starved += moved if blocks < MULTIPROCESSORS else 0
        self.seconds += max(flops / FLOPS, moved / BYTES, SMALLEST_STEP)


def moved_by(group: Group, stores: Callable[[int], bool]) -> int:
    """Bytes that a group reads, without those that it has written itself, and writes.

    A result that it writes several times is stored once, at the end; in rows, by the last of its
    loops.
    """
    seen, stored, moved = set(), set(), 0
    for position, operation in enumerate(group.operations):
        for view in operation.reads:
            if (key_of(view), view.shape) not in seen:
                seen.add((key_of(view), view.shape))
                moved += view.distinct_bytes
        for view in operation.writes:
            seen.add((key_of(view), view.shape))
            if stores(position) and (key_of(view), view.shape) not in stored:
                stored.add((key_of(view), view.shape))
                moved += view.distinct_bytes
    return moved


def work_by_kind(segment: DeviceSegment) -> dict[str, Work]:
    """The work of a minibatch that leaves the estimates alone, by kind of step."""
    operations = with_epilogues(operations_of(segment))
    readers = later_readers(operations, segment.scratch.contains)
    work: dict[str, Work] = defaultdict(Work)
    for beside in side_by_side(group_operations(operations)):
        first = beside[0].operations[0]
        flops = 2 * first.out.size * first.a.shape[1] if isinstance(first, Product) else 0
        moved = sum(moved_by(group, group.stores(readers)) for group in beside)
        specials = [op for group in beside for op in group.operations if isinstance(op, Special)]
        blocks = sum(op.kernel.grid for op in specials) if specials else MULTIPROCESSORS
        kind = first.kernel.name if isinstance(first, Special) else beside[0].kind.name.lower()
        kind = "product" if isinstance(first, Product) else kind
        if first.guards or kind in SELDOM:
            work[f"{kind}, guarded"].add(0, 0, MULTIPROCESSORS)
        else:
            work[kind].add(flops, moved, blocks)
    return work


def floor(segment: DeviceSegment) -> tuple[float, float]:
    """Milliseconds at the peaks: of the products' arithmetic, and of all bytes moved."""
    work = work_by_kind(segment).values()
    return (
        1e3 * sum(kind.flops for kind in work) / FLOPS,
        1e3 * sum(kind.moved for kind in work) / BYTES,
    )


def segments_of(name: str, sequences: int, *, train: bool) -> tuple[list[DeviceSegment], DryRun]:
    """The segments of a program: forward, and in training backward."""
    nnet = parse_config(BENCHMARKS[name].config(), rng=np.random.default_rng(0))
    nnet = nnet if train else set_test_mode(nnet)
    request = BENCHMARKS[name].request(sequences, train=train)
    platform = DryRun()
    network = DeviceNnet(nnet, device=platform, trainable=train, natural_gradient=train)
    program = lower(network, CachingCompiler(nnet).compile(request))
    return [call for call in program.calls if isinstance(call, DeviceSegment)], platform


def rows_of(name: str, sequences: int) -> list[list[str]]:
    """A row for inference, and for each pass of training."""
    rows = []
    for train in (False, True):
        segments, platform = segments_of(name, sequences, train=train)
        names = ("forward", "backward") if train else ("inference",)
        distinct = sum(source.count("__global__") for source in platform.sources)
        for what, segment in zip(names, segments, strict=True):
            single = launch_list(segment.operations, lambda view: False, fuse=False)
            arithmetic, moving = floor(segment)
            updating = Count.of(segment.launches, updates_of(segment))
            fused = Count.of(segment.launches)
            rows.append(
                [
                    f"{name} {what}",
                    str(Count.of(single)),
                    str(fused),
                    str(updating) if updating != fused else "",
                    str(distinct),
                    f"{arithmetic:.2f}",
                    f"{moving:.2f}",
                ]
            )
    return rows


def kinds_of(name: str, sequences: int) -> list[list[str]]:
    """A row for each kind of step of each pass."""
    rows = []
    for train in (False, True):
        names = ("forward", "backward") if train else ("inference",)
        segments, _ = segments_of(name, sequences, train=train)
        for what, segment in zip(names, segments, strict=True):
            kinds = work_by_kind(segment)
            total = Work(
                *(
                    sum(getattr(kind, field) for kind in kinds.values())
                    for field in ("launches", "flops", "moved", "starved", "seconds")
                )
            )
            for kind, work in [*sorted(kinds.items()), ("all", total)]:
                rows.append(
                    [
                        f"{name} {what}",
                        kind,
                        str(work.launches),
                        f"{work.flops / 1e9:.1f}",
                        f"{work.moved / 1e6:.0f}",
                        f"{work.starved / 1e6:.0f}",
                        f"{1e3 * work.seconds:.2f}",
                    ]
                )
    return rows


KINDS_HEAD = ["pass", "kind", "launches", "GFLOP", "MB", "of few blocks, MB", "at the peaks, ms"]

HEAD = [
    "pass",
    "one kernel an operation",
    "fused",
    "fused, with update",
    "distinct kernels",
    "products, ms",
    "bytes, ms",
]


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=sorted(BENCHMARKS), action="append")
    parser.add_argument("--n", type=int, default=64, help="sequences")
    parser.add_argument("--kinds", action="store_true", help="add steps up by kind")
    arguments = parser.parse_args()
    head, rows = (KINDS_HEAD, kinds_of) if arguments.kinds else (HEAD, rows_of)
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for name in arguments.network or sorted(BENCHMARKS):
        for row in rows(name, arguments.n):
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
