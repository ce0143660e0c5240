"""How the cost of compiling a recurrent network grows with the length of its program.

    python benchmarks/compile_scaling.py                   # up to 50,000 commands and more
    python benchmarks/compile_scaling.py --commands 10000

Trains the benchmark network tdnn-lstm on chunks of twice the length in each line, so that the
program has about twice as many commands. Times are processor time in milliseconds, the best of
several runs; "us" is the time of each stage divided by the number of commands that the compiler
made, in microseconds. It should not rise from line to line.
"""

from __future__ import annotations

import argparse
import functools

import attrs
from compile_time import best_ms, network
from networks import BENCHMARKS, Benchmark
from nnet3_compiler import compile_computation
from nnet3_optimizer import check_computation, optimize

NAME = "tdnn-lstm"
SEQUENCES = 8


def of_length(length: int) -> Benchmark:
    """Returns the benchmark with so many frames of output, every third one asked for."""
    base = BENCHMARKS[NAME]
    given, wanted = base.input_times, base.output_times
    longer = length - (wanted.stop - wanted.start)
    return attrs.evolve(
        base,
        input_times=range(given.start, given.stop + longer),
        output_times=range(wanted.start, wanted.start + length, wanted.step),
    )


def main() -> None:
    """Print a line for each length."""
    parser = argparse.ArgumentParser(description="Time compilation of longer and longer chunks.")
    parser.add_argument("--commands", type=int, default=50_000, help="stop after so many")
    parser.add_argument("--runs", type=int, default=5, help="runs of which the best counts")
    arguments = parser.parse_args()
    nnet = network(NAME, 0.0625, train=True)
    print("frames  commands  optimized    compile         optimize        check")
    length, commands = 75, 0
    while commands < arguments.commands:
        request = of_length(length).request(SEQUENCES, train=True)
        compiled = compile_computation(nnet, request)
        optimized = optimize(nnet, compiled)
        commands = len(compiled.command_table)
        stages = (
            functools.partial(compile_computation, nnet, request),
            functools.partial(optimize, nnet, compiled),
            functools.partial(check_computation, nnet, optimized),
        )
        times = [best_ms(stage, arguments.runs) for stage in stages]
        columns = "".join(f"{ms:7.1f} ms {ms / commands * 1000:4.1f} us" for ms in times)
        print(f"{length:6}  {commands:8}  {len(optimized.command_table):9} {columns}", flush=True)
        length *= 2


if __name__ == "__main__":
    main()
