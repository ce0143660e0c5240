"""Which of the algorithms that cuBLASLt offers for a product is the fastest, by a trial.

The operands of a trial are memory of its own, full of zeros. So a program can be bound while its
memory has contents. Zeros take as long as other numbers, up to the clock of the device; all
algorithms have the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs

from nnet3_runtime_cuda.cuda.platform.cublaslt import CublasLtError, Product
from nnet3_runtime_cuda.cuda.platform.platform import ALIGNMENT, Gemm, Matrix

FLOAT_BYTES = 4

LEAST_FLOPS = 5e7
"""Smaller products take as long as their launch, whatever the algorithm."""

RUNS = 4
"""Runs of each algorithm that are timed, after one that loads it."""

MARGIN = 0.97
"""Another algorithm than the first must take less than this share of its time."""


def flops(gemm: Gemm) -> float:
    """Floating-point operations, 2 for each multiplication."""
    return 2.0 * gemm.batch * gemm.rows * gemm.columns * gemm.inner


def fastest(
    gemm: Gemm,
    candidate: Callable[[Gemm, int], Product],
    count: int,
    *,
    cupy: Any,
    workspace_bytes: int,
) -> int:
    """The number of the fastest algorithm, on the current device and stream of CuPy.

    Args:
        gemm: The product.
        candidate: Binds the product with other operands to the algorithm of a number.
        count: How many algorithms there are, the one that the library prefers first.
        cupy: The module.
        workspace_bytes: The most that an algorithm needs.

    Returns:
        0 too if the product is small, or there is no memory for a trial.
    """
    if flops(gemm) < LEAST_FLOPS:
        return 0
    stream, runtime = cupy.cuda.get_current_stream(), cupy.cuda.runtime
    moved, end = elsewhere(gemm, 0)
    try:
        # Not from CuPy's pool, which would keep the memory.
        start = runtime.malloc(end + workspace_bytes)
    except runtime.CUDARuntimeError:
        return 0
    try:
        runtime.memsetAsync(start, 0, end, stream.ptr)
        moved, _ = elsewhere(gemm, start)
        times = [
            _milliseconds(candidate(moved, number), start + end, cupy, stream)
            for number in range(count)
        ]
    finally:
        stream.synchronize()
        runtime.free(start)
    best = min(range(count), key=times.__getitem__)
    return best if times[best] < MARGIN * times[0] else 0


def elsewhere(gemm: Gemm, start: int) -> tuple[Gemm, int]:
    """The product with operands that lie one behind another, aligned as they are now.

    Args:
        gemm: The product.
        start: The address from which on there is memory, a multiple of ALIGNMENT.

    Returns:
        The product, and the first free address behind its operands, a multiple of ALIGNMENT.
    """
    place = start

    def moved(matrix: Matrix, rows: int, columns: int) -> Matrix:
        nonlocal place
        address = place + matrix.address % ALIGNMENT
        lines, length = (columns, rows) if matrix.transposed else (rows, columns)
        span = (gemm.batch - 1) * matrix.batch_stride + (lines - 1) * matrix.stride + length
        place = -(-(address + span * FLOAT_BYTES) // ALIGNMENT) * ALIGNMENT
        return attrs.evolve(matrix, address=address)

    product = attrs.evolve(
        gemm,
        a=moved(gemm.a, gemm.rows, gemm.inner),
        b=moved(gemm.b, gemm.inner, gemm.columns),
        out=moved(gemm.out, gemm.rows, gemm.columns),
        addend=gemm.addend and moved(gemm.addend, gemm.rows, gemm.columns),
    )
    return product, place


def _milliseconds(product: Product, workspace: int, cupy: Any, stream: Any) -> float:
    """The time of some runs; infinite if the library refuses them."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    try:
        product.run(workspace, stream.ptr)
        begin.record(stream)
        for _ in range(RUNS):
            product.run(workspace, stream.ptr)
    except CublasLtError:
        return math.inf
    end.record(stream)
    end.synchronize()
    elapsed: float = cupy.cuda.get_elapsed_time(begin, end)
    return elapsed
