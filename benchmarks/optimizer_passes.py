"""The effect of each optimization that Kaldi lacks: memory, and the time of a training step.

    OPENBLAS_NUM_THREADS=1 python benchmarks/optimizer_passes.py
    OPENBLAS_NUM_THREADS=1 python benchmarks/optimizer_passes.py --network xvector --sequences 8

Each benchmark network has a row with Kaldi's set of optimizations, one with all, and one with each
turned off alone. "peak" is the peak of the matrices of a training request of 64 sequences, in
megabytes (10^6 bytes). "runtime" is all memory of the runtime, with scratch memory, for --sequences
sequences. "ms" is the processor time of a forward and a backward pass, without changing the
parameters: the least of several. The rows alternate, so that other work on the machine slows all of
them down.
"""

from __future__ import annotations

import argparse
import time

import attrs
import numpy as np
from networks import BENCHMARKS
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, peak_bytes
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import OptimizeOptions, optimize
from nnet3_runtime_cuda import DeviceNnet, NnetComputer

BEYOND_KALDI = (
    "order_rows_early",
    "share_equal_copies",
    "split_statistics",
    "gather_early",
    "recompute_activations",
)
LARGE = 64
ROUNDS = 6


@attrs.define
class Variant:
    """A set of options, with its measurements.

    Attributes:
        name: The name of the row.
        options: The options.
        computer: Runs the computation for timing.
        peak: Peak bytes of the matrices of the large request.
        seconds: The least time of a step so far.
    """

    name: str
    options: OptimizeOptions
    computer: NnetComputer
    peak: int
    seconds: float = float("inf")


def variants(nnet: Nnet, name: str, sequences: int) -> list[Variant]:
    """Returns Kaldi's set, all optimizations, and all but one for each."""
    off = dict.fromkeys(BEYOND_KALDI, False)
    choices = {"Kaldi's set": OptimizeOptions(**off), "all": OptimizeOptions()}
    choices |= {f"without {each}": OptimizeOptions(**{each: False}) for each in BEYOND_KALDI}
    large, small = (
        compile_computation(nnet, BENCHMARKS[name].request(count, train=True))
        for count in (LARGE, sequences)
    )
    return [
        Variant(
            label,
            options,
            NnetComputer(DeviceNnet(nnet, trainable=True), optimize(nnet, small, options)),
            peak_bytes(optimize(nnet, large, options)),
        )
        for label, options in choices.items()
    ]


def measure(nnet: Nnet, request: ComputationRequest, lines: list[Variant]) -> None:
    """Runs a training step of each variant in turn."""
    rng = np.random.default_rng(0)

    def values(name: str, rows: int) -> np.ndarray:
        return rng.standard_normal((rows, nnet.node_dim(name)), dtype=np.float32)

    inputs = {io.name: values(io.name, len(io.indexes)) for io in request.inputs}
    derivatives = {io.name: 0.01 * values(io.name, len(io.indexes)) for io in request.outputs}
    for number in range(ROUNDS + 1):
        for line in lines:
            start = time.thread_time()
            line.computer.forward(inputs)
            line.computer.backward(derivatives)
            if number:
                line.seconds = min(line.seconds, time.thread_time() - start)


def main() -> None:
    """Reads the command line, and prints the table."""
    parser = argparse.ArgumentParser(description="Measure the optimizations that Kaldi lacks.")
    parser.add_argument("--network", action="append", choices=BENCHMARKS, help="default: all")
    parser.add_argument("--sequences", type=int, default=8, help="in the requests that are timed")
    arguments = parser.parse_args()
    print("| network | optimizations | peak, MB | runtime, MB | ms | ratio |")
    print("|---|---|---|---|---|---|")
    for name in arguments.network or list(BENCHMARKS):
        nnet = parse_config(BENCHMARKS[name].config(), rng=np.random.default_rng(0))
        lines = variants(nnet, name, arguments.sequences)
        measure(nnet, BENCHMARKS[name].request(arguments.sequences, train=True), lines)
        for line in lines:
            print(
                f"| {name} | {line.name} | {line.peak / 1e6:.1f} "
                f"| {line.computer.memory_bytes / 1e6:.1f} | {1e3 * line.seconds:.0f} "
                f"| {line.seconds / lines[0].seconds:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
