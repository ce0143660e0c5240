"""The cost of a run of a bound program besides the arithmetic, and the time of binding.

    OPENBLAS_NUM_THREADS=1 python benchmarks/call_cost.py

One sequence of the benchmark networks, on one thread. "Python" is the time of the same loop over
the same calls, for each command of the computation. All functions are replaced by `"".format`,
which takes the operands and does nothing with them. "Small" is the whole run with hidden sizes
divided by 256, so that most matrices have a few numbers in a row. It includes the start of each
NumPy call. Binding is timed for the network in its full size, for one thread and for two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial

import attrs
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.lowering import lower
from workload import Call, Workload, flat, least

SCALE = 1 / 256

HEADS = "network", "mode", "commands", "calls", "Python", "small", "binding, s", "two threads"
ROW = "{:10s} {:6s} {:>9} {:>7} {:>9} {:>9} {:>11} {:>12}"


def without_arithmetic(calls: Sequence[Call]) -> Call:
    """A loop over calls with the same operands that compute nothing."""
    idle = [
        partial("".format, *call.args, **call.keywords) if isinstance(call, partial) else "".format
        for call in calls
    ]

    def run() -> None:
        for call in idle:
            call()

    return run


@attrs.frozen
class Cost:
    """The cost of a program in its full size.

    Attributes:
        commands: Number of commands of the computation.
        calls: Number of calls of the program.
        python: Microseconds of the loop without arithmetic.
        binding: Seconds to make the program for one thread.
        binding_two: Seconds to make it for two threads.
    """

    commands: int
    calls: int
    python: float
    binding: float
    binding_two: float


def cost(work: Workload, runs: int) -> Cost:
    """The cost of a network besides the arithmetic."""
    computation = CachingCompiler(work.nnet).compile(work.request)
    programs, seconds = [], []
    for threads in (1, 2):
        device = DeviceNnet(
            work.nnet,
            trainable=work.is_training,
            natural_gradient=work.is_training,
            threads=threads,
        )
        start = time.perf_counter()
        programs.append(lower(device, computation, is_alone=threads == 1))
        seconds.append(time.perf_counter() - start)
    program = programs[0]
    python = sum(least(without_arithmetic(segment.calls), runs) for segment in program.segments)
    return Cost(len(computation.commands), program.num_calls, python, *seconds)


def whole(work: Workload, runs: int) -> float:
    """Microseconds of a run, without the change of parameters."""
    computation = CachingCompiler(work.nnet).compile(work.request)
    device = DeviceNnet(work.nnet, trainable=work.is_training, natural_gradient=False)
    computer = NnetComputer(device, computation, threads=1)
    inputs, derivatives = flat(work.inputs), flat(work.derivatives)

    def run() -> None:
        computer.forward(inputs)
        if work.is_training:
            computer.backward(derivatives)

    run()
    return least(run, runs)


def main() -> None:
    """Prints the table; times are microseconds for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    runs = parser.parse_args().runs
    print(ROW.format(*HEADS))
    for name in BENCHMARKS:
        for mode in ("infer", "train"):
            found = cost(Workload.make(name, mode, 1), runs)
            small = whole(Workload.make(name, mode, 1, SCALE), runs)
            counts = found.commands, found.calls
            times = (f"{each / found.commands:.2f}" for each in (found.python, small))
            binding = f"{found.binding:.2f}", f"{found.binding_two:.2f}"
            print(ROW.format(name, mode, *counts, *times, *binding), flush=True)


if __name__ == "__main__":
    main()
