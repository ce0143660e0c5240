"""Where the time of the benchmark networks goes: matrix products, the natural gradient, the rest.

    OPENBLAS_NUM_THREADS=1 python benchmarks/shares.py

Each recorded call of a program is timed (processor time, one thread; medians over several periods
of the natural gradient's updates) and belongs to one of these kinds:

- products: matrix products, but not sums of columns, which are products with ones, nor those of the
  natural gradient's own functions. GFLOP is their work, twice the number of multiplications;
  "direct" is the same for a program without tiles.
- transforms: products by the small matrices that turn rows into tiles, and tiles into rows.
- natural gradient: its functions, which compute most gradients; a row of training without it
  ("plain") has these gradients among the products.
- rest: all other calls and, in training, the change of the parameters.

The first line is the speed of the product by which machines are compared (`kaldi.py`).
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import numpy as np
from kaldi import REQUESTS, product_gflops
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_computation import NnetComputation
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.arrays import running
from nnet3_runtime_cuda.cpu.products import TILES
from nnet3_runtime_cuda.lowering import Program, lower
from workload import FIRST_STEPS, UPDATE_PERIOD, Call, Workload, chosen, flat

PRODUCTS, TRANSFORMS, NATURAL_GRADIENT, REST = "products", "transforms", "natural gradient", "rest"

MOST_TRANSFORMED = 6
"""The most terms in a sum of a transform of tiles."""

SGEMM_ARGUMENTS = 14
"""Arguments of cblas_sgemm: order, two forms of factors, rows, columns and terms of the product."""

HEADS = (
    "network",
    "case",
    "ms",
    "products",
    "GFLOP",
    "GFLOP/s",
    "direct",
    TRANSFORMS,
    "natural",
    REST,
)
ROW = "| {} |"

clock = time.thread_time


def plain(call: Call) -> tuple[Callable[..., object], tuple[Any, ...]]:
    """The function and the arguments of a recorded call, even of one that runs on a condition."""
    if isinstance(call, partial):
        inner = [argument for argument in call.args if isinstance(argument, partial)]
        return plain(inner[0]) if inner else (call.func, call.args + tuple(call.keywords.values()))
    return call, ()


def kind(call: Call) -> str:
    """The kind of a call."""
    function, arguments = plain(call)
    if "natural_gradient" in (getattr(function, "__module__", None) or "").split("."):
        return NATURAL_GRADIENT
    if function is not np.matmul:
        return PRODUCTS if flops(call) else REST
    a = arguments[0]
    if len(a) == 1 and a.ndim == 2 and (a == 1).all():
        return REST
    return TRANSFORMS if a.shape[-1] <= MOST_TRANSFORMED else PRODUCTS


def flops(call: Call) -> float:
    """Twice the number of multiplications of a matrix product; 0 for other calls."""
    function, arguments = plain(call)
    if function is np.matmul:
        a, b = arguments[:2]
        stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return 2.0 * math.prod(stack) * a.shape[-2] * a.shape[-1] * b.shape[-1]
    if len(arguments) == SGEMM_ARGUMENTS:
        return 2.0 * math.prod(arguments[3:6])
    return 0.0


@attrs.frozen
class Bound:
    """A program and its operands.

    Attributes:
        device: The network.
        program: The program.
        values: Values of inputs and of output derivatives, by node.
    """

    device: DeviceNnet
    program: Program
    values: dict[str, np.ndarray]

    @classmethod
    def make(cls, work: Workload, computation: NnetComputation, *, natural_gradient: bool) -> Bound:
        """Binds a computation."""
        device = DeviceNnet(
            work.nnet,
            trainable=work.is_training,
            natural_gradient=natural_gradient,
            threads=1,
        )
        return cls(
            device,
            lower(device, computation, is_alone=True),
            flat(work.inputs) | flat(work.derivatives),
        )

    def run(self) -> list[float]:
        """The seconds of each call, and of the change of the parameters."""
        seconds = []
        if self.program.backward is not None:
            self.device.clear_direction(kept=self.program.replaced)
        for segment in self.program.segments:
            for node, view in segment.inputs.items():
                self.program.transfer.put(self.values[node], view)
            with running():
                for call in segment.calls:
                    start = clock()
                    call()
                    seconds.append(clock() - start)
        start = clock()
        if self.program.backward is not None:
            self.device.take_step()
        seconds.append(clock() - start)
        return seconds


def gflop(calls: list[Call]) -> float:
    """The work of the products among the calls, in GFLOP."""
    return sum(flops(call) for call in calls if kind(call) == PRODUCTS) / 1e9


def print_line(work: Workload, periods: int, *, natural_gradient: bool) -> None:
    """Measures one case."""
    computation = CachingCompiler(work.nnet).compile(work.request)
    bound = Bound.make(work, computation, natural_gradient=natural_gradient)
    calls = bound.program.calls
    for _ in range(FIRST_STEPS + 1 if natural_gradient else 2):
        bound.run()
    steps = UPDATE_PERIOD if natural_gradient else 1
    taken = np.array([[bound.run() for _ in range(steps)] for _ in range(periods)])
    milliseconds = 1e3 * np.median(taken, axis=0).mean(axis=0)
    times: Counter[str] = Counter()
    for each, time_taken in zip([*map(kind, calls), REST], milliseconds, strict=True):
        times[each] += time_taken
    if natural_gradient and NATURAL_GRADIENT not in times:
        raise SystemExit(f"{work.name}: no call of the natural gradient is among the calls")
    with chosen(TILES, "0"):
        direct = Bound.make(work, computation, natural_gradient=natural_gradient)
    computed, total = gflop(calls), milliseconds.sum()
    mode = "train" if natural_gradient else "plain" if work.is_training else "infer"
    cells = [work.name, f"{mode} n={work.sequences}", f"{total:.0f}"]
    cells += [f"{times[PRODUCTS] / total:.2f}", f"{computed:.2f}"]
    cells += [f"{1e3 * computed / times[PRODUCTS]:.0f}"]
    cells += [f"{gflop(direct.program.calls):.2f}"]
    cells += [f"{times[each] / total:.2f}" for each in (TRANSFORMS, NATURAL_GRADIENT, REST)]
    print(ROW.format(" | ".join(cells)), flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--periods", type=int, default=5, help="default: 5")
    parser.add_argument("--network", action="append", choices=BENCHMARKS, help="default: all")
    arguments = parser.parse_args()
    print(f"a product for comparison: {product_gflops(clock):.0f} GFLOP/s")
    print(ROW.format(" | ".join(HEADS)))
    print("|---" * len(HEADS) + "|")
    for name, mode, sequences in REQUESTS:
        if name in (arguments.network or BENCHMARKS):
            work = Workload.make(name, mode, sequences)
            for natural_gradient in (False, True) if work.is_training else (False,):
                print_line(work, arguments.periods, natural_gradient=natural_gradient)


if __name__ == "__main__":
    main()
