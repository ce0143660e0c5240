"""The time of whole processes of nnet3-compute on archives, beside any other nnet3-compute.

    python benchmarks/archives.py [--network tdnnf ...] [--utterances 30 300] [--threads 1 2]
        [--other PATH]

Features are random, 733 frames on average, with i-vectors where the network takes one. Networks
have random parameters. The option is `--frames-per-chunk=150`, and outputs have one row for three
frames. For x-vectors, nnet3-xvector-compute computes whole utterances of four lengths. "digits" is
the small network with the utterances of examples/digits, repeated. Each line has seconds and
processor seconds of the process, and its largest memory. With `--other` it has the same of that
program, the ratio of processor seconds, and the difference of the outputs. The other program runs
without `--num-threads`; OPENBLAS_NUM_THREADS sets its number of threads.

A process keeps to as many processors as it has threads, so that on one thread reading and writing
take their time from computing. Programs run in turns. Each run writes a new file: to replace a file
takes new memory of the machine for its pages, which was half a second for 600 MB on a virtual
machine. For several numbers of threads, a line has the time relative to that of the first number.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from nnet3_descriptors import write_nnet
from nnet3_tables import MatrixWriter, VectorWriter, read_table
from processes import Spent, spent
from workload import Workload

FRAMES = 733
OURS, OTHER = "ours", "the other"
DIGITS = Path(__file__).parent.parent / "examples/digits"
PACKAGES = Path(__file__).parent.parent / "packages"
NETWORKS = ["tdnnf", "tdnn-lstm", "cnn-tdnnf", "xvector"]


@contextlib.contextmanager
def processors(count: int) -> Iterator[None]:
    """Processes that begin in the block have so many processors, where the system can say that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_of_them)[-count:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def compile_sources() -> None:
    """Compiles the sources of all packages, as an installer does: else the first run would."""
    for source in sorted(PACKAGES.glob("*/src")):
        compileall.compile_dir(source, quiet=2)


def write_inputs(folder: Path, network: str, count: int) -> list[str]:
    """Writes a network and its inputs; returns the arguments of the tool without the output."""
    if network == "digits":
        utterances = list(read_table(f"ark:{DIGITS}/test.feats.ark"))
        with MatrixWriter(f"ark:{folder}/feats.ark") as writer:
            for number in range(count):
                writer.write(f"u{number:05}", utterances[number % len(utterances)][1])
        return [f"{DIGITS}/final.raw", f"ark:{folder}/feats.ark"]
    nnet = Workload.make(network, "infer", 1).nnet
    write_nnet(nnet, str(folder / "final.raw"))
    dims = {node.name: node.dim for node in nnet.input_nodes}
    rng = np.random.default_rng(0)
    lengths = rng.integers(FRAMES // 2, FRAMES + FRAMES // 2, count)
    if network == "xvector":
        lengths = rng.choice([300, 450, 600, 900], count)
    with MatrixWriter(f"ark:{folder}/feats.ark") as writer:
        for number, length in enumerate(lengths):
            matrix = rng.standard_normal((length, dims["input"]), dtype=np.float32)
            writer.write(f"u{number:05}", matrix)
    options = []
    if network != "xvector":
        options += ["--frames-per-chunk=150", "--frame-subsampling-factor=3"]
    if "ivector" in dims:
        with VectorWriter(f"ark:{folder}/ivectors.ark") as writer:
            for number in range(count):
                vector = rng.standard_normal(dims["ivector"], dtype=np.float32)
                writer.write(f"u{number:05}", vector)
        options.append(f"--ivectors=ark:{folder}/ivectors.ark")
    return [*options, f"{folder}/final.raw", f"ark:{folder}/feats.ark"]


def commands(tool: str, threads: int, other: str | None) -> dict[str, list[str]]:
    """The programs to run: by name in the table, a program and its options; ours is the first.

    Args:
        tool: Name of our tool, and of the other one.
        threads: Number of threads of our tool.
        other: Path of the other program, or of a program beside it.
    """
    here = Path(sys.executable)
    programs = {OURS: [str(here.with_name(tool)), f"--num-threads={threads}"]}
    if other:
        programs[OTHER] = [str(Path(other).with_name(tool))]
    return programs


def difference(first: str, second: str) -> float:
    """The largest difference of two archives, relative to the largest value of the first."""
    pairs = zip(read_table(first), read_table(second), strict=True)
    return max(float(np.abs(a - b).max() / np.abs(a).max()) for (_, a), (_, b) in pairs)


def line(name: str, count: int, threads: int, program: str, runs: list[Spent]) -> str:
    """A row of the table: the best of some runs."""
    best = [min(values) for values in zip(*runs, strict=True)]
    return (
        f"| {name} | {count} | {threads} | {program} | {best[0]:.2f} s | {best[1]:.2f} s "
        f"| {best[2]:.0f} MB |"
    )


def main() -> None:
    """Prints a line for each network, number of utterances and threads, and program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", nargs="*", default=NETWORKS, choices=[*NETWORKS, "digits"])
    parser.add_argument("--utterances", type=int, nargs="*", default=[30, 300])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--other", help="another nnet3-compute; beside it nnet3-xvector-compute")
    arguments = parser.parse_args()
    compile_sources()
    print("| network | utterances | threads | program | time | processor time | memory |")
    print("|---|---|---|---|---|---|---|")
    for name in arguments.network:
        tool = "nnet3-xvector-compute" if name == "xvector" else "nnet3-compute"
        for count in arguments.utterances:
            with tempfile.TemporaryDirectory() as folder:
                given = write_inputs(Path(folder), name, count)
                ours: dict[int, float] = {}
                for threads in arguments.threads:
                    programs = commands(tool, threads, arguments.other)
                    runs: dict[str, list[Spent]] = {program: [] for program in programs}
                    with processors(threads):
                        for _ in range(arguments.runs):
                            for number, (program, command) in enumerate(programs.items()):
                                output = Path(folder, f"{number}.ark")
                                output.unlink(missing_ok=True)
                                words = [*command, *given, f"ark:{output}"]
                                runs[program].append(spent(words, Path(folder, "log"), threads))
                    ours[threads] = min(run.seconds for run in runs[OURS])
                    for program, taken in runs.items():
                        print(line(name, count, threads, program, taken), flush=True)
                    if arguments.other:
                        mine, theirs = (
                            min(run.processor for run in runs[each]) for each in (OURS, OTHER)
                        )
                        other = f"ark:{folder}/{list(programs).index(OTHER)}.ark"
                        print(
                            f"{mine / theirs:.2f} of the processor time; outputs differ by "
                            f"{difference(other, f'ark:{folder}/0.ark'):.1e} of the largest value",
                            flush=True,
                        )
                    if len(ours) > 1:
                        first = next(iter(ours))
                        print(
                            f"{threads} threads take {ours[threads] / ours[first]:.2f} of our time "
                            f"on {first}",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
