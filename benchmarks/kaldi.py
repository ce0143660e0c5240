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
from collections.abc import Callable, Sequence

import numpy as np

Request = tuple[str, str, int]
"""Network, mode ("train" or "infer") and number of sequences."""


GFLOPS = (157.0, 244.0, 102.0)
"""Speed of `product_gflops` on each machine, on one thread."""

LOOP_SECONDS = (0.58, 0.48, 0.67)
"""Time of `loop_seconds` there."""

TIMES = """
tdnnf     infer  1    13.0    8.6   11.2      30.9    21.0    37.0      19.1    12.3    22.7
tdnnf     infer  8    26.7   17.1   24.4     190.0   122.0   250.1     119.0    85.2   157.2
tdnnf     train  8    32.4   20.0   32.3    1150.0   630.7  1178.1     906.0   512.2   786.0
tdnnf     train 64    36.5   25.3   41.5
tdnn-lstm infer  1    36.9   21.2   28.0     486.0   324.8   461.0     281.0   170.6   207.5
tdnn-lstm infer  8    35.9   26.7   33.3     884.0   523.1   967.3     575.0   308.4   601.7
tdnn-lstm train  8    59.7   44.5   67.2    2564.0  1561.4  2689.1    1764.0  1067.8  1974.7
tdnn-lstm train 64    55.4   45.5   67.3
xvector   infer  1   119.0   90.0  113.0      20.7    14.2    26.9      15.3    13.1    18.6
xvector   infer  8   336.0  194.2  260.6     156.0   107.2   212.6     117.0    99.1   144.7
xvector   train  8   411.0  188.8  326.9     686.0   345.0   678.7     540.0   320.1   548.7
xvector   train 64   307.0  224.0  336.6
cnn-tdnnf infer  1    16.0   11.3   15.4      56.2    33.1    75.8      34.4    28.1    52.5
cnn-tdnnf infer  8    32.7   21.8   31.1     582.0   338.0   692.2     370.0   264.9   480.8
cnn-tdnnf train  8    43.9   24.4   39.1    2304.0  1258.1  2394.6    1762.0  1011.2  1726.6
cnn-tdnnf train 64    55.4   36.5   59.5
"""
"""Milliseconds of the requests on the three machines: an Intel, an AMD, and an AMD EPYC of family
25, model 17 (2026-11-22 and 23; OpenBLAS 0.3.21's kernels for AVX2 or AVX-512, whichever were
faster). First of compilation and optimization with the shortcut over sequences, then of a run, or
of a training step with natural gradient, on one thread and on two."""

COMPILED: dict[Request, list[float]] = {}
"""Kaldi's times of compiling, by machine."""

EXECUTED: dict[Request, tuple[list[float], list[float]]] = {}
"""Kaldi's times of running on one thread and on two, by machine."""

for _line in TIMES.split("\n")[1:-1]:
    _network, _mode, _sequences, *_words = _line.split()
    _case, _figures = (_network, _mode, int(_sequences)), [*map(float, _words)]
    COMPILED[_case] = _figures[:3]
    if _figures[3:]:
        EXECUTED[_case] = _figures[3:6], _figures[6:]

REQUESTS = tuple(EXECUTED)
"""The requests that are run."""


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
    near = _nearest(GFLOPS, gflops)
    return EXECUTED[request][threads - 1][near] * GFLOPS[near] / gflops


def compilation_ms(request: Request, seconds: float) -> float:
    """Kaldi's time for compiling a new request, where the loop takes so many seconds."""
    near = _nearest(LOOP_SECONDS, seconds)
    return COMPILED[request][near] * seconds / LOOP_SECONDS[near]


def _nearest(figures: Sequence[float], figure: float) -> int:
    """The number of the machine whose figure is nearest, as a ratio."""
    return min(range(len(figures)), key=lambda machine: abs(math.log(figures[machine] / figure)))
