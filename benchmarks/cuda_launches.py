"""A model of the time of the CUDA runtime on an H200: launches, arithmetic and bytes, counted.

    python benchmarks/cuda_launches.py                                      # beside measurements
    python benchmarks/cuda_launches.py --network tdnnf --n 64 --products    # products by shape
    python benchmarks/cuda_launches.py --network tdnnf --n 64 --kinds       # steps by kind
    python benchmarks/cuda_launches.py --n 64 --launches                    # what fusion saves

The programs of the benchmark networks are lowered for a device that does not exist. Each launch of
a kernel, and each matrix product, is a step; it reads and writes each of its operands once, without
the values that stay in registers. Training is a forward and a backward pass, with natural gradient
or with the plain gradient, without the step of the parameters. Updates of the estimates count by a
quarter, since they move in one of four minibatches; their start does not count.

The floor is, for each step, the longer of its products at 67 TFLOP/s and its bytes at 4.8 TB/s, the
peaks of an H200 in fp32. The model takes the rates of 2026-11-27 (docs/cuda-measurements.md): 51
TFLOP/s, 4.27 TB/s, and at least 3 microseconds for a product and 2 for a kernel. A product has 51
TFLOP/s only if its tiles fill all multiprocessors; see `product_seconds`. The problems of
eigenvalues take 6.8 ms, as they did on that day. With `precision="fp32x3"` the products that are
split take the time of their plan (`split_products.py` of the runtime, an assumption).

"Guarded" steps are those that most minibatches skip (self-repair, exact norms): they take the least
time. "Few blocks" are the bytes of kernels with fewer blocks than an H200 has multiprocessors.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_descriptors import parse_config, set_test_mode
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.cuda import split_products
from nnet3_runtime_cuda.cuda.element_kernels import key_of
from nnet3_runtime_cuda.cuda.fusion import (
    Group,
    group_operations,
    later_readers,
    side_by_side,
    with_epilogues,
)
from nnet3_runtime_cuda.cuda.recorded import Product, Special, View
from nnet3_runtime_cuda.cuda.segments import DeviceSegment, LaunchList, launch_list
from nnet3_runtime_cuda.lowering import lower

sys.path.append(str(Path(__file__).parents[1] / "packages/nnet3-runtime-cuda/tests"))
from emulated_device import DryRun

PEAK_FLOPS, PEAK_BYTES = 67e12, 4.8e12
"""Of an H200, by its data sheet: fp32 operations and bytes of memory per second."""

FLOPS, BYTES = 51e12, 4.27e12
"""The rates measured on one: of a large product, and of a copy."""

MULTIPROCESSORS, WORKSPACE = 132, 32 << 20
"""Of an H200, and bytes of working memory for its products."""

LEAST_KERNEL, LEAST_PRODUCT = 2e-6, 3e-6
"""Seconds that a kernel or a product of a graph takes at least."""

SLOWEST_KERNELS = {"fisher_step": 6.8e-3}
"""Seconds of kernels that wait for memory or for themselves, as measured."""

PERIOD = 4
"""The estimates of the natural gradient move in one of so many minibatches."""

SELDOM = frozenset({"squared_differences", "fisher_orthonormalize"})
"""Kernels that look by themselves whether they are wanted, which they are in few minibatches."""

TILES = {(128, 128): 1.0, (128, 64): 0.9, (64, 64): 0.75, (32, 64): 0.6, (32, 32): 0.45}
"""Sizes of the tiles of a product, and the share of the full rate that a multiprocessor reaches by
them: an assumption."""

SHORTEST_SPLIT = 1024
"""The fewest terms of a part of a sum that several multiprocessors share: an assumption."""

MOST_OF_VECTOR = 4
"""The most rows or columns of a product that waits for memory alone: an assumption."""

WAYS = ("inference", "training, plain", "training")

MEASURED = {
    ("tdnnf", 64): (5.23, 18.7, 26.9),
    ("tdnn-lstm", 64): (13.7, 44.4, 48.5),
    ("xvector", 64): (3.32, 10.3, 13.1),
    ("cnn-tdnnf", 64): (10.8, 38.3, 45.8),
    ("tdnnf", 8): (1.02, None, 9.25),
    ("tdnn-lstm", 8): (4.80, None, 17.7),
    ("xvector", 8): (0.62, None, 3.79),
    ("cnn-tdnnf", 8): (1.58, None, 12.6),
    ("tdnnf", 1): (0.52, None, 6.13),
    ("tdnn-lstm", 1): (2.19, None, 12.1),
    ("xvector", 1): (0.15, None, 2.53),
    ("cnn-tdnnf", 1): (0.48, None, 7.79),
}
"""Milliseconds in fp32 on 2026-11-27, in each of the `WAYS`, by network and sequences."""


@attrs.frozen
class Step:
    """A launch of a kernel, or a product.

    Attributes:
        kind: The kind of the kernel, its name if it is written by hand, or "product".
        shape: Of a product: rows, columns, terms of each sum; of a stack, before that its length.
        moved: Bytes that it reads and writes.
        blocks: Of a kernel written by hand.
        share: The share of the minibatches in which it runs.
        is_seldom: Whether most of these skip its work.
    """

    kind: str
    shape: tuple[int, ...] | None
    moved: int
    blocks: int
    share: float
    is_seldom: bool

    @property
    def flops(self) -> float:
        """Operations of a product."""
        return 0.0 if self.shape is None else 2.0 * float(np.prod(self.shape, dtype=np.float64))

    @property
    def floor(self) -> float:
        """Seconds at the peaks."""
        return 0.0 if self.is_seldom else max(self.flops / PEAK_FLOPS, self.moved / PEAK_BYTES)

    @property
    def seconds(self) -> float:
        """Seconds by the model."""
        if self.shape is not None:
            return max(product_seconds(self.shape), self.moved / BYTES, LEAST_PRODUCT)
        if self.kind in SLOWEST_KERNELS:
            return SLOWEST_KERNELS[self.kind]
        return LEAST_KERNEL if self.is_seldom else max(self.moved / BYTES, LEAST_KERNEL)

    @property
    def split_seconds(self) -> float:
        """Seconds by the model, of a product by split factors where these are chosen."""
        if self.shape is None:
            return self.seconds
        *stack, rows, columns, terms = self.shape
        sizes = rows, columns, terms, math.prod(stack)
        if not split_products.is_faster(*sizes):
            return self.seconds
        plan = split_products.tiling_of(*sizes, MULTIPROCESSORS, WORKSPACE)
        return max(plan.seconds, self.moved / BYTES, LEAST_PRODUCT)


@functools.cache
def product_seconds(shape: tuple[int, ...]) -> float:
    """Seconds of the arithmetic of a product, with the tiles and parts of sums that suit it best.

    Each multiprocessor computes one tile after another, so that the last round may leave most of
    them idle. Several may share the sums of a tile, and add their parts in memory.
    """
    *stack, rows, columns, terms = shape
    count = math.prod(stack)
    if min(rows, columns) <= MOST_OF_VECTOR:
        return 0.0
    best = float("inf")
    for (height, width), efficiency in TILES.items():
        tiles = count * -(-rows // height) * -(-columns // width)
        for parts in (1, 2, 4, 8, 16, 32):
            if parts > 1 and terms < parts * SHORTEST_SPLIT:
                break
            rounds = -(-tiles * parts // MULTIPROCESSORS)
            flops = 2 * height * width * -(-terms // parts) * rounds
            adding = (
                0.0 if parts == 1 else 8 * parts * count * rows * columns / BYTES + LEAST_KERNEL
            )
            best = min(best, flops * MULTIPROCESSORS / (FLOPS * efficiency) + adding)
    return best


def distinct_bytes(view: View) -> int:
    """Bytes of memory that a reader of all elements of a view reads."""
    sizes = [n for n, s in zip(view.shape, view.strides, strict=True) if s]
    return min(math.prod(sizes), view.span) * view.itemsize


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
                moved += distinct_bytes(view)
        for view in operation.writes:
            seen.add((key_of(view), view.shape))
            if stores(position) and (key_of(view), view.shape) not in stored:
                stored.add((key_of(view), view.shape))
                moved += distinct_bytes(view)
    return moved


def steps_of(segment: DeviceSegment) -> Iterator[Step]:
    """The steps of a segment, but those that start an estimate."""
    operations = with_epilogues(segment.operations)
    readers = later_readers(operations, segment.scratch.contains)
    starts = segment.host.starts
    for beside in side_by_side(group_operations(operations)):
        first = beside[0].operations[0]
        if first.decision in starts:
            continue
        specials = [op for group in beside for op in group.operations if isinstance(op, Special)]
        kind, shape = beside[0].kind.name.lower(), None
        if isinstance(first, Product):
            kind, shape = "product", (*first.out.shape, first.a.shape[-1])
        elif isinstance(first, Special):
            kind = first.kernel.name
        yield Step(
            kind,
            shape,
            moved=sum(moved_by(group, group.stores(readers)) for group in beside),
            blocks=sum(op.kernel.grid for op in specials) if specials else MULTIPROCESSORS,
            share=1.0 if first.decision < 0 else 1 / PERIOD,
            is_seldom=bool(first.guards) or kind in SELDOM,
        )


@attrs.frozen
class Sum:
    """The work of some steps in an average minibatch.

    Attributes:
        kernels: Launches of kernels of ours.
        products: Matrix products.
        flops: Operations of the products.
        kernel_bytes: Bytes that kernels read and write.
        product_bytes: Bytes that products read and write.
        starved: Bytes that kernels with few blocks move.
        floor: Seconds at the peaks.
        seconds: Seconds by the model.
        split_seconds: The same with split factors.
    """

    kernels: float
    products: float
    flops: float
    kernel_bytes: float
    product_bytes: float
    starved: float
    floor: float
    seconds: float
    split_seconds: float

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Sum:
        """The sums over steps, each by its share."""
        sums = [0.0] * len(attrs.fields(cls))
        for step in steps:
            is_product, moved = step.shape is not None, 0 if step.is_seldom else step.moved
            own = (
                not is_product,
                is_product,
                step.flops,
                0 if is_product else moved,
                moved if is_product else 0,
                moved if step.blocks < MULTIPROCESSORS else 0,
                step.floor,
                step.seconds,
                step.split_seconds,
            )
            sums = [total + step.share * value for total, value in zip(sums, own, strict=True)]
        return cls(*sums)


def segments_of(
    name: str, sequences: int, *, train: bool, natural_gradient: bool = True
) -> tuple[list[DeviceSegment], DryRun]:
    """The segments of a program: forward, and in training backward."""
    nnet = parse_config(BENCHMARKS[name].config(), rng=np.random.default_rng(0))
    nnet = nnet if train else set_test_mode(nnet)
    request = BENCHMARKS[name].request(sequences, train=train)
    platform = DryRun()
    natural = train and natural_gradient
    network = DeviceNnet(nnet, device=platform, trainable=train, natural_gradient=natural)
    program = lower(network, CachingCompiler(nnet).compile(request))
    return [call for call in program.calls if isinstance(call, DeviceSegment)], platform


def steps_by_way(name: str, sequences: int) -> Iterator[tuple[str, list[Step]]]:
    """The steps of a network in each of the `WAYS`."""
    for way in WAYS:
        segments, _ = segments_of(
            name, sequences, train=way != "inference", natural_gradient=way == "training"
        )
        yield way, [step for segment in segments for step in steps_of(segment)]


Row = Sequence[str]

MODEL_HEAD = (
    *("network", "n", "kernels + products", "GFLOP", "MB of kernels", "MB of products"),
    *("floor, ms", "model, ms", "measured, ms", "model / measured", "model, fp32x3, ms"),
)


def model_rows(name: str, sequences: int) -> Iterator[Row]:
    """A row for each way."""
    for number, (way, steps) in enumerate(steps_by_way(name, sequences)):
        total = Sum.of(steps)
        measured = MEASURED.get((name, sequences), (None,) * len(WAYS))[number]
        modelled = 1e3 * total.seconds
        yield (
            f"{name}, {way}",
            str(sequences),
            f"{total.kernels:.0f} + {total.products:.0f}",
            f"{total.flops / 1e9:.1f}",
            f"{total.kernel_bytes / 1e6:,.0f}",
            f"{total.product_bytes / 1e6:,.0f}",
            f"{1e3 * total.floor:.2f}",
            f"{modelled:.2f}",
            "" if measured is None else f"{measured:.2f}",
            "" if measured is None else f"{modelled / measured:.2f}",
            f"{1e3 * total.split_seconds:.2f}",
        )


PRODUCTS_HEAD = (
    *(
        "network",
        "(count,) rows, columns, terms",
        "products",
        "GFLOP",
        "MB",
        "floor, ms",
        "model, ms",
    ),
    "TFLOP/s",
    "model, fp32x3, ms",
)


def product_rows(name: str, sequences: int) -> Iterator[Row]:
    """A row for each shape of product, those that take longest first."""
    for way, steps in steps_by_way(name, sequences):
        shapes: dict[tuple[int, ...], list[Step]] = defaultdict(list)
        for step in steps:
            if step.shape is not None:
                shapes[step.shape].append(step)
        sums = {shape: Sum.of(each) for shape, each in shapes.items()}
        for shape, total in sorted(sums.items(), key=lambda item: -item[1].seconds):
            yield (
                f"{name}, {way}",
                " x ".join(map(str, shape)),
                f"{total.products:g}",
                f"{total.flops / 1e9:.2f}",
                f"{total.product_bytes / 1e6:,.1f}",
                f"{1e3 * total.floor:.3f}",
                f"{1e3 * total.seconds:.3f}",
                f"{total.flops / total.seconds / 1e12:.1f}",
                f"{1e3 * total.split_seconds:.3f}",
            )


KINDS_HEAD = ("network", "kind", "steps", "MB", "of few blocks, MB", "floor, ms", "model, ms")


def kind_rows(name: str, sequences: int) -> Iterator[Row]:
    """A row for each kind of step."""
    for way, steps in steps_by_way(name, sequences):
        kinds: dict[str, list[Step]] = defaultdict(list)
        for step in steps:
            kinds[step.kind + (", guarded" if step.is_seldom else "")].append(step)
        for kind, each in sorted(kinds.items()):
            total = Sum.of(each)
            yield (
                f"{name}, {way}",
                kind,
                f"{total.kernels + total.products:g}",
                f"{(total.kernel_bytes + total.product_bytes) / 1e6:,.0f}",
                f"{total.starved / 1e6:,.0f}",
                f"{1e3 * total.floor:.2f}",
                f"{1e3 * total.seconds:.2f}",
            )


LAUNCHES_HEAD = (
    *("pass", "one kernel an operation", "fused", "fused, with update", "distinct kernels"),
    *("products, ms", "bytes, ms"),
)


def counted(lists: Iterable[LaunchList], positive: Collection[int]) -> str:
    """Kernels + products of a minibatch with these positive decisions of the host."""
    calls = [pair for each in lists for pair in zip(each.calls, each.decisions, strict=True)]
    made = [call for call, number in calls if number < 0 or number in positive]
    products = sum(isinstance(call, Product) for call in made)
    return f"{len(made) - products} + {products}"


def launch_rows(name: str, sequences: int) -> Iterator[Row]:
    """A row for each pass: kernels + products, without fusion and with it, and the floors."""
    for train in (False, True):
        segments, platform = segments_of(name, sequences, train=train)
        distinct = sum(source.count("__global__") for source in platform.sources)
        for what, segment in zip(
            ("forward", "backward") if train else ("inference",), segments, strict=True
        ):
            moving = set(range(segment.host.num_decisions)) - segment.host.starts
            singles = [launch_list([each], lambda view: False) for each in segment.operations]
            unfused, fused = counted(singles, ()), counted([segment.launches], ())
            updating = counted([segment.launches], moving)
            total = Sum.of(step for step in steps_of(segment) if step.share == 1.0)
            yield (
                f"{name} {what}",
                unfused,
                fused,
                updating if updating != fused else "",
                str(distinct),
                f"{1e3 * total.flops / PEAK_FLOPS:.2f}",
                f"{1e3 * (total.kernel_bytes + total.product_bytes) / PEAK_BYTES:.2f}",
            )


TABLES: dict[str, tuple[Row, Callable[[str, int], Iterator[Row]]]] = {
    "products": (PRODUCTS_HEAD, product_rows),
    "kinds": (KINDS_HEAD, kind_rows),
    "launches": (LAUNCHES_HEAD, launch_rows),
}


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=sorted(BENCHMARKS), action="append")
    parser.add_argument("--n", type=int, action="append", help="sequences; default: 1, 8 and 64")
    for option, (_, rows) in TABLES.items():
        about = (rows.__doc__ or "").rstrip(".")
        parser.add_argument(
            f"--{option}", dest="table", action="store_const", const=option, help=about
        )
    arguments = parser.parse_args()
    head, rows = TABLES.get(arguments.table, (MODEL_HEAD, model_rows))
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    networks = arguments.network or sorted(BENCHMARKS)
    ratios: dict[int, list[float]] = defaultdict(list)
    for name, sequences in itertools.product(networks, arguments.n or (1, 8, 64)):
        for row in rows(name, sequences):
            print("| " + " | ".join(row) + " |", flush=True)
            if rows is model_rows and row[-2]:
                ratios[sequences].append(float(row[-2]))
    for sequences, each in sorted(ratios.items()):
        print(
            f"model / measured, n = {sequences}: {min(each):.2f} to {max(each):.2f}, "
            f"median {np.median(each):.2f}"
        )


if __name__ == "__main__":
    main()
