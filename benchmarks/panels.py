"""The speed of products with fixed parameters, transposed or in panels.

    OPENBLAS_NUM_THREADS=1 python benchmarks/panels.py

For several numbers of rows and shapes of parameters (input times output dimension), the table has
the GFLOP/s of a product with transposed parameters, and of one with panels. The two alternate, with
other parameters each time, so that these do not come from the second-level cache; the least time
counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from nnet3_runtime_cuda.arrays import running
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.operations.panels import Panels

ROWS = (2, 8, 16, 48, 66, 128, 213, 286, 384, 512)
SHAPES = ((256, 4096), (1024, 512), (1536, 320), (320, 1536), (3072, 1024))
PARAMETERS = 6_000_000
"""About how many parameters are used in turn: 24 MB."""

REPEATS, LEAST_REPEATS, WORK = 60, 12, 4_000_000_000
"""Number of timings of each product; fewer for large ones."""


def products(rows: int, inner: int, columns: int) -> dict[str, list[Callable[[], None]]]:
    """For both forms, the same product with several parameters."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, inner), dtype=np.float32)
    out = np.empty((rows, columns), np.float32)
    calls: dict[str, list[Callable[[], None]]] = {"transposed": [], "panels": []}
    for _ in range(max(2, PARAMETERS // (inner * columns))):
        parameters = rng.standard_normal((inner, columns), dtype=np.float32)
        calls["transposed"].append(partial(np.matmul, x, parameters, out))
        tape = NumpyTape()
        Panels.of(parameters).record(tape, x, out)
        calls["panels"].append(partial(run, tape.take()))
    return calls


def run(calls: tuple[Callable[[], object], ...]) -> None:
    """Runs recorded calls."""
    for call in calls:
        call()


def gflops(rows: int, inner: int, columns: int) -> dict[str, float]:
    """The speed of both forms."""
    work, ways = 2 * rows * inner * columns, products(rows, inner, columns)
    best = dict.fromkeys(ways, float("inf"))
    for repeat in range(max(LEAST_REPEATS, min(REPEATS, WORK // work))):
        for way, calls in ways.items():
            start = time.perf_counter()
            calls[repeat % len(calls)]()
            best[way] = min(best[way], time.perf_counter() - start)
    return {way: work / seconds / 1e9 for way, seconds in best.items()}


def main() -> None:
    """Prints the table."""
    print(f"| rows | {' | '.join(f'{inner} x {columns}' for inner, columns in SHAPES)} |")
    print("|---" * (len(SHAPES) + 1) + "|")
    with running():
        for rows in ROWS:
            cells = []
            for inner, columns in SHAPES:
                speed = gflops(rows, inner, columns)
                cells.append("; ".join(f"{value:.0f}" for value in speed.values()))
            print(f"| {rows} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
