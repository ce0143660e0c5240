"""How the cost of compiling a recurrent network grows with the length of its program.

    python benchmarks/compile_scaling.py                   # up to 50,000 commands and more
    python benchmarks/compile_scaling.py --commands 10000
    python benchmarks/compile_scaling.py --ivector         # a row that all frames read

Trains the benchmark network tdnn-lstm on chunks of twice the length in each line, so that the
program has about twice as many commands. Times are processor time in milliseconds, the best of
several runs; "us" is the time of each stage divided by the number of commands that the compiler
made, in microseconds. It should not rise from line to line.

With --ivector the network is one affine layer that reads `ReplaceIndex(ivector, t, 0)`, with 8
sequences and more and more frames. "commands" is the number of commands of the optimized
computation. "compile" is the time to compile and optimize it, "backward" the time of a backward
pass of NnetComputer on one thread. The columns behind the bar are for computations with an AddRows
for each frame instead of gathered rows.
"""

from __future__ import annotations

import argparse
import functools
from unittest import mock

import attrs
import numpy as np
from compile_time import best_ms, network
from networks import BENCHMARKS, Benchmark
from nnet3_compiler import backward, compile_computation
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import check_computation, optimize
from nnet3_runtime_cuda import NnetComputer

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


IVECTOR = """
input-node name=input dim=40
input-node name=ivector dim=100
component name=affine type=AffineComponent input-dim=140 output-dim=256
component-node name=affine component=affine input=Append(input, ReplaceIndex(ivector, t, 0))
output-node name=output input=affine
"""


def backward_ms(nnet: Nnet, computation: NnetComputation, frames: int, runs: int) -> float:
    """Returns the time of a backward pass in milliseconds."""
    rng = np.random.default_rng(0)
    sizes = {"input": (SEQUENCES * frames, 40), "ivector": (SEQUENCES, 100)}
    given = {name: rng.standard_normal(size, np.float32) for name, size in sizes.items()}
    derivs = {"output": rng.standard_normal((SEQUENCES * frames, 256), np.float32)}
    computer = NnetComputer(nnet, computation)

    def run() -> float:
        computer.forward(given)
        return best_ms(lambda: computer.backward(derivs), 1)

    return min(run() for _ in range(runs))


def ivector_rows(runs: int) -> None:
    """Print, for each number of frames, commands and times with and without gathered rows."""
    nnet = parse_config(IVECTOR, rng=np.random.default_rng(0))
    io = functools.partial(IoSpecification.from_range, n=SEQUENCES, has_deriv=True)
    one_by_one = mock.patch.object(backward, "is_worthwhile", return_value=False)
    print("frames  commands  compile   backward   | commands  compile   backward")
    for frames in (15, 150, 1500):
        request = ComputationRequest(
            inputs=[io("input", 0, frames), io("ivector", 0, 1)], outputs=[io("output", 0, frames)]
        )

        def program(request: ComputationRequest = request) -> NnetComputation:
            return optimize(nnet, compile_computation(nnet, request))

        def columns(frames: int = frames, program=program) -> str:
            computation = program()
            compiling = best_ms(program, runs)
            running = backward_ms(nnet, computation, frames, runs)
            return f"{len(computation.commands):8} {compiling:6.1f} ms {running:6.2f} ms"

        gathered = columns()
        with one_by_one:
            print(f"{frames:6}  {gathered}   | {columns()}", flush=True)


def main() -> None:
    """Print a line for each length."""
    parser = argparse.ArgumentParser(description="Time compilation of longer and longer chunks.")
    parser.add_argument("--commands", type=int, default=50_000, help="stop after so many")
    parser.add_argument("--runs", type=int, default=5, help="runs of which the best counts")
    parser.add_argument("--ivector", action="store_true", help="a row that all frames read")
    arguments = parser.parse_args()
    if arguments.ivector:
        ivector_rows(arguments.runs)
        return
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
