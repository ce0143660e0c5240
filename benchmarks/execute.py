"""How long the benchmark networks take to run and to train on a CPU, beside Kaldi's C++.

    python benchmarks/execute.py                                # all, on one and two threads
    python benchmarks/execute.py --network tdnnf --threads 1

Each line is measured in a process of its own with as many threads of the matrix library. A training
step is forward and backward pass with natural gradient and the change of the parameters; the mean
is taken over four steps after the first ten, of which one updates the estimates of the Fisher
matrices, as in a long training run. (During the first ten steps of a run, all do.)

Kaldi's figures were measured once, on a 2-core x86-64 virtual machine with AVX-512: medians, a CPU
build with -O2 and OpenBLAS. Their calibration is NumPy's product of (1600, 320) and (320, 1536)
float32 matrices on one thread, which ran there at KALDI_GFLOPS in the same minutes. It is measured
here before and after each line, and times are scaled by it: a ratio of 1 means as fast as Kaldi on
the same machine, less is faster.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import attrs
import numpy as np
from networks import BENCHMARKS

KALDI_GFLOPS = 157.0
"""Speed of the calibration, one thread, where the figures below come from."""

KALDI = {
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
}
"""Kaldi's milliseconds by (network, mode, sequences) and number of threads."""

FIRST_STEPS, TRAINING_STEPS = 10, 4
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@attrs.frozen
class Measurement:
    """One line of the table.

    Attributes:
        milliseconds: Of a run, or of a training step.
        gflops: Speed of the calibration on one thread.
        calls: Calls of NumPy or BLAS that a run makes.
        megabytes: Memory for matrices and scratch.
    """

    milliseconds: float
    gflops: float
    calls: int
    megabytes: float


def calibrate(clock: Callable[[], float]) -> float:
    """GFLOP/s of the calibrating product; the best of a few."""
    rng = np.random.default_rng(0)
    a, b = (rng.random((rows, 320), dtype=np.float32) for rows in (1600, 1536))
    out = np.empty((1600, 1536), np.float32)
    times = []
    for _ in range(8):
        start = clock()
        np.matmul(a, b.T, out)
        times.append(clock() - start)
    return 2.0 * 1600 * 320 * 1536 / min(times) / 1e9


def measure(name: str, mode: str, sequences: int, clock: Callable[[], float]) -> Measurement:
    """Runs one network in this process."""
    from nnet3_descriptors import parse_config, set_test_mode
    from nnet3_optimizer import CachingCompiler
    from nnet3_runtime_cuda import DeviceNnet, NnetComputer

    train = mode == "train"
    benchmark, rng = BENCHMARKS[name], np.random.default_rng(0)
    nnet = parse_config(benchmark.config(), rng=rng)
    if not train:
        nnet = set_test_mode(nnet)
    request = benchmark.request(sequences, train=train)
    device = DeviceNnet(nnet, trainable=train, natural_gradient=train)
    computer = NnetComputer(device, CachingCompiler(nnet).compile(request))

    def values(name: str, rows: int) -> np.ndarray:
        return rng.standard_normal((rows, nnet.node_dim(name)), dtype=np.float32)

    inputs = {io.name: values(io.name, len(io.indexes)) for io in request.inputs}
    derivatives = {io.name: 0.01 * values(io.name, len(io.indexes)) for io in request.outputs}

    def run() -> None:
        computer.forward(inputs)
        if train:
            computer.backward(derivatives)
            device.take_step()

    warm_up = FIRST_STEPS + 1 if train else 2
    count = TRAINING_STEPS if train else max(3, 24 // sequences)
    for _ in range(warm_up):
        run()
    gc.collect()
    times = []
    for _ in range(count):
        start = clock()
        run()
        times.append(clock() - start)
    typical = np.mean(times) if train else np.median(times)
    return Measurement(1e3 * float(typical), 0.0, computer.num_calls, computer.memory_bytes / 1e6)


def measure_apart(name: str, mode: str, sequences: int, threads: int, clock: str) -> Measurement:
    """Measures in a process with this number of threads; the calibration in one with one."""

    def child(threads: int, *arguments: str) -> list[float]:
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
        command = [sys.executable, __file__, "--clock", clock, "--child", *arguments]
        output = subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout
        numbers: list[float] = json.loads(output)
        return numbers

    before = child(1, "calibration")
    milliseconds, calls, megabytes = child(threads, name, mode, str(sequences))
    after = child(1, "calibration")
    return Measurement(milliseconds, max(*before, *after), int(calls), megabytes)


def print_table(networks: list[str], thread_counts: list[int], clock: str) -> None:
    """Measures and prints line by line."""
    print(
        "| network | case | threads | ms | calibration, GFLOP/s | Kaldi, ms | ratio | calls | MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for (name, mode, sequences), kaldi in KALDI.items():
        for threads in thread_counts if name in networks else ():
            m = measure_apart(name, mode, sequences, threads, clock)
            ratio = m.milliseconds / kaldi[threads] * m.gflops / KALDI_GFLOPS
            print(
                f"| {name} | {mode} n={sequences} | {threads} | {m.milliseconds:.1f} "
                f"| {m.gflops:.0f} | {kaldi[threads]:.1f} | {ratio:.2f} | {m.calls} "
                f"| {m.megabytes:.1f} |",
                flush=True,
            )


def main() -> None:
    """Reads the command line; with --child, measures and prints numbers as JSON."""
    parser = argparse.ArgumentParser(description="Measure the benchmark networks on a CPU.")
    parser.add_argument("--network", action="append", choices=BENCHMARKS, help="default: all")
    parser.add_argument("--threads", action="append", type=int, choices=(1, 2), help="default: 1 2")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="'cpu' counts the thread's own time: for one thread on a busy machine",
    )
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    clock = time.perf_counter if arguments.clock == "wall" else time.thread_time
    if not arguments.child:
        print_table(
            arguments.network or list(BENCHMARKS), arguments.threads or [1, 2], arguments.clock
        )
    elif arguments.child == ["calibration"]:
        print(json.dumps([calibrate(clock)]))
    else:
        name, mode, sequences = arguments.child
        m = measure(name, mode, int(sequences), clock)
        print(json.dumps([m.milliseconds, m.calls, m.megabytes]))


if __name__ == "__main__":
    main()
