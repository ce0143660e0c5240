"""What the CUDA runtime would launch and move for the benchmark networks, counted without a device.

    python benchmarks/cuda_launches.py --n 64
    python benchmarks/cuda_launches.py --network tdnnf

Counted are the programs that are lowered for a device: kernels and matrix products of a forward and
a backward pass (with natural gradient; a minibatch that leaves its estimates alone, and one that
updates them), with a kernel for each operation and with fused ones. The floor is what the products
take at 67 TFLOP/s, and what all operands take at 4.8 TB/s if each is read and written once by each
kernel or product that uses it: the peaks of an H200 in fp32. Nothing here was measured on a device.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

import attrs
import numpy as np
from networks import BENCHMARKS
from nnet3_descriptors import parse_config, set_test_mode
from nnet3_optimizer import CachingCompiler
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.cuda.dry_run import DryRun
from nnet3_runtime_cuda.cuda.fusion import group_operations
from nnet3_runtime_cuda.cuda.kernels import Plan, plan_steps
from nnet3_runtime_cuda.cuda.natural_gradient import Estimate
from nnet3_runtime_cuda.cuda.operations import Operation, Product
from nnet3_runtime_cuda.cuda.pending import PendingSegment
from nnet3_runtime_cuda.cuda.product_ends import with_epilogues
from nnet3_runtime_cuda.lowering import lower

FLOPS, BYTES = 67e12, 4.8e12
"""Of an H200: fp32 operations and bytes of memory per second."""


@attrs.frozen
class Count:
    """Steps of a pass.

    Attributes:
        kernels: Launches of kernels of ours.
        products: Matrix products.
    """

    kernels: int
    products: int

    @classmethod
    def of(cls, plan: Plan, updates: Collection[int] = ()) -> Count:
        """The steps of a minibatch for which these decisions of the host are positive."""
        counts = [0, 0]
        for step, phase in zip(plan.steps, plan.phases, strict=True):
            if phase < 0 or phase in updates:
                counts[isinstance(step, Product)] += 1
        return cls(*counts)

    def __str__(self) -> str:
        """Kernels and products."""
        return f"{self.kernels} + {self.products}"


def updates_of(segment: PendingSegment) -> set[int]:
    """The decisions that are positive when estimates are updated, but not started."""
    for phase in segment.host.phases:
        starts = getattr(phase.decides, "__func__", None) is Estimate.begins
        phase.value = not starts
    return {phase.number for phase in segment.host.phases if phase.value}


def operations_of(segment: PendingSegment) -> list[Operation]:
    """What a minibatch does that leaves the estimates alone."""
    return [operation for operation in segment.operations if operation.phase < 0]


def floor(operations: Sequence[Operation]) -> tuple[float, float]:
    """Milliseconds at the peaks: of the products' arithmetic, and of all bytes moved."""
    operations = with_epilogues(operations)
    flops, moved = 0, 0
    for operation in operations:
        if isinstance(operation, Product):
            flops += 2 * operation.out.size * operation.a.shape[1]
    for group in group_operations(operations):
        seen = set()
        for operation in group.operations:
            for view in (*operation.reads, *operation.writes):
                key = view.address, view.strides, view.shape, view in operation.writes
                if key not in seen:
                    seen.add(key)
                    moved += view.distinct_bytes
    return 1e3 * flops / FLOPS, 1e3 * moved / BYTES


def segments_of(name: str, sequences: int, *, train: bool) -> tuple[list[PendingSegment], DryRun]:
    """The segments of a program: forward, and in training backward."""
    nnet = parse_config(BENCHMARKS[name].config(), rng=np.random.default_rng(0))
    nnet = nnet if train else set_test_mode(nnet)
    request = BENCHMARKS[name].request(sequences, train=train)
    platform = DryRun()
    network = DeviceNnet(nnet, device=platform, trainable=train, natural_gradient=train)
    program = lower(network, CachingCompiler(nnet).compile(request))
    passes = [*program.forward, *([program.backward] if program.backward else [])]
    calls = [call for segment in passes for call in segment.calls]
    return [call for call in calls if isinstance(call, PendingSegment)], platform


def rows_of(name: str, sequences: int) -> list[list[str]]:
    """A row for inference, and for each pass of training."""
    rows = []
    for train in (False, True):
        segments, platform = segments_of(name, sequences, train=train)
        names = ("forward", "backward") if train else ("inference",)
        distinct = sum(source.count("__global__") for source in platform.sources)
        for what, segment in zip(names, segments, strict=True):
            assert segment.plan is not None
            single = plan_steps(segment.operations, lambda view: False, fuse=False)
            arithmetic, moving = floor(operations_of(segment))
            updating = Count.of(segment.plan, updates_of(segment))
            fused = Count.of(segment.plan)
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
    arguments = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    for name in arguments.network or sorted(BENCHMARKS):
        for row in rows_of(name, arguments.n):
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
