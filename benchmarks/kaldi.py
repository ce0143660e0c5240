"""What Kaldi's C++ needs for the benchmark networks, as measured on three machines.

All are 2-core x86-64 virtual machines with AVX-512; Kaldi is built with -O2, without CUDA, and
with OpenBLAS. Beside Kaldi's times stand those of two pieces of work in Python in the same minutes:
a product of NumPy's, and a loop. By these the times are scaled to where a benchmark runs, from the
machine that is more like it. So a ratio of 1 means as fast as Kaldi on the same machine, as far as
machines differ by a factor.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping

import attrs
import numpy as np

Request = tuple[str, str, int]
"""Network, mode ("train" or "infer") and number of sequences."""


@attrs.frozen(kw_only=True)
class Measurement:
    """Kaldi's times on one machine.

    Attributes:
        gflops: Speed of `product_gflops` there, on one thread.
        loop_seconds: Time of `loop_seconds` there.
        compile_ms: For compilation and optimization with the shortcut over sequences.
        execute_ms: For a run, or for a training step with natural gradient, by number of threads.
    """

    gflops: float
    loop_seconds: float
    compile_ms: Mapping[Request, float]
    execute_ms: Mapping[Request, Mapping[int, float]]


INTEL = Measurement(
    gflops=157.0,
    loop_seconds=0.58,
    compile_ms={
        ("tdnnf", "train", 64): 36.5,
        ("tdnnf", "train", 8): 32.4,
        ("tdnnf", "infer", 8): 26.7,
        ("tdnnf", "infer", 1): 13.0,
        ("tdnn-lstm", "train", 64): 55.4,
        ("tdnn-lstm", "train", 8): 59.7,
        ("tdnn-lstm", "infer", 8): 35.9,
        ("tdnn-lstm", "infer", 1): 36.9,
        ("xvector", "train", 64): 307.0,
        ("xvector", "train", 8): 411.0,
        ("xvector", "infer", 8): 336.0,
        ("xvector", "infer", 1): 119.0,
        ("cnn-tdnnf", "train", 64): 55.4,
        ("cnn-tdnnf", "train", 8): 43.9,
        ("cnn-tdnnf", "infer", 8): 32.7,
        ("cnn-tdnnf", "infer", 1): 16.0,
    },
    execute_ms={
        ("tdnnf", "infer", 1): {1: 30.9, 2: 19.1},
        ("tdnnf", "infer", 8): {1: 190.0, 2: 119.0},
        ("tdnnf", "train", 8): {1: 1150.0, 2: 906.0},
        ("tdnn-lstm", "infer", 1): {1: 486.0, 2: 281.0},
        ("tdnn-lstm", "infer", 8): {1: 884.0, 2: 575.0},
        ("tdnn-lstm", "train", 8): {1: 2564.0, 2: 1764.0},
        ("xvector", "infer", 1): {1: 20.7, 2: 15.3},
        ("xvector", "infer", 8): {1: 156.0, 2: 117.0},
        ("xvector", "train", 8): {1: 686.0, 2: 540.0},
        ("cnn-tdnnf", "infer", 1): {1: 56.2, 2: 34.4},
        ("cnn-tdnnf", "infer", 8): {1: 582.0, 2: 370.0},
        ("cnn-tdnnf", "train", 8): {1: 2304.0, 2: 1762.0},
    },
)
"""Medians."""

AMD = Measurement(
    gflops=244.0,
    loop_seconds=0.48,
    compile_ms={
        ("tdnnf", "train", 64): 25.3,
        ("tdnnf", "train", 8): 20.0,
        ("tdnnf", "infer", 8): 17.1,
        ("tdnnf", "infer", 1): 8.6,
        ("tdnn-lstm", "train", 64): 45.5,
        ("tdnn-lstm", "train", 8): 44.5,
        ("tdnn-lstm", "infer", 8): 26.7,
        ("tdnn-lstm", "infer", 1): 21.2,
        ("xvector", "train", 64): 224.0,
        ("xvector", "train", 8): 188.8,
        ("xvector", "infer", 8): 194.2,
        ("xvector", "infer", 1): 90.0,
        ("cnn-tdnnf", "train", 64): 36.5,
        ("cnn-tdnnf", "train", 8): 24.4,
        ("cnn-tdnnf", "infer", 8): 21.8,
        ("cnn-tdnnf", "infer", 1): 11.3,
    },
    execute_ms={
        ("tdnnf", "infer", 1): {1: 21.0, 2: 12.3},
        ("tdnnf", "infer", 8): {1: 122.0, 2: 85.2},
        ("tdnnf", "train", 8): {1: 630.7, 2: 512.2},
        ("tdnn-lstm", "infer", 1): {1: 324.8, 2: 170.6},
        ("tdnn-lstm", "infer", 8): {1: 523.1, 2: 308.4},
        ("tdnn-lstm", "train", 8): {1: 1561.4, 2: 1067.8},
        ("xvector", "infer", 1): {1: 14.2, 2: 13.1},
        ("xvector", "infer", 8): {1: 107.2, 2: 99.1},
        ("xvector", "train", 8): {1: 345.0, 2: 320.1},
        ("cnn-tdnnf", "infer", 1): {1: 33.1, 2: 28.1},
        ("cnn-tdnnf", "infer", 8): {1: 338.0, 2: 264.9},
        ("cnn-tdnnf", "train", 8): {1: 1258.1, 2: 1011.2},
    },
)
"""2026-11-22, best of two processes. The loop and the product ran beside Kaldi, in turns."""

GENOA = Measurement(
    gflops=102.0,
    loop_seconds=0.67,
    compile_ms={
        ("tdnnf", "train", 64): 41.5,
        ("tdnnf", "train", 8): 32.3,
        ("tdnnf", "infer", 8): 24.4,
        ("tdnnf", "infer", 1): 11.2,
        ("tdnn-lstm", "train", 64): 67.3,
        ("tdnn-lstm", "train", 8): 67.2,
        ("tdnn-lstm", "infer", 8): 33.3,
        ("tdnn-lstm", "infer", 1): 28.0,
        ("xvector", "train", 64): 336.6,
        ("xvector", "train", 8): 326.9,
        ("xvector", "infer", 8): 260.6,
        ("xvector", "infer", 1): 113.0,
        ("cnn-tdnnf", "train", 64): 59.5,
        ("cnn-tdnnf", "train", 8): 39.1,
        ("cnn-tdnnf", "infer", 8): 31.1,
        ("cnn-tdnnf", "infer", 1): 15.4,
    },
    execute_ms={
        ("tdnnf", "infer", 1): {1: 37.0, 2: 22.7},
        ("tdnnf", "infer", 8): {1: 250.1, 2: 157.2},
        ("tdnnf", "train", 8): {1: 1178.1, 2: 786.0},
        ("tdnn-lstm", "infer", 1): {1: 461.0, 2: 207.5},
        ("tdnn-lstm", "infer", 8): {1: 967.3, 2: 601.7},
        ("tdnn-lstm", "train", 8): {1: 2689.1, 2: 1974.7},
        ("xvector", "infer", 1): {1: 26.9, 2: 18.6},
        ("xvector", "infer", 8): {1: 212.6, 2: 144.7},
        ("xvector", "train", 8): {1: 678.7, 2: 548.7},
        ("cnn-tdnnf", "infer", 1): {1: 75.8, 2: 52.5},
        ("cnn-tdnnf", "infer", 8): {1: 692.2, 2: 480.8},
        ("cnn-tdnnf", "train", 8): {1: 2394.6, 2: 1726.6},
    },
)
"""2026-11-22 and 23, an AMD EPYC of family 25, model 17: medians of runs with OpenBLAS 0.3.21's
kernels for AVX2 or for AVX-512, whichever were faster; one thread in processor time. What was timed
on both days has the shorter time; the loop is that of the second."""

MEASUREMENTS = (INTEL, AMD, GENOA)

REQUESTS = tuple(AMD.execute_ms)
"""The requests that are run."""

COMPILED = tuple(AMD.compile_ms)
"""The requests that are compiled: the training of 64 sequences, too."""


def product_gflops(clock: Callable[[], float]) -> float:
    """GFLOP/s of NumPy's product of (1600, 320) and (320, 1536) float32; the best of a few."""
    rng = np.random.default_rng(0)
    a, b = (rng.random((rows, 320), dtype=np.float32) for rows in (1600, 1536))
    out = np.empty((1600, 1536), np.float32)
    times = []
    for _ in range(8):
        start = clock()
        np.matmul(a, b.T, out)
        times.append(clock() - start)
    return 2.0 * 1600 * 320 * 1536 / min(times) / 1e9


def loop_seconds() -> float:
    """Processor time of ten million additions in a loop at the top of a module; best of five."""
    loop = compile("total = 0\nfor number in range(1_000_000): total += number", "loop", "exec")
    run = functools.partial(exec, loop, {})
    times = []
    for _ in range(5):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return 10 * min(times)


def execution_ms(request: Request, threads: int, gflops: float) -> float:
    """Kaldi's time for running or training once, where the product runs at this speed."""
    near = min(MEASUREMENTS, key=lambda each: abs(math.log(each.gflops / gflops)))
    return near.execute_ms[request][threads] * near.gflops / gflops


def compilation_ms(request: Request, seconds: float) -> float:
    """Kaldi's time for compiling a new request, where the loop takes so many seconds."""
    near = min(MEASUREMENTS, key=lambda each: abs(math.log(each.loop_seconds / seconds)))
    return near.compile_ms[request] * seconds / near.loop_seconds
