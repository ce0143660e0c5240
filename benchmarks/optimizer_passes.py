"""What each option of the optimizer brings: memory, commands and copies with the option off.

    python benchmarks/optimizer_passes.py               # counts, the same on each machine
    OPENBLAS_NUM_THREADS=1 python benchmarks/optimizer_passes.py --time [--network xvector]

Without --time, each option that is on by default is turned off alone. The computations are those
of the benchmark networks (training on 8 sequences, inference on 1 and 8), of the reference cases
and of 300 random networks. For each group of computations a row has the largest and the mean ratio,
without the option to with it, of the peak of the matrices, of the number of commands, and of the
elements that commands copy or add; and the number of computations that the option changes.

With --time, each benchmark network has a row with Kaldi's set of optimizations, one with all, and
one with each that Kaldi lacks turned off alone. "peak" is the peak of the matrices of a training
request of 64 sequences, in megabytes (10^6 bytes). "runtime" is all memory of the runtime, with
scratch memory, for --sequences sequences. "ms" is the processor time of a forward and a backward
pass, without changing the parameters: the least of several. The rows alternate, so that other work
on the machine slows all of them down.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import attrs
import numpy as np
from networks import BENCHMARKS
from nnet3_compiler import compile_computation
from nnet3_computation import SCHEMA, ComputationRequest, NnetComputation, peak_bytes
from nnet3_descriptors import Nnet, parse_config, read_nnet, set_test_mode
from nnet3_optimizer import OptimizeOptions, optimize
from nnet3_runtime_cuda import DeviceNnet, NnetComputer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "packages" / "nnet3-optimizer" / "tests")]

from example_generator import draw_example  # noqa: E402
from reference_cases import case_names, load_case  # noqa: E402

SWITCHES = [
    field.name
    for field in attrs.fields(OptimizeOptions)
    if field.default is True and field.name != "optimize"
]
"""The options that are on by default and can be turned off."""

BEYOND_KALDI = (
    "order_rows_early",
    "split_statistics",
    "gather_early",
    "recompute_activations",
)
LARGE = 64
ROUNDS = 6
RANDOM_NETWORKS = 300

_COPIES = ("Copy", "Add")
"""Parts of the names of the commands that copy or add."""


def computations(group: str) -> Iterator[tuple[Nnet, NnetComputation]]:
    """Yields network and compiled computation of each of a group."""
    if group == "benchmarks":
        for benchmark in BENCHMARKS.values():
            nnet = parse_config(benchmark.config(), rng=np.random.default_rng(0))
            for sequences, train in ((8, True), (1, False), (8, False)):
                used = nnet if train else set_test_mode(nnet)
                request = benchmark.request(sequences, train=train)
                yield used, compile_computation(used, request)
    elif group == "cases":
        for name in case_names():
            case = load_case(name)
            nnet = read_nnet(case.binary_path)
            nnet = set_test_mode(nnet) if case.test_mode else nnet
            yield nnet, compile_computation(nnet, case.request)
    else:
        for seed in range(RANDOM_NETWORKS):
            example = draw_example(random.Random(seed))
            if example is not None:
                nnet = example.nnet
                yield nnet, compile_computation(nnet, example.request)


@attrs.frozen
class Counts:
    """What a computation costs, apart from the arithmetic of components.

    Attributes:
        peak: Peak bytes of the matrices.
        commands: The number of commands.
        copied: The number of elements that commands copy or add.
    """

    peak: int
    commands: int
    copied: int

    @classmethod
    def of(cls, computation: NnetComputation) -> Counts:
        """Counts a computation."""
        _, _, rows, _, columns = np.asarray(computation.submatrices, np.int64).T
        sizes = rows * columns
        copied = 0
        for row in computation.command_table.tolist():
            if any(part in SCHEMA.types[row[0]].__name__ for part in _COPIES):
                copied += int(sizes[row[2]])
        return cls(peak_bytes(computation), len(computation.command_table), copied)

    def ratios(self, other: Counts) -> tuple[float, ...]:
        """The counts of another computation, relative to these."""
        mine, others = attrs.astuple(self), attrs.astuple(other)
        pairs = zip(mine, others, strict=True)
        return tuple(1.0 if own == their else their / max(own, 1) for own, their in pairs)


def print_counts(groups: list[str]) -> None:
    """Prints a row for each option and group of computations."""
    print(
        "| without | of | changed | peak: max | mean | commands: max | mean | copied: max | mean |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for group in groups:
        ratios: dict[str, list[tuple[float, ...]]] = {switch: [] for switch in SWITCHES}
        changed = dict.fromkeys(SWITCHES, 0)
        for nnet, compiled in computations(group):
            with_all = optimize(nnet, compiled)
            counts = Counts.of(with_all)
            for switch in SWITCHES:
                without = optimize(nnet, compiled, OptimizeOptions(**{switch: False}))
                changed[switch] += without != with_all
                ratios[switch].append(counts.ratios(Counts.of(without)))
        for switch, found in ratios.items():
            cells = []
            for column in zip(*found, strict=True):
                cells += [f"{max(column):.4f}", f"{fmean(column):.4f}"]
            row = [switch, f"{group} ({len(found)})", str(changed[switch]), *cells]
            print(f"| {' | '.join(row)} |", flush=True)


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


def print_times(networks: list[str], sequences: int) -> None:
    """Prints a row for each network and set of options."""
    print("| network | optimizations | peak, MB | runtime, MB | ms | ratio |")
    print("|---|---|---|---|---|---|")
    for name in networks:
        nnet = parse_config(BENCHMARKS[name].config(), rng=np.random.default_rng(0))
        lines = variants(nnet, name, sequences)
        measure(nnet, BENCHMARKS[name].request(sequences, train=True), lines)
        for line in lines:
            print(
                f"| {name} | {line.name} | {line.peak / 1e6:.1f} "
                f"| {line.computer.memory_bytes / 1e6:.1f} | {1e3 * line.seconds:.0f} "
                f"| {line.seconds / lines[0].seconds:.3f} |",
                flush=True,
            )


def main() -> None:
    """Reads the command line, and prints the table."""
    parser = argparse.ArgumentParser(description="Measure what each optimization brings.")
    parser.add_argument("--time", action="store_true", help="time those that Kaldi lacks")
    parser.add_argument("--network", action="append", choices=BENCHMARKS, help="default: all")
    parser.add_argument("--sequences", type=int, default=8, help="in the requests that are timed")
    arguments = parser.parse_args()
    if arguments.time:
        print_times(arguments.network or list(BENCHMARKS), arguments.sequences)
    else:
        print_counts(["benchmarks", "cases", "random"])


if __name__ == "__main__":
    main()
