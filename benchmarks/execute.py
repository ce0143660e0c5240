"""The time of running and training the benchmark networks on a CPU, beside Kaldi and others.

    python benchmarks/execute.py                                # all, on one and two threads
    python benchmarks/execute.py --network tdnnf --threads 1
    python benchmarks/execute.py --peer PyTorch --peer "ONNX Runtime"

Each figure is measured in a separate process with as many threads of the matrix library. A training
step is a forward and a backward pass with natural gradient, and the change of the parameters. The
mean is taken over four steps after the first ten. As in a long training run, one of the four
updates the estimates of the Fisher matrices. (During the first ten steps of a run, all do.)

Kaldi's figures are those of `kaldi.py`, scaled to this machine by a product of NumPy's that is
timed before and after each line. A ratio of 1 means as fast as Kaldi on the same machine, less is
faster.

The peers (`--peer`, any number of times) are PyTorch, torch.compile and ONNX Runtime, where they
are installed, on the same networks as written in `peers/`, trained by plain gradient descent. Their
outputs are compared with ours before they are timed. Beside our time for a training step stands our
time without the natural gradient, which is the same work as theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import attrs
import numpy as np
from kaldi import REQUESTS, execution_ms, product_gflops
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from peers.runners import PEERS, missing
from workload import CLOCKS, Workload, flat

OF_PEERS = "of best peer", "without natural gradient"

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

OURS, PLAIN, CALIBRATION = "ours", "plain", "calibration"

TOLERANCES = {"infer": 1e-4, "train": 5e-3}
"""How far outputs may be apart, relative to the largest. In training the batch-norm of PyTorch's
eager convolutions is off by 2e-3 (that of torch.compile is not)."""


@attrs.frozen
class Case:
    """A line of the table."""

    network: str
    mode: str
    sequences: int
    threads: int


# ---- in a process of its own ----


def measure_ours(
    work: Workload, clock: Callable[[], float], *, natural_gradient: bool = True
) -> list[float]:
    """Milliseconds, number of calls of a run, and megabytes of matrices and scratch."""
    if work.is_training:
        run, computer = training_step(work, natural_gradient=natural_gradient)
    else:
        run, computer = inference(work)
    milliseconds = work.time(run, clock)
    return [milliseconds, computer.num_calls, computer.memory_bytes / 1e6]


def inference(work: Workload) -> tuple[Callable[[], object], NnetComputer]:
    """A run with as many threads as the matrix library has, and what runs."""
    computer = make_computer(work)[1]
    return partial(computer.forward, flat(work.inputs)), computer


def training_step(
    work: Workload, *, natural_gradient: bool = True
) -> tuple[Callable[[], object], NnetComputer]:
    """A step, and what runs."""
    device, computer = make_computer(work, natural_gradient=natural_gradient)
    inputs, derivatives = flat(work.inputs), flat(work.derivatives)

    def run() -> None:
        computer.forward(inputs)
        computer.backward(derivatives)
        device.take_step()

    return run, computer


def make_computer(
    work: Workload, *, natural_gradient: bool = True
) -> tuple[DeviceNnet, NnetComputer]:
    """The network on the device, and its computation."""
    natural_gradient &= work.is_training
    device = DeviceNnet(work.nnet, trainable=work.is_training, natural_gradient=natural_gradient)
    return device, NnetComputer(device, CachingCompiler(work.nnet).compile(work.request))


def measure_peer(peer: str, work: Workload, clock: Callable[[], float]) -> list[float]:
    """Milliseconds of a peer, whose outputs must be ours."""
    import torch
    from peers.runners import prepare

    torch.set_num_threads(int(os.environ[THREAD_VARIABLES[0]]))
    goals = work.derivatives if work.is_training else None
    run = prepare(peer, work.name, work.nnet, work.inputs, goals)
    outputs = run()
    ours = make_computer(work)[1].forward(flat(work.inputs))
    tolerance = TOLERANCES["train" if work.is_training else "infer"]
    for io, output in zip(work.request.outputs, outputs, strict=True):
        expected = ours[io.name]
        error = np.abs(output.reshape(expected.shape) - expected).max() / np.abs(expected).max()
        if error > tolerance:
            raise SystemExit(f"{peer}: '{io.name}' of {work.name} is off by {error:.2g}")
    return [work.time(run, clock)]


def child(arguments: list[str], clock: Callable[[], float]) -> list[float]:
    """The figures that the child process measures."""
    what, *case = arguments
    if what == CALIBRATION:
        return [product_gflops(clock)]
    network, mode, sequences = case
    work = Workload.make(network, mode, int(sequences))
    if what in (OURS, PLAIN):
        return measure_ours(work, clock, natural_gradient=what == OURS)
    return measure_peer(what, work, clock)


# ---- the table ----


def in_child(threads: int, clock: str, *arguments: str) -> list[float]:
    """The figures of a child process with this number of threads; none if it fails."""
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
    command = [sys.executable, __file__, "--clock", clock, "--child", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{' '.join(arguments)} failed: {done.stderr[-2000:]}", file=sys.stderr)
        return []
    numbers: list[float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def print_line(case: Case, peers: list[str], clock: str) -> None:
    """Measures and prints one line: calibration, ours, then each peer."""
    arguments = case.network, case.mode, str(case.sequences)
    gflops = in_child(1, clock, CALIBRATION)
    milliseconds, calls, megabytes = in_child(case.threads, clock, OURS, *arguments)
    is_training = case.mode == "train"
    plain = in_child(case.threads, clock, PLAIN, *arguments) if peers and is_training else []
    others = []
    for peer in peers:
        is_possible = not (peer == "ONNX Runtime" and is_training)
        others.append(in_child(case.threads, clock, peer, *arguments) if is_possible else [])
    gflops += in_child(1, clock, CALIBRATION)
    request = case.network, case.mode, case.sequences
    ratio = milliseconds / execution_ms(request, case.threads, max(gflops))
    cells = [case.network, f"{case.mode} n={case.sequences}", str(case.threads)]
    cells += [f"{milliseconds:.1f}", f"{max(gflops):.0f}", f"{ratio:.2f}"]
    cells += [f"{figures[0]:.1f}" if figures else "" for figures in others]
    if peers:
        known = [figures[0] for figures in others if figures]
        for figures in ([milliseconds], plain):
            cells.append(f"{figures[0] / min(known):.2f}" if known and figures else "")
    cells += [f"{calls:.0f}", f"{megabytes:.1f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def print_table(cases: list[Case], peers: list[str], clock: str) -> None:
    """Measures and prints line by line."""
    titles = ["network", "case", "threads", "ms", "calibration, GFLOP/s", "of Kaldi"]
    titles += [*(f"{peer}, ms" for peer in peers), *(OF_PEERS if peers else [])]
    titles += ["calls", "MB"]
    print(f"| {' | '.join(titles)} |")
    print("|---" * len(titles) + "|")
    for case in cases:
        print_line(case, peers, clock)


def usable_peers(names: list[str]) -> list[str]:
    """The peers that are installed; says which are not."""
    usable = []
    for name in names:
        lacking = missing(name)
        if lacking:
            print(f"{name} is left out: {', '.join(lacking)} not installed", file=sys.stderr)
        else:
            usable.append(name)
    return usable


def main() -> None:
    """Reads the command line; with --child, measures and prints numbers as JSON."""
    parser = argparse.ArgumentParser(description="Measure the benchmark networks on a CPU.")
    parser.add_argument("--network", action="append", choices=BENCHMARKS, help="default: all")
    parser.add_argument("--mode", action="append", choices=TOLERANCES, help="default: both")
    parser.add_argument("--threads", action="append", type=int, choices=(1, 2), help="default: 1 2")
    parser.add_argument("--peer", action="append", choices=PEERS, default=[], help="default: none")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="'cpu' counts the thread's own time: for one thread on a busy machine",
    )
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments.child, CLOCKS[arguments.clock])))
        return
    cases = [
        Case(network, mode, sequences, threads)
        for network, mode, sequences in REQUESTS
        for threads in arguments.threads or [1, 2]
        if network in (arguments.network or BENCHMARKS) and mode in (arguments.mode or TOLERANCES)
    ]
    print_table(cases, usable_peers(arguments.peer), arguments.clock)


if __name__ == "__main__":
    main()
